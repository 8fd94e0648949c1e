package placementclient_test

import (
	"testing"

	"golang.org/x/sync/errgroup"

	"croft"
	"croft/etcdstore/etcdtest"
)

// BenchmarkCandidates reads 32 candidates of 200 hosts, as each request of a scheduler does.
func BenchmarkCandidates(b *testing.B) {
	client := newClient(b, serveOn(b, etcdtest.Start(b).Placement(0)))
	var work errgroup.Group
	for range 200 {
		id := croft.NewHostID()
		work.Go(func() error {
			return client.EnsureProvider(b.Context(), croft.Provider{
				ID: id, Name: string(id), Traits: []croft.Trait{"COMPUTE_NODE", "HW_CPU_X86_AVX2", "HW_CPU_X86_VMX",
					"HW_CPU_X86_SSE42", "CUSTOM_CROFT"},
				Inventories: map[croft.ResourceClass]croft.Inventory{croft.VCPU: {Total: 64},
					croft.MemoryMB: {Total: 1 << 20},
					croft.DiskGB:   {Total: 8000}},
			})
		})
	}
	if err := work.Wait(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if all, err := client.Candidates(b.Context(), "resources=VCPU:1,MEMORY_MB:256,DISK_GB:1",
			32); err != nil || len(all) != 32 {
			b.Fatalf("%d candidates, %v", len(all), err)
		}
	}
}
