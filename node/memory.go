package node

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// smallMemory is what a control process of some thousand hosts stays within, beside
	// the program itself.
	smallMemory = 120 << 20
	// smallLive is how much of it may live. Beyond that, the limit would have the
	// garbage collector run all the time.
	smallLive = smallMemory * 3 / 4
)

// LimitMemory keeps the process within smallMemory for as long as that is easy, until
// ctx ends: the collector would let the heap double, and be slow to give back what a
// start took. The environment's GOGC and GOMEMLIMIT count more.
func LimitMemory(ctx context.Context) error {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		<-ctx.Done()
		return nil
	}
	defer debug.SetMemoryLimit(math.MaxInt64)
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	for {
		metrics.Read(live)
		limit := int64(math.MaxInt64)
		if live[0].Value.Uint64() < smallLive {
			limit = smallMemory
		}
		debug.SetMemoryLimit(limit)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(2 * time.Second):
		}
	}
}
