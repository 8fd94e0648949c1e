package compute

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"croft"
)

// Resync examines every instance now, as the timer does, and waits until that is done.
func (a *Agent) Resync(ctx context.Context) {
	a.resync(ctx)
	a.workers.Wait()
}

// SweepNow sweeps records and host now, regardless of turns.
func (a *Agent) SweepNow(ctx context.Context) error {
	return errors.Join(a.caretaker.Sweep(ctx), a.sweepHost(ctx))
}

// Expire sets an instance's last start to long ago.
func (a *Agent) Expire(id croft.InstanceID) {
	a.workers.Wait()
	a.instances.remember(id).started = time.Time{}
}

// KnownCPUFlags lists the CPU flags that have a trait.
func KnownCPUFlags() []string { return slices.Sorted(maps.Keys(flagTraits)) }

// CatalogImage gets an image of the cloud's catalog from another host.
func (a *Agent) CatalogImage(ctx context.Context, id croft.ImageID) (CachedImage, error) {
	return a.catalogImage(ctx, id, "", func(croft.Progress) {})
}

// PassImage does what the order for a copy of an image wants, as an agent that holds its lock.
func (a *Agent) PassImage(ctx context.Context, id croft.ImageID) {
	a.locked.Store(true)
	a.passImage(ctx, id)
}
