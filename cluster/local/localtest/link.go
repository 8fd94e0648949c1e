// Package localtest simulates faults for the driver of the local site: a cloud that does not answer, loses an answer,
// has no room, or has given a name to another object.
package localtest

import (
	"context"
	"sync/atomic"

	"croft"
	"croft/schedule"
)

// Link is a driver's connection to its cloud. Its reads can be cut off.
type Link struct {
	schedule.View
	schedule.Registry
	Away, Hangs *atomic.Bool
	Left        *atomic.Int64 // number of calls until the cloud stops answering; nil: unlimited
}

// NewLink returns a connection that works.
func NewLink(v schedule.View, r schedule.Registry) Link {
	return Link{v, r, new(atomic.Bool), new(atomic.Bool), nil}
}

func (l Link) reach(ctx context.Context) error {
	switch {
	case l.Hangs.Load():
		<-ctx.Done()
		return ctx.Err()
	case l.Away.Load(), l.Left != nil && l.Left.Add(-1) < 0:
		return croft.Errorf(croft.Unavailable, "etcd does not answer")
	}
	return nil
}

// Find implements schedule.View.
func (l Link) Find(ctx context.Context, p croft.Project, idOrName string) (croft.Status, error) {
	if err := l.reach(ctx); err != nil {
		return croft.Status{}, err
	}
	return l.View.Find(ctx, p, idOrName)
}

// FindByID implements schedule.View.
func (l Link) FindByID(ctx context.Context, id croft.InstanceID) (croft.Status, error) {
	if err := l.reach(ctx); err != nil {
		return croft.Status{}, err
	}
	return l.View.FindByID(ctx, id)
}

// List implements schedule.View.
func (l Link) List(ctx context.Context, p croft.Project) ([]croft.Status, error) {
	if err := l.reach(ctx); err != nil {
		return nil, err
	}
	return l.View.List(ctx, p)
}

// Hosts implements schedule.Registry.
func (l Link) Hosts(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error) {
	if err := l.reach(ctx); err != nil {
		return nil, err
	}
	return l.Registry.Hosts(ctx, ids...)
}

// Writes are the writes of a process that can be cut off: the answer to the first write beyond the limit is lost, and
// later writes have no effect.
type Writes struct {
	schedule.Records
	schedule.Holds
	Over Link
}

func (w Writes) write(do func() (croft.Instance, error)) (inst croft.Instance, err error) {
	lost := w.Over.Left != nil && w.Over.Left.Load() == 0
	if err := w.Over.reach(context.Background()); err != nil && !lost {
		return inst, err
	}
	if inst, err = do(); lost {
		return croft.Instance{}, croft.Errorf(croft.Unavailable, "the answer is lost")
	}
	return inst, err
}

// Create implements schedule.Records.
func (w Writes) Create(ctx context.Context, inst croft.Instance) (croft.Instance, error) {
	return w.write(func() (croft.Instance, error) { return w.Records.Create(ctx, inst) })
}

// Fence implements schedule.Records.
func (w Writes) Fence(ctx context.Context, inst croft.Instance) (croft.Instance, error) {
	return w.write(func() (croft.Instance, error) { return w.Records.Fence(ctx, inst) })
}

// Discard implements schedule.Records.
func (w Writes) Discard(ctx context.Context, inst croft.Instance) error {
	_, err := w.write(func() (croft.Instance, error) { return inst, w.Records.Discard(ctx, inst) })
	return err
}

// Hold implements schedule.Holds.
func (w Writes) Hold(ctx context.Context, inst croft.Instance, host croft.HostID) (croft.Instance, error) {
	return w.write(func() (croft.Instance, error) { return w.Holds.Hold(ctx, inst, host) })
}

// Use implements schedule.Holds.
func (w Writes) Use(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error) {
	return w.write(func() (croft.Instance, error) { return w.Holds.Use(ctx, inst, o) })
}
