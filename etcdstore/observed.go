package etcdstore

import (
	"context"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"croft"
)

// WatchObserved calls seen with every observation that is stored and with each that
// is stored from then on, of all hosts, until ctx ends. Where the connection breaks it
// may miss some and give others twice.
func (s *Store) WatchObserved(ctx context.Context, seen func(croft.Observation)) error {
	return s.follow(ctx, s.keys.allObserved(), func() {}, func(kv *mvccpb.KeyValue, stored bool) {
		if !stored {
			return
		}
		var o croft.Observation
		if s.decode(kv.Key, kv.Value, &o) == nil { // whoever reads that key for itself is told what is wrong
			seen(o)
		}
	})
}
