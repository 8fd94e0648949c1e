package hvtest

import (
	"slices"
	"testing"
	"time"

	"croft"
	"croft/compute"
)

func (s Suite) usages(t *testing.T) {
	b := s.bench(t)
	meters, ok := b.hv.(compute.Meters)
	if !ok {
		t.Fatal("this hypervisor cannot measure the usage of its guests")
	}
	m := s.machine(b)
	b.must(b.hv.Define(b.ctx, m))
	if _, there := b.usage(meters, m.ID); there {
		t.Error("a guest that is off uses something")
	}
	b.must(b.hv.Start(b.ctx, m.ID))
	first := b.awaitUsage(meters, m.ID, func(u compute.Usage) bool { return u.CPU > 0 && u.MemoryBytes > 0 })
	b.awaitUsage(meters, m.ID, func(u compute.Usage) bool {
		return u.CPU > first.CPU && !u.Busy && u.DiskReads > 0 && u.DiskRead > 0 // the firmware reads from the disk
	})
	b.must(b.hv.Remove(b.ctx, m.ID))
	if _, there := b.usage(meters, m.ID); there {
		t.Error("a guest that is removed uses something")
	}
}

// usage returns the guest's current usage, if reported.
func (b bench) usage(meters compute.Meters, id croft.InstanceID) (u compute.Usage, there bool) {
	b.Helper()
	all, err := meters.Usages(b.ctx)
	b.must(err)
	i := slices.IndexFunc(all, func(u compute.Usage) bool { return u.Instance == id })
	if i < 0 {
		return u, false
	}
	return all[i], true
}

// awaitUsage waits until enough accepts a guest's usage, and returns it.
func (b bench) awaitUsage(meters compute.Meters, id croft.InstanceID, enough func(compute.Usage) bool) compute.Usage {
	b.Helper()
	for {
		u, there := b.usage(meters, id)
		if there && enough(u) {
			return u
		}
		select {
		case <-b.ctx.Done():
			b.Fatalf("the guest never used enough: %+v, told: %v", u, there)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
