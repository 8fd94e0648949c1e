package etcdstore

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/trust"
)

// PutInvitation stores an invitation for its lifetime.
func (s *Trust) PutInvitation(ctx context.Context, i trust.Invitation, life time.Duration) error {
	lease, err := s.etcd.Grant(ctx, max(1, int64(life/time.Second)))
	if err != nil {
		return s.wrap(err, "make an invitation")
	}
	i.Created = time.Now().UTC().Truncate(time.Second)
	i.Expires = i.Created.Add(life)
	_, err = s.etcd.Put(ctx, s.keys.trust().invitation(i.Name), encode(i), clientv3.WithLease(lease.ID))
	return s.wrapped(err, "write an invitation")
}

// Invitation implements trust.Registry.
func (s *Trust) Invitation(ctx context.Context, name string) (i trust.Invitation, err error) {
	got, err := s.etcd.Get(ctx, s.keys.trust().invitation(name))
	if err != nil {
		return i, s.wrap(err, "read an invitation")
	}
	if len(got.Kvs) == 0 {
		return i,
			croft.Errorf(croft.NotFound,
				"this token has run out or was revoked: make another with `croft token create`")
	}
	return i, s.decode(got.Kvs[0].Key, got.Kvs[0].Value, &i)
}

// Invitations lists the valid invitations, soonest expiry first.
func (s *Trust) Invitations(ctx context.Context) ([]trust.Invitation, error) {
	got, err := s.etcd.Get(ctx, s.keys.trust().invitations(), clientv3.WithPrefix())
	if err != nil {
		return nil, s.wrap(err, "list the invitations")
	}
	all := []trust.Invitation{}
	for _, kv := range got.Kvs {
		var i trust.Invitation
		if err := s.decode(kv.Key, kv.Value, &i); err != nil {
			return nil, err
		}
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b trust.Invitation) int {
		return cmp.Or(a.Expires.Compare(b.Expires), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

// RevokeInvitation ends the invitation whose name begins with name at once, and returns it. NotFound. Conflict:
// the beginning is ambiguous.
func (s *Trust) RevokeInvitation(ctx context.Context, name string) (trust.Invitation, error) {
	all, err := s.Invitations(ctx)
	if err != nil {
		return trust.Invitation{}, err
	}
	all = slices.DeleteFunc(all, func(i trust.Invitation) bool { return !strings.HasPrefix(i.Name, name) })
	switch {
	case name == "" || len(all) == 0:
		return trust.Invitation{}, croft.Errorf(croft.NotFound,
			"there is no token %q; `croft token list` shows those that count", name)
	case len(all) > 1:
		return trust.Invitation{}, croft.Errorf(croft.Conflict, "the names of %d tokens begin with %s: give more of it",
			len(all), name)
	}
	_, err = s.etcd.Delete(ctx, s.keys.trust().invitation(all[0].Name)) // its lease has no key any more and expires
	return all[0], s.wrapped(err, "revoke a token")
}

// Advertised lists the client addresses advertised by the members of etcd.
func (s *Cluster) Advertised(ctx context.Context) ([]string, error) {
	list, err := s.etcd.MemberList(ctx)
	if err != nil {
		return nil, s.wrap(err, "list etcd's members")
	}
	var all []string
	for _, m := range list.Members {
		all = append(all, m.ClientURLs...)
	}
	return all, nil
}
