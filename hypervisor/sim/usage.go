package sim

import (
	"context"
	"maps"
	"slices"
	"time"

	"croft/compute"
)

// Usages implements compute.Meters. From its boot on, a simulated guest uses all of its memory and a tenth of
// one CPU; it has no disk or network usage.
func (h *Hypervisor) Usages(context.Context) ([]compute.Usage, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var list []compute.Usage
	for _, id := range slices.Sorted(maps.Keys(h.guests)) {
		g := h.guests[id]
		if g.Power != compute.PowerOn {
			continue
		}
		list = append(list, compute.Usage{
			Instance: id, MemoryBytes: uint64(g.Machine.MemoryMiB) << 20, CPU: max(0, time.Since(g.Booted)/10),
		})
	}
	return list, nil
}
