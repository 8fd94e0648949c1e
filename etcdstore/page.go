package etcdstore

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/control/page/session"
	"croft/etcdstore/internal/kv"
)

// PageSessions stores the sessions of the page, each under a lease that ends with it.
type PageSessions struct{ conn *conn }

var _ session.Store = (*PageSessions)(nil)

// Put implements session.Store. Two logins at once do not both count the same sessions: the second one counts again.
func (s *PageSessions) Put(ctx context.Context, holder, id string, r session.Record, most int) error {
	prefix := s.conn.keys.pageSessions(holder)
	return s.leased(ctx, r, func(lease clientv3.LeaseID) error {
		for {
			got, err := s.conn.etcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
				clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
			if err != nil {
				return s.conn.wrap(err, "count the sessions")
			}
			begin := []clientv3.Op{clientv3.OpPut(s.conn.keys.pageSession(holder, id), encode(r),
				clientv3.WithLease(lease))}
			for _, oldest := range got.Kvs[:max(0, len(got.Kvs)+1-most)] {
				begin = append(begin, clientv3.OpDelete(string(oldest.Key), clientv3.WithPrevKV()))
			}
			asCounted := clientv3.Compare(clientv3.ModRevision(prefix), "<", got.Header.Revision+1).WithPrefix()
			done, err := s.conn.etcd.Txn(ctx).If(asCounted).Then(begin...).Commit()
			if err != nil {
				return s.conn.wrap(err, "begin a session")
			}
			if done.Succeeded {
				for _, ended := range done.Responses[1:] {
					s.revoke(ctx, ended.GetResponseDeleteRange().PrevKvs)
				}
				return nil
			}
		}
	})
}

// leased calls put with a lease that ends with a record, and revokes the lease if put fails. This also removes a record
// that put stored in spite of the error.
func (s *PageSessions) leased(ctx context.Context, r session.Record, put func(clientv3.LeaseID) error) error {
	lease, err := s.conn.etcd.Grant(ctx, max(1, int64(time.Until(r.Expires)/time.Second)))
	if err != nil {
		return s.conn.wrap(err, "begin a session")
	}
	if err := put(lease.ID); err != nil {
		s.conn.shared().StandDown(ctx, lease.ID)
		return err
	}
	return nil
}

// revoke revokes the leases of removed records. If etcd does not answer, they expire.
func (s *PageSessions) revoke(ctx context.Context, removed []*mvccpb.KeyValue) {
	for _, one := range removed {
		s.conn.shared().StandDown(ctx, clientv3.LeaseID(one.Lease))
	}
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

// Remove implements session.Store.
func (s *PageSessions) Remove(ctx context.Context, holder, id string) error {
	got, err := s.conn.etcd.Delete(ctx, s.conn.keys.pageSession(holder, id), clientv3.WithPrevKV())
	if err != nil {
		return s.conn.wrap(err, "end a session")
	}
	s.revoke(ctx, got.PrevKvs)
	return nil
}

// PutLink implements session.Store.
func (s *PageSessions) PutLink(ctx context.Context, id string, r session.Record) error {
	return s.leased(ctx, r, func(lease clientv3.LeaseID) error {
		_, err := s.conn.etcd.Put(ctx, s.conn.keys.pageLink(id), encode(r), clientv3.WithLease(lease))
		return s.conn.wrapped(err, "store a link")
	})
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
	s.revoke(ctx, got.PrevKvs)
	return r, s.conn.decode(got.PrevKvs[0].Key, got.PrevKvs[0].Value, &r)
}
