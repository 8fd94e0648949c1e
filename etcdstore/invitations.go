package etcdstore

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/trust"
)

// PutInvitation stores an invitation for its lifetime.
func (s *Trust) PutInvitation(ctx context.Context, i trust.Invitation, life time.Duration) error {
	lease, err := s.conn.etcd.Grant(ctx, max(1, int64(life/time.Second)))
	if err != nil {
		return s.conn.wrap(err, "make an invitation")
	}
	i.Created = time.Now().UTC().Truncate(time.Second)
	i.Expires = i.Created.Add(life)
	_, err = s.conn.etcd.Put(ctx, s.conn.keys.trust().invitation(i.Name), encode(i), clientv3.WithLease(lease.ID))
	return s.conn.wrapped(err, "write an invitation")
}

// Invitation implements trust.Registry.
func (s *Trust) Invitation(ctx context.Context, name string) (i trust.Invitation, err error) {
	return kv.Find[trust.Invitation](ctx, s.conn.shared(), s.conn.keys.trust().invitation(name),
		croft.Errorf(croft.NotFound, "this token has run out or was revoked: make another with `croft token create`"),
		"read an invitation")
}

// Invitations lists the valid invitations, soonest expiry first.
func (s *Trust) Invitations(ctx context.Context) ([]trust.Invitation, error) {
	all, err := readAll[trust.Invitation](ctx, s.conn, "list the invitations", s.conn.keys.trust().invitations(), 0)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b trust.Invitation) int {
		return cmp.Or(a.Expires.Compare(b.Expires), cmp.Compare(a.Name, b.Name))
	})
	return all, nil
}

// RevokeInvitation revokes the invitation whose name starts with name, and returns it. NotFound. Conflict: the prefix
// is ambiguous.
func (s *Trust) RevokeInvitation(ctx context.Context, name string) (trust.Invitation, error) {
	all, err := s.Invitations(ctx)
	if err != nil {
		return trust.Invitation{}, err
	}
	all = slices.DeleteFunc(all, func(i trust.Invitation) bool { return !strings.HasPrefix(i.Name, name) })
	switch {
	case name == "" || len(all) == 0:
		return trust.Invitation{}, croft.Errorf(croft.NotFound,
			"there is no token %q; `croft token list` shows the valid ones", name)
	case len(all) > 1:
		return trust.Invitation{}, croft.Errorf(croft.Conflict, "the names of %d tokens start with %s: give more "+
			"characters",
			len(all), name)
	}
	// The lease then has no key, and expires.
	_, err = s.conn.etcd.Delete(ctx, s.conn.keys.trust().invitation(all[0].Name))
	return all[0], s.conn.wrapped(err, "revoke a token")
}
