package etcdstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"

	"croft"
)

// memberRetry is the pause before a retry of a change of members that etcd temporarily refused.
const memberRetry = 500 * time.Millisecond

// AddEtcdMember adds the server that a host is about to start with an empty directory. It is a learner until it is
// promoted, so that a failed join has no effect. It returns the cluster in the form of etcdserver.Config, and may be
// repeated. A former member of the host, whose data is lost, is removed first. Invalid: the peer addresses of the
// present members are not reachable from other machines.
func (s *EtcdCluster) AddEtcdMember(ctx context.Context, m croft.EtcdMember) (cluster string, err error) {
	// Store the intent first, so that forgetting the host also cleans up the member.
	if err := s.PutEtcdMember(ctx, m); err != nil {
		return "", err
	}
	err = soon(ctx, notYet, func() error {
		cluster, err = s.addMember(ctx, m)
		return err
	})
	if err != nil && croft.KindOf(err) == "" {
		err = s.conn.wrap(err, "join etcd as a member")
	}
	return cluster, err
}

// notYet reports whether etcd refuses a change only temporarily: another host joins, or a member has not been connected
// for long enough.
func notYet(err error) bool {
	return errors.Is(err, rpctypes.ErrTooManyLearners) || errors.Is(err, rpctypes.ErrUnhealthy) ||
		errors.Is(err, rpctypes.ErrMemberNotEnoughStarted)
}

// orLeaderless reports what notYet does, or that the cluster temporarily has no leader.
func orLeaderless(err error) bool { return notYet(err) || err != nil && code(err) == codes.Unavailable }

// soon repeats do while its error is temporary according to passes.
func soon(ctx context.Context, passes func(error) bool, do func() error) error {
	for {
		err := do()
		if !passes(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(memberRetry):
		}
	}
}

func (s *EtcdCluster) addMember(ctx context.Context, m croft.EtcdMember) (string, error) {
	list, err := s.conn.etcd.MemberList(ctx)
	if err != nil {
		return "", s.conn.wrap(err, "list etcd's members")
	}
	all := list.Members
	if err := reachable(all, m); err != nil {
		return "", err
	}
	if mine := memberOf(all, m); mine != nil {
		if mine.Name == "" && slices.Equal(mine.PeerURLs, []string{m.Peer}) {
			return clusterOf(all, m), nil
		}
		if err := s.removeMember(ctx, mine.ID); err != nil {
			return "", err
		}
	}
	added, err := s.conn.etcd.MemberAddAsLearner(ctx, []string{m.Peer})
	if errors.Is(err, rpctypes.ErrMemberNotFound) {
		return "", rpctypes.ErrUnhealthy // otherwise its ID would equal that of a member removed in the same second
	}
	if err != nil {
		return "", err
	}
	return clusterOf(added.Members, m), nil
}

// removeMember removes a member. It is no error if the member was removed already.
func (s *EtcdCluster) removeMember(ctx context.Context, id uint64) error {
	_, err := s.conn.etcd.MemberRemove(ctx, id)
	if errors.Is(err, rpctypes.ErrMemberNotFound) {
		return nil
	}
	return err
}

// memberOf returns the member of a host; nil: there is no such member. A member that has never started has no name yet
// and is found by its peer address.
func memberOf(all []*etcdserverpb.Member, m croft.EtcdMember) *etcdserverpb.Member {
	for _, one := range all {
		if one.Name == string(m.Host) || m.Peer != "" && slices.Contains(one.PeerURLs, m.Peer) {
			return one
		}
	}
	return nil
}

// reachable refuses members that the new one could not reach. Invalid.
func reachable(all []*etcdserverpb.Member, m croft.EtcdMember) error {
	for _, one := range all {
		for _, peer := range one.PeerURLs {
			if strings.HasSuffix(peer, ":0") {
				return croft.Errorf(croft.Invalid,
					"etcd's member %s has no address for other members: set etcd.listen there to an address that this host reaches, and start croft up again", one.Name)
			}
			if mine, _, _ := strings.Cut(m.Peer, "://"); !strings.HasPrefix(peer, mine+"://") {
				return croft.Errorf(croft.Invalid,
					"etcd's members speak to each other at %s and this host would at %s: give it certificates, or --insecure, as they have", peer, m.Peer)
			}
		}
	}
	return nil
}

// clusterOf lists the members by name and address; a member that has never started is named by its ID.
func clusterOf(all []*etcdserverpb.Member, m croft.EtcdMember) string {
	var parts []string
	for _, one := range all {
		name := one.Name
		if slices.Contains(one.PeerURLs, m.Peer) {
			name = string(m.Host)
		} else if name == "" {
			name = fmt.Sprintf("%x", one.ID)
		}
		for _, peer := range one.PeerURLs {
			parts = append(parts, name+"="+peer)
		}
	}
	return strings.Join(parts, ",")
}
