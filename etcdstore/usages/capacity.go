package usages

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
	"croft/tenant/usage"
)

var _ usage.CapacityStore = (*History)(nil)

// Gauge implements usage.CapacityStore.
func (s *History) Gauge(ctx context.Context) (g usage.Gauge, err error) {
	got, err := s.conn.Etcd.Get(ctx, s.keys().capacity())
	if err != nil {
		return g, s.conn.Wrap(err, "read what the hosts offered")
	}
	for _, stored := range got.Kvs {
		err = s.conn.Decode(stored.Key, stored.Value, &g.Meter)
		g.Generation = stored.ModRevision
	}
	return g, err
}

// WriteGauge implements usage.CapacityStore. Days beyond Kept are removed when a day ends. After a long time without
// any server, only the latest days are stored.
func (s *History) WriteGauge(ctx context.Context, was usage.Gauge, next usage.Meter, over []usage.Day) error {
	if err := s.conn.CheckClock(ctx, next.At); err != nil {
		return err
	}
	ops := []clientv3.Op{clientv3.OpPut(s.keys().capacity(), kv.Encode(next))}
	for _, d := range over[max(0, len(over)-atOnce/2):] {
		ops = append(ops, clientv3.OpPut(s.keys().capacityOn(d.Date), kv.Encode(d)))
	}
	if len(over) > 0 {
		oldest := next.At.UTC().Add(-usage.Kept).Format(time.DateOnly)
		ops = append(ops, clientv3.OpDelete(s.keys().capacityOn(""), clientv3.WithRange(s.keys().capacityOn(oldest))))
	}
	done, err := s.conn.Etcd.Txn(ctx).If(kv.Unchanged(s.keys().capacity(), was.Generation)).Then(ops...).Commit()
	if err == nil && !done.Succeeded {
		return croft.Errorf(croft.Conflict, "another server measured what the hosts offer")
	}
	if err != nil {
		return s.conn.Wrap(err, "record what the hosts offer")
	}
	return nil
}

// Capacity returns what the hosts offered on the days of a filter.
func (s *History) Capacity(ctx context.Context, f usage.Filter) ([]usage.Day, error) {
	g, err := s.Gauge(ctx)
	if err != nil || g.Generation == 0 {
		return nil, err
	}
	got, err := s.conn.Etcd.Get(ctx, s.keys().capacityOn(f.Since),
		clientv3.WithRange(clientv3.GetPrefixRangeEnd(s.keys().capacityOn("")))) // at most as many as are kept
	if err != nil {
		return nil, s.conn.Wrap(err, "read what the hosts offered")
	}
	var over []usage.Day
	for _, stored := range got.Kvs {
		var d usage.Day
		if err := s.conn.Decode(stored.Key, stored.Value, &d); err != nil {
			return nil, err
		}
		if d.Date < g.Today.Date { // a day may have ended since the meter was read
			over = append(over, d)
		}
	}
	return f.Present(over, g.Meter, g.At), nil
}
