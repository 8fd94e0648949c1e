package sim

import (
	"context"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"time"

	"croft"
	"croft/compute"
)

// Usages implements compute.Meters. A simulated guest is busier and less busy in turns, from its boot on.
func (h *Hypervisor) Usages(context.Context) ([]compute.Usage, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []compute.Usage
	for _, id := range slices.Sorted(maps.Keys(h.guests)) {
		if g := h.guests[id]; g.Power == compute.PowerOn {
			list = append(list, g.usage(id, time.Since(g.Booted)))
		}
	}
	return list, nil
}

// Rates of a simulated guest, on average.
const (
	loadPerCPU   = 0.1      // of each processor
	firstMemory  = 0.25     // of its memory, at its boot
	laterMemory  = 0.5      // likewise, after some time
	diskReads    = 20       // per second
	diskWrites   = 8        // per second
	bytesPerRead = 16 << 10 // also per write
	netReceived  = 60_000   // bytes per second
	netSent      = 25_000   // bytes per second
)

// usage returns what a guest has used since its boot. It depends on the time alone, so that counters go on after a
// restart of the simulator.
func (g *guest) usage(id croft.InstanceID, since time.Duration) compute.Usage {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(id)) // never fails
	phase := float64(sum.Sum32()%1024) / 1024
	t := max(0, since.Seconds())
	// worked is t for a guest that always does the same. Its slope is from 0.2 to 1.8: a slow wave and a fast one.
	worked := max(0, t+0.5*wave(t, 3*time.Hour, phase)+0.3*wave(t, 13*time.Minute, phase))
	u := compute.Usage{Instance: id, CPU: time.Duration(worked * loadPerCPU * float64(max(1, g.Machine.VCPUs)) *
		float64(time.Second))}
	filled := firstMemory + (laterMemory-firstMemory)*t/(t+600)
	u.MemoryBytes = uint64(filled * float64(g.Machine.MemoryMiB<<20))
	u.DiskReads, u.DiskWrites = uint64(worked*diskReads), uint64(worked*diskWrites)
	u.DiskRead, u.DiskWritten = u.DiskReads*bytesPerRead, u.DiskWrites*bytesPerRead
	if len(g.Machine.NICs) > 0 {
		u.NetReceived, u.NetSent = uint64(worked*netReceived), uint64(worked*netSent)
	}
	return u
}

// wave returns the integral of a cosine from 0 to t.
func wave(t float64, period time.Duration, phase float64) float64 {
	w := 2 * math.Pi / period.Seconds()
	return (math.Sin(w*t+2*math.Pi*phase) - math.Sin(2*math.Pi*phase)) / w
}
