package compute

import (
	"context"
	"time"

	"croft"
)

// Resync looks at every instance now, as the timer does, and waits for the end.
func (a *Agent) Resync(ctx context.Context) {
	a.resync(ctx)
	a.workers.Wait()
}

// SweepNow sweeps now.
func (a *Agent) SweepNow(ctx context.Context) { a.sweep(ctx) }

// Expire makes an instance's last start one of long ago.
func (a *Agent) Expire(id croft.InstanceID) {
	a.workers.Wait()
	a.remember(id).started = time.Time{}
}
