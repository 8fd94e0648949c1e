package etcdstore

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/compute"
)

// Storages stores which shared storage the cloud has. Hosts write the records when they join a storage.
type Storages struct{ conn *conn }

var _ compute.Storages = (*Storages)(nil)

// Storage implements compute.Storages.
func (s *Storages) Storage(ctx context.Context, name string) (found croft.Storage, err error) {
	got, err := s.conn.etcd.Get(ctx, s.conn.keys.storage(name))
	if err != nil {
		return found, s.conn.wrap(err, "read the record of the shared storage %s", name)
	}
	if len(got.Kvs) == 0 {
		return found, croft.Errorf(croft.NotFound, "there is no shared storage %s", name)
	}
	err = s.conn.decode(got.Kvs[0].Key, got.Kvs[0].Value, &found)
	found.Revision = got.Kvs[0].ModRevision
	return found, err
}

// PutStorage implements compute.Storages.
func (s *Storages) PutStorage(ctx context.Context, next croft.Storage) (croft.Storage, error) {
	if s.conn.minor.Load() < storageMinor {
		return next, croft.Errorf(croft.Invalid, "this cloud's croft is too old for shared storage: upgrade the cloud")
	}
	key := s.conn.keys.storage(next.Name)
	done, err := s.conn.etcd.Txn(ctx).If(unchanged(key, next.Revision)).Then(clientv3.OpPut(key, encode(next))).Commit()
	if err != nil {
		return next, s.conn.wrap(err, "write the record of the shared storage %s", next.Name)
	}
	if !done.Succeeded {
		return next, croft.Errorf(croft.Conflict, "another host changed the record of the shared storage %s", next.Name)
	}
	next.Revision = done.Header.Revision
	return next, nil
}
