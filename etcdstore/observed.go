package etcdstore

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"croft"
)

// WatchObserved calls seen with every stored observation of all hosts, and with each new one until ctx ends.
// After a broken connection it may miss some and repeat others.
func (s *Store) WatchObserved(ctx context.Context, seen func(croft.Observation)) error {
	return s.follow(ctx, s.keys.allObserved(), func() {}, func(kv *mvccpb.KeyValue, stored bool) {
		if !stored {
			return
		}
		var o croft.Observation
		if s.decode(kv.Key, kv.Value, &o) == nil { // readers of that key itself get the error
			seen(o)
		}
	})
}
