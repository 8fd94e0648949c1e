package hvtest

import (
	"slices"
	"testing"

	"croft"
	"croft/compute"
)

// pci gives PCI devices to machines that are off. No machine has devices at these addresses, so none can start with
// them.
func (s Suite) pci(t *testing.T) {
	b := s.bench(t)
	gpu := compute.PCI{Class: "CUSTOM_PCI_GPU", Addresses: []string{"00ff:fe:1d.0", "00ff:fe:1d.1"}}
	card := compute.PCI{Class: "CUSTOM_PCI_NIC", Addresses: []string{"00ff:fe:1e.7"}}
	other := compute.PCI{Class: "CUSTOM_PCI_NIC", Addresses: []string{"00ff:fe:1f.0"}}
	m := s.machine(b)
	m.PCI = []compute.PCI{gpu, card}
	b.must(b.hv.Define(b.ctx, m))
	b.hasPCI(m.ID, gpu, card)
	b.must(b.hv.Resize(b.ctx, m.ID, 1, 48))
	b.must(b.hv.Mark(b.ctx, m.ID, compute.Ordered{Generation: 2}))
	b.hasPCI(m.ID, gpu, card)
	b.must(b.hv.GivePCI(b.ctx, m.ID, []compute.PCI{gpu, other}))
	b.hasPCI(m.ID, gpu, other)
	if got := b.get(m.ID).Generation; got != 2 {
		b.Errorf("its generation is %d then, want 2", got)
	}
	foreign, err := b.hv.ForeignPCI(b.ctx)
	b.must(err)
	for _, address := range gpu.Addresses {
		if name, has := foreign[address]; has {
			b.Errorf("the device %s counts as one of the foreign machine %q", address, name)
		}
	}
	m.Generation = 3
	b.must(b.hv.Define(b.ctx, m)) // as at first
	b.hasPCI(m.ID, gpu, card)
	b.must(b.hv.GivePCI(b.ctx, m.ID, nil))
	b.hasPCI(m.ID)
	b.must(b.hv.Start(b.ctx, m.ID))
	b.kind(b.hv.GivePCI(b.ctx, m.ID, []compute.PCI{card}), croft.Conflict)
	b.hasPCI(m.ID)
	b.kind(b.hv.GivePCI(b.ctx, croft.NewInstanceID(), nil), croft.NotFound)
}

func (b bench) hasPCI(id croft.InstanceID, want ...compute.PCI) {
	b.Helper()
	d, _ := b.listed(id)
	for _, got := range [][]compute.PCI{b.get(id).PCI, d.PCI} {
		if !slices.EqualFunc(got, want, compute.PCI.Equal) {
			b.Errorf("its PCI devices are %v, want %v", got, want)
		}
	}
}
