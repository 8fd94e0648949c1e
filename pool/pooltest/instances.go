package pooltest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"croft"
	"croft/internal/delay"
	"croft/pool"
)

// Instances is a cloud whose machines belong to the World. A request that is unfinished when its server ends remains
// for the next one to continue.
type Instances struct{ *Hooks }

var _ pool.Instances = Instances{}

// Check implements pool.Instances; it accepts everything.
func (Instances) Check(pool.Instance) error { return nil }

// errCloud is the error of a failing cloud.
var errCloud = errors.New("the cloud is in trouble")

// Start implements pool.Instances.
func (h Instances) Start(ctx context.Context, r pool.Resource, i pool.Instance, farther func()) (pool.Started,
	error) {
	f := h.fate(pool.HookNew, i.Project)
	if err := delay.For(ctx, f.takes/2); err != nil {
		return pool.Started{}, err
	}
	if f.fails && !f.leaves {
		return pool.Started{}, errCloud
	}
	h.mu.Lock()
	if h.instance(r.Instance) == nil {
		h.add(r.Name, &machine{instance: r.Instance, pool: i.Project})
	}
	h.mu.Unlock()
	farther()
	if err := delay.For(ctx, f.takes-f.takes/2); err != nil {
		return pool.Started{}, err
	}
	if f.fails {
		return pool.Started{}, errCloud
	}
	return pool.Started{Address: "address of " + r.Name, Revision: int64(r.ID)}, nil
}

// Probe implements pool.Instances.
func (h Instances) Probe(_ context.Context, r pool.Resource, i pool.Instance) error {
	return h.lost(r, i)
}

// Destroy implements pool.Instances.
func (h Instances) Destroy(ctx context.Context, r pool.Resource, i pool.Instance) error {
	f := h.fate(pool.HookDelete, i.Project)
	if err := delay.For(ctx, f.takes); err != nil {
		return err
	}
	if f.fails {
		return errCloud
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, m := range h.machines {
		if m.instance == r.Instance {
			delete(h.machines, name)
		}
	}
	return nil
}

// Watch implements pool.Instances.
func (h Instances) Watch(ctx context.Context, changed func(time.Time, func(pool.Resource, pool.Instance) error)) error {
	for {
		h.mu.Lock()
		broke := h.broke
		h.mu.Unlock()
		changed(time.Now(), h.lost)
		select {
		case <-broke:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lost returns why an instance that was up is lost; nil: it is not.
func (h Instances) lost(r pool.Resource, _ pool.Instance) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch m := h.instance(r.Instance); {
	case m == nil:
		return fmt.Errorf("%w: it is gone", pool.ErrLost)
	case m.dead:
		return fmt.Errorf("%w: it went off", pool.ErrLost)
	}
	return nil
}

// instance finds a machine; the caller holds the world's lock.
func (w *World) instance(id croft.InstanceID) *machine {
	for _, m := range w.machines {
		if m.instance == id {
			return m
		}
	}
	return nil
}
