package etcdstore

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

// EtcdCluster manages the etcd cluster itself: which hosts serve it, and how members join and leave.
type EtcdCluster struct{ conn *conn }

// PutEtcdMember stores which shared services a host runs.
func (s *EtcdCluster) PutEtcdMember(ctx context.Context, m croft.EtcdMember) error {
	m.Role = ""
	_, err := s.conn.etcd.Put(ctx, s.conn.keys.etcdMember(m.Host), encode(m))
	return s.conn.wrapped(err, "write what this host serves")
}

// EtcdMembers lists the hosts that serve etcd, by name, each with its role.
func (s *EtcdCluster) EtcdMembers(ctx context.Context) ([]croft.EtcdMember, error) {
	served, err := s.Served(ctx)
	if err != nil || len(served) == 0 {
		return served, err
	}
	ask, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	list, err := s.conn.etcd.MemberList(ask)
	if err != nil {
		return nil, s.conn.wrap(err, "list etcd's members")
	}
	roles := s.roles(ctx, list.Members)
	for i, m := range served {
		served[i].Role = croft.MemberMissing
		if one := memberOf(list.Members, m); one != nil {
			served[i].Role = roles[one.ID]
		}
	}
	return served, nil
}

// Served returns the same as EtcdMembers, without the roles.
func (s *EtcdCluster) Served(ctx context.Context) ([]croft.EtcdMember, error) {
	all, err := readAll[croft.EtcdMember](ctx, s.conn, "read which hosts serve etcd", s.conn.keys.members(), 0)
	slices.SortFunc(all, func(a, b croft.EtcdMember) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Host, b.Host))
	})
	return all, err
}

// roles asks all members for their roles concurrently.
func (s *EtcdCluster) roles(ctx context.Context, all []*etcdserverpb.Member) map[uint64]croft.MemberRole {
	var endpoints []string
	for _, m := range all {
		endpoints = append(endpoints, m.ClientURLs...)
	}
	statuses, _ := s.conn.statuses(ctx, endpoints)
	roles := map[uint64]croft.MemberRole{}
	for _, m := range all {
		roles[m.ID] = roleOf(m, statuses)
	}
	return roles
}

func roleOf(m *etcdserverpb.Member, statuses map[string]*clientv3.StatusResponse) croft.MemberRole {
	if m.Name == "" {
		return croft.MemberLearns // it has not started yet
	}
	for _, endpoint := range m.ClientURLs {
		status := statuses[endpoint]
		switch {
		case status == nil || status.Leader == 0 || status.Header.MemberId != m.ID:
		case m.IsLearner:
			return croft.MemberLearns
		case status.Leader == m.ID:
			return croft.MemberLeads
		default:
			return croft.MemberFollows
		}
	}
	return croft.MemberSilent
}

// WatchEtcdMembers calls changed with the result of Served whenever it may have changed, until ctx ends.
func (s *EtcdCluster) WatchEtcdMembers(ctx context.Context, changed func([]croft.EtcdMember)) error {
	return s.conn.follow(ctx, s.conn.keys.members(), func() {}, func(*mvccpb.KeyValue, bool) {
		if all, err := s.Served(ctx); err == nil {
			changed(all)
		}
	})
}

// IsEtcdMember reports whether a host's server is a member of etcd. It needs a majority of the members.
func (s *EtcdCluster) IsEtcdMember(ctx context.Context, m croft.EtcdMember) (bool, error) {
	list, err := s.conn.etcd.MemberList(ctx)
	if err != nil {
		return false, s.conn.wrap(err, "list etcd's members")
	}
	return memberOf(list.Members, m) != nil, nil
}

// SetEndpoints replaces the endpoints of etcd; it has no effect for a server in this process.
func (s *EtcdCluster) SetEndpoints(endpoints []string) {
	if len(endpoints) > 0 && s.conn.etcd.ActiveConnection() != nil {
		s.conn.etcd.SetEndpoints(endpoints...)
	}
}

// MayRemoveEtcdMember returns why a host's member cannot be removed from etcd; nil: it can, or the host has none.
// Conflict: the others would have no majority.
func (s *EtcdCluster) MayRemoveEtcdMember(ctx context.Context, host croft.HostID) error {
	_, err := s.leaving(ctx, host)
	return err
}

// RemoveEtcdMember removes a host's member from etcd, and the record of its services. A missing member is no error.
// Conflict: as for MayRemoveEtcdMember.
func (s *EtcdCluster) RemoveEtcdMember(ctx context.Context, host croft.HostID) error {
	l, err := s.leaving(ctx, host)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	if l.member != nil {
		s.SetEndpoints(l.others) // our connection may be to the member that is removed
		err := soon(ctx, orLeaderless, func() error { return s.removeMember(ctx, l.member.ID) })
		if err != nil {
			return s.conn.wrap(err, "remove the host's member")
		}
	}
	err = soon(ctx, orLeaderless, func() error {
		_, err := s.conn.etcd.Delete(ctx, s.conn.keys.etcdMember(host))
		return err
	})
	return s.conn.wrapped(err, "remove what the host served")
}

// leaveTime bounds the election of another leader after the leader was removed.
const leaveTime = 30 * time.Second

// leaving is a member to be removed, and the remaining members.
type leaving struct {
	member *etcdserverpb.Member // nil: the host has no member
	voices int                  // number of other voters
	silent []string             // endpoints of the other voters that do not answer
	others []string             // endpoints of the other members that answer
}

// leaving examines a host's member. Conflict: as for MayRemoveEtcdMember.
func (s *EtcdCluster) leaving(ctx context.Context, host croft.HostID) (l leaving, err error) {
	served, err := s.Served(ctx)
	here := slices.IndexFunc(served, func(m croft.EtcdMember) bool { return m.Host == host })
	if err != nil || here < 0 {
		return l, err
	}
	list, err := s.conn.etcd.MemberList(ctx)
	if err != nil {
		return l, s.conn.wrap(err, "list etcd's members")
	}
	if l.member = memberOf(list.Members, served[here]); l.member == nil {
		return l, nil
	}
	roles := s.roles(ctx, list.Members)
	for _, m := range list.Members {
		if m.ID == l.member.ID || m.IsLearner {
			continue
		}
		l.voices++
		if roles[m.ID] == croft.MemberSilent {
			l.silent = append(l.silent, m.ClientURLs...)
		} else {
			l.others = append(l.others, m.ClientURLs...)
		}
	}
	return l, l.check()
}

// check verifies that the remaining voters have a majority that answers.
func (l *leaving) check() error {
	need, answer := l.voices/2+1, l.voices-len(l.silent)
	switch {
	case l.member.IsLearner:
		return nil
	case l.voices == 0:
		return croft.Errorf(croft.Conflict,
			"its etcd is the only one and has all data of the cloud: let another host join with --etcd-member first")
	case answer < need:
		return croft.Errorf(croft.Conflict,
			"without its etcd %d of %d members would answer, and %d have to: bring back %s first",
			answer, l.voices, need, strings.Join(l.silent, ", "))
	}
	return nil
}

// Advertised lists the client addresses that the members of etcd advertise.
func (s *EtcdCluster) Advertised(ctx context.Context) ([]string, error) {
	list, err := s.conn.etcd.MemberList(ctx)
	if err != nil {
		return nil, s.conn.wrap(err, "list etcd's members")
	}
	var all []string
	for _, m := range list.Members {
		all = append(all, m.ClientURLs...)
	}
	return all, nil
}
