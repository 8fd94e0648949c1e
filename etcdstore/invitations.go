package etcdstore

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
)

// PutInvitation keeps what a joining host gets for its token, for so long.
func (s *Store) PutInvitation(ctx context.Context, name string, sealed []byte, life time.Duration) error {
	lease, err := s.etcd.Grant(ctx, max(1, int64(life/time.Second)))
	if err != nil {
		return s.wrap(err, "make an invitation")
	}
	_, err = s.etcd.Put(ctx, s.keys.invitation(name), string(sealed), clientv3.WithLease(lease.ID))
	return s.wrapped(err, "write an invitation")
}

// Invitation returns it. NotFound: it ran out, or never was.
func (s *Store) Invitation(ctx context.Context, name string) ([]byte, error) {
	got, err := s.etcd.Get(ctx, s.keys.invitation(name))
	if err != nil {
		return nil, s.wrap(err, "read an invitation")
	}
	if len(got.Kvs) == 0 {
		return nil, croft.Errorf(croft.NotFound, "this token has run out: make another with `croft token create`")
	}
	return got.Kvs[0].Value, nil
}

// Advertised are the addresses that the members of etcd give out for clients.
func (s *Store) Advertised(ctx context.Context) ([]string, error) {
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
