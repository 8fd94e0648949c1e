package clusters

import (
	"context"
	"strconv"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/cluster"
	"croft/etcdstore/internal/kv"
)

// Note implements cluster.Records.
func (s *Records) Note(ctx context.Context, c cluster.Cluster, e cluster.Event) error {
	k, id := s.keys(), c.ID
	same := kv.SameSince(k.record(id), c.Revised)
	for {
		got, err := s.conn.Etcd.Get(ctx, k.events(id), clientv3.WithPrefix(), clientv3.WithKeysOnly(),
			clientv3.WithSort(clientv3.SortByKey, clientv3.SortDescend), clientv3.WithLimit(1))
		if err != nil {
			return s.conn.Wrap(err, "read the events of cluster %s", id)
		}
		n := int64(1)
		for _, latest := range got.Kvs {
			before, err := strconv.ParseInt(kv.Last(latest.Key), 10, 64)
			if err != nil {
				return croft.Errorf(croft.Invalid, "%s is not the key of an event", latest.Key)
			}
			n = before + 1
		}
		done, err := s.conn.Etcd.Txn(ctx).If(append(same, kv.Absent(k.event(id, n)))...).
			Then(clientv3.OpPut(k.event(id, n), kv.Encode(e.Bounded())), clientv3.OpDelete(k.events(id),
				clientv3.WithRange(k.event(id, max(0, n-cluster.MaxEvents+1))))).
			Else(clientv3.OpGet(k.record(id), clientv3.WithKeysOnly())).Commit()
		switch {
		case err != nil:
			return s.conn.Wrap(err, "note an event of cluster %s", id)
		case done.Succeeded:
			return nil
		}
		if now := kv.First(done.Responses[0]); now == nil || now.CreateRevision > c.Revised {
			return missing(id)
		} // otherwise another process added an event, so the retries end
	}
}

// Events implements cluster.Records.
func (s *Records) Events(ctx context.Context, id croft.ClusterID) ([]cluster.Event, error) {
	if _, err := s.Get(ctx, id); err != nil {
		return nil, err
	}
	return kv.ReadAll[cluster.Event](ctx, s.conn, "read the events of a cluster", s.keys().events(id), 0)
}
