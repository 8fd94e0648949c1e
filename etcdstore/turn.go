package etcdstore

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/hosts/audit"
	"croft/schedule"
)

// Turn selects one caretaker at a time for the records that belong to no host.
type Turn struct{ conn *conn }

var _ audit.Shared = (*Turn)(nil)

// Evidence implements audit.Shared.
func (s *Turn) Evidence(ctx context.Context) (audit.Evidence, error) {
	e, err := (&Records{s.conn}).Evidence(ctx)
	if err != nil {
		return e, err
	}
	e.ClockDifference, e.Clocks = s.conn.shared().CompareClocks(ctx, time.Now())
	return e, nil
}

// CheckClocks compares the clock of this machine with the clocks of living hosts. Unavailable: it differs from one of
// them, or is not known to agree, so nothing may be ended because of the time.
func (s *Turn) CheckClocks(ctx context.Context) error {
	return s.conn.shared().CheckClock(ctx, time.Now())
}

// Fence implements audit.Shared.
func (s *Turn) Fence(ctx context.Context, inst croft.Instance) (croft.Instance, error) {
	return (&Instances{conn: s.conn}).Fence(ctx, inst)
}

// Discard implements audit.Shared.
func (s *Turn) Discard(ctx context.Context, inst croft.Instance) error {
	return (&Instances{conn: s.conn}).Discard(ctx, inst)
}

// Destroy implements audit.Shared.
func (s *Turn) Destroy(ctx context.Context, inst croft.Instance) error {
	_, err := (&Instances{conn: s.conn}).Reorder(ctx, inst, schedule.NewOrder(s.conn.partition, inst, inst.Host,
		croft.WantGone))
	return err
}

// NoteAnnounced implements audit.Shared.
func (s *Turn) NoteAnnounced(ctx context.Context, inst croft.Instance) error {
	next := inst
	next.Announced = inst.Expires
	_, err := (&Instances{conn: s.conn}).rewrite(ctx, inst, next)
	return err
}

// TakeTurn implements audit.Shared: the turn is a key under a lease that is never renewed.
func (s *Turn) TakeTurn(ctx context.Context, length time.Duration) (bool, error) {
	k := s.conn.keys
	got, err := s.conn.etcd.Get(ctx, k.turn(), clientv3.WithKeysOnly())
	if err != nil || len(got.Kvs) > 0 {
		return false, s.conn.wrapped(err, "look whose turn it is")
	}
	lease, err := s.conn.etcd.Grant(ctx, max(1, int64(length/time.Second)))
	if err != nil {
		return false, s.conn.wrap(err, "take the turn")
	}
	done, err := s.conn.etcd.Txn(ctx).If(absent(k.turn())).
		Then(clientv3.OpPut(k.turn(), "", clientv3.WithLease(lease.ID))).Commit()
	if err != nil {
		return false, s.conn.wrap(err, "take the turn")
	}
	if !done.Succeeded {
		s.conn.shared().StandDown(ctx, lease.ID)
	}
	return done.Succeeded, nil
}
