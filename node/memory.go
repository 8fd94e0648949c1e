package node

import (
	"context"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
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

	// largeMemory is the size to which the process may grow while it is busy, unless more is live; it is at most the
	// largeShare-th part of the memory that the machine has, or that the cgroup allows.
	largeMemory = 1 << 30
	largeShare  = 8
	// busyBytes is the allocation rate, in bytes per second, from which on the process counts as busy: some hundred
	// requests.
	busyBytes = 40 << 20

	largePercent = 400 // of GOGC
	smallPercent = 100 // at least, with less than smallLive
	leastPercent = 50

	// betweenCollections is how often a process collects that allocates fast enough for more than leastPercent.
	betweenCollections = time.Second / 2
	memoryPeriod       = 2 * time.Second
)

// heapRule limits the growth of the heap between collections.
type heapRule struct {
	percent int   // of GOGC
	limit   int64 // of GOMEMLIMIT, bytes
}

// heapRuleFor returns the rule for a heap with live bytes and an allocation rate in bytes per second. An idle
// process stays within smallMemory while that is cheap: without a limit the collector would let the heap double,
// and return the memory of the start slowly. A process with more live memory than that may grow by half between
// collections, or by what it allocates within betweenCollections; while it is not busy, its limit makes it return
// what it had more before. With less a busy process would spend a fifth of its time collecting. large is a limit,
// so that the process stays within it also between two looks at its load. If more than three quarters of large are
// live, the limit is a third above live: with less the collector would run continuously.
func heapRuleFor(live, perSecond, large uint64) heapRule {
	percent := perSecond * uint64(betweenCollections) / uint64(time.Second) * 100 / max(live, 1)
	least := uint64(leastPercent)
	if live < smallLive {
		least = smallPercent
	}
	most := large * 100 / max(live, 1)
	most -= min(most, 100)
	r := heapRule{percent: int(max(least, min(percent, most, largePercent))), limit: int64(max(large, live+live/3))}
	switch {
	case perSecond >= busyBytes:
	case live < smallLive:
		r.limit = min(r.limit, smallMemory)
	default:
		r.limit = min(r.limit, int64(2*live))
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
	large := min(largeMemory, cgroupMemory(os.DirFS("/"))/largeShare)
	if machine, err := mem.VirtualMemory(); err == nil { // unknown: the constant
		large = min(large, machine.Total/largeShare)
	}
	defer debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetGCPercent(smallPercent)
	now := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(now)
	wasBusy := false
	for {
		before := now[1].Value.Uint64()
		metrics.Read(now)
		perSecond := (now[1].Value.Uint64() - before) / uint64(memoryPeriod/time.Second)
		busy := perSecond >= busyBytes
		if wasBusy && !busy { // otherwise an idle process keeps its garbage for up to two minutes
			runtime.GC()
			metrics.Read(now)
		}
		wasBusy = busy
		r := heapRuleFor(now[0].Value.Uint64(), perSecond, large)
		debug.SetGCPercent(r.percent)
		debug.SetMemoryLimit(r.limit)
		if delay.For(ctx, memoryPeriod) != nil {
			return nil
		}
	}
}

// cgroupMemory returns the smallest memory limit of this process's control groups, below the root of a file system;
// MaxUint64: no limit is known.
func cgroupMemory(root fs.FS) uint64 {
	least := uint64(math.MaxUint64)
	text, _ := fs.ReadFile(root, "proc/self/cgroup") // unreadable: not Linux, or not mounted
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		top, name := "sys/fs/cgroup", "memory.max"
		if slices.Contains(strings.Split(parts[1], ","), "memory") { // version 1
			top, name = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		}
		// In a container, the path may name a directory of the host, and only the top exists.
		for dir := path.Clean("/" + parts[2]); ; dir = path.Dir(dir) {
			limit, _ := fs.ReadFile(root, path.Join(top, dir, name))
			n, err := strconv.ParseUint(strings.TrimSpace(string(limit)), 10, 64)
			if err == nil { // otherwise it is "max", or there is none
				least = min(least, n)
			}
			if dir == "/" {
				break
			}
		}
	}
	return least
}
