package manager

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// clocksKept is how long a comparison of clocks is cached: many clusters may end at once.
const clocksKept = 30 * time.Second

// clocks caches whether the clocks of machines differ.
type clocks struct {
	check func(ctx context.Context) error
	log   *slog.Logger

	mu    sync.Mutex
	asked time.Time // zero: never
	err   error
}

// differ reports whether the clocks differ, so that nothing may be removed or given up because of the time.
func (c *clocks) differ(ctx context.Context) bool {
	if c.check == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.asked.IsZero() && time.Since(c.asked) < clocksKept {
		return c.err != nil
	}
	c.err = c.check(ctx)
	if c.asked = time.Now(); c.err != nil && ctx.Err() == nil {
		c.log.Warn("clusters whose time may be over are kept", "err", c.err)
	}
	return c.err != nil
}
