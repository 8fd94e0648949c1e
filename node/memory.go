package node

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"github.com/shirou/gopsutil/v3/mem"

	"croft/internal/delay"
)

const (
	// smallMemory is enough for the control process of a few thousand hosts, not including the program itself.
	smallMemory = 120 << 20
	// smallLive is the part of it that may be live. With more live memory, the limit would make the garbage collector
	// run continuously.
	smallLive = smallMemory * 3 / 4

	// largeMemory is the size to which the heap may grow while the process is busy, unless more is live; it is at most
	// the largeShare-th part of the machine's memory.
	largeMemory = 1 << 30
	largeShare  = 8
	// busyBytes is the allocation rate, in bytes per second, from which on the process counts as busy: some hundred
	// requests.
	busyBytes = 40 << 20

	frugalPercent, largePercent = 100, 400 // of GOGC
	memoryPeriod                = 2 * time.Second
)

// heapRule limits the growth of the heap between collections.
type heapRule struct {
	percent int   // of GOGC
	limit   int64 // of GOMEMLIMIT, bytes
}

// heapRuleFor returns the rule for a heap with live bytes and an allocation rate in bytes per second. An idle process
// stays within smallMemory while that is cheap: without a limit the collector would let the heap double, and return the
// memory of the start slowly. A busy process would spend a fifth of its time collecting; it may use up to large bytes
// instead.
func heapRuleFor(live, perSecond, large uint64) heapRule {
	r := heapRule{percent: frugalPercent, limit: math.MaxInt64}
	switch {
	case perSecond >= busyBytes:
		r.percent = min(max(frugalPercent, int(large*100/max(live, 1))-100), largePercent)
	case live < smallLive:
		r.limit = smallMemory
	}
	return r
}

// PaceCollector adjusts the garbage collector to the load of the process, until ctx ends. GOGC and GOMEMLIMIT in the
// environment take precedence.
func PaceCollector(ctx context.Context) error {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		<-ctx.Done()
		return nil
	}
	large := uint64(largeMemory)
	if machine, err := mem.VirtualMemory(); err == nil { // unknown: the constant
		large = min(large, machine.Total/largeShare)
	}
	defer debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetGCPercent(frugalPercent)
	now := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(now)
	for {
		before := now[1].Value.Uint64()
		metrics.Read(now)
		perSecond := (now[1].Value.Uint64() - before) / uint64(memoryPeriod/time.Second)
		r := heapRuleFor(now[0].Value.Uint64(), perSecond, large)
		debug.SetGCPercent(r.percent)
		debug.SetMemoryLimit(r.limit)
		if delay.For(ctx, memoryPeriod) != nil {
			return nil
		}
	}
}
