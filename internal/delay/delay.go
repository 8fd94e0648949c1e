// Package delay waits for a time, but no longer than a context lasts.
package delay

import (
	"context"
	"math/rand/v2"
	"time"
)

// For waits for d, or returns ctx's error if ctx ends first.
func For(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Every calls do after each interval until ctx ends. Intervals are randomly up to a tenth longer, so that many
// processes do not act at the same time.
func Every(ctx context.Context, interval time.Duration, do func(context.Context)) {
	for For(ctx, interval+rand.N(interval/10+1)) == nil {
		do(ctx)
	}
}
