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
	// smallMemory is enough for the control process of a few thousand hosts, not including the program itself.
	smallMemory = 120 << 20
	// smallLive is how much of it may be live. Beyond that, the memory limit would make the garbage collector run
	// continuously.
	smallLive = smallMemory * 3 / 4
)

// LimitMemory keeps the process within smallMemory while that is cheap, until ctx ends: without it the collector
// would let the heap double, and return memory of the start slowly. GOGC and GOMEMLIMIT in the environment take
// precedence.
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
