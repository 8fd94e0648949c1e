package etcdstore

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/control/page/session"
	"croft/etcdstore/internal/kv"
)

// PageSessions stores the sessions of the page, each under a lease that ends with it.
type PageSessions struct{ conn *conn }

var _ session.Store = (*PageSessions)(nil)

// Put implements session.Store.
func (s *PageSessions) Put(ctx context.Context, holder, id string, r session.Record, most int) error {
	got, err := s.conn.etcd.Get(ctx, s.conn.keys.pageSessions(holder), clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		return s.conn.wrap(err, "count the sessions")
	}
	for _, old := range got.Kvs[:max(0, len(got.Kvs)+1-most)] {
		if _, err := s.conn.etcd.Delete(ctx, string(old.Key)); err != nil {
			return s.conn.wrap(err, "end the oldest session")
		}
	}
	return s.put(ctx, s.conn.keys.pageSession(holder, id), r)
}

// put stores a record until it expires.
func (s *PageSessions) put(ctx context.Context, key string, r session.Record) error {
	lease, err := s.conn.etcd.Grant(ctx, max(1, int64(time.Until(r.Expires)/time.Second)))
	if err != nil {
		return s.conn.wrap(err, "begin a session")
	}
	_, err = s.conn.etcd.Put(ctx, key, encode(r), clientv3.WithLease(lease.ID))
	return s.conn.wrapped(err, "begin a session")
}

// Get implements session.Store.
func (s *PageSessions) Get(ctx context.Context, holder, id string) (session.Record, error) {
	return kv.Find[session.Record](ctx, s.conn.shared(), s.conn.keys.pageSession(holder, id),
		croft.Errorf(croft.NotFound, "there is no such session"), "read a session")
}

// Replace implements session.Store.
func (s *PageSessions) Replace(ctx context.Context, holder, id string, former, r session.Record) error {
	key := s.conn.keys.pageSession(holder, id)
	done, err := s.conn.etcd.Txn(ctx).If(clientv3.Compare(clientv3.Value(key), "=", string(encode(former)))).
		Then(clientv3.OpPut(key, string(encode(r)), clientv3.WithIgnoreLease())).Commit()
	if err != nil {
		return s.conn.wrap(err, "change a session")
	}
	if !done.Succeeded {
		return croft.Errorf(croft.Conflict, "the session has changed or ended")
	}
	return nil
}

// Remove implements session.Store. The lease then has no key, and expires.
func (s *PageSessions) Remove(ctx context.Context, holder, id string) error {
	_, err := s.conn.etcd.Delete(ctx, s.conn.keys.pageSession(holder, id))
	return s.conn.wrapped(err, "end a session")
}

// PutLink implements session.Store.
func (s *PageSessions) PutLink(ctx context.Context, id string, r session.Record) error {
	return s.put(ctx, s.conn.keys.pageLink(id), r)
}

// TakeLink implements session.Store.
func (s *PageSessions) TakeLink(ctx context.Context, id string) (r session.Record, err error) {
	got, err := s.conn.etcd.Delete(ctx, s.conn.keys.pageLink(id), clientv3.WithPrevKV())
	if err != nil {
		return r, s.conn.wrap(err, "use a link")
	}
	if len(got.PrevKvs) == 0 {
		return r, croft.Errorf(croft.NotFound, "there is no such link")
	}
	return r, s.conn.decode(got.PrevKvs[0].Key, got.PrevKvs[0].Value, &r)
}
