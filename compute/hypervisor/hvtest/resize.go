package hvtest

import (
	"testing"

	"croft"
)

func (s Suite) resize(t *testing.T) {
	b := s.bench(t)
	m := s.machine(b)
	b.kind(b.hv.Resize(b.ctx, m.ID, 1, 64), croft.NotFound)
	b.must(b.hv.Define(b.ctx, m))
	for range 2 {
		b.must(b.hv.Resize(b.ctx, m.ID, m.VCPUs+1, m.MemoryMiB+64))
	}
	b.must(b.hv.Resize(b.ctx, m.ID, m.VCPUs+1, m.MemoryMiB))
	if grown, err := b.hv.Grow(b.ctx, m.ID, "", 1); grown || err != nil {
		t.Errorf("the disk of a guest that is off: grown %v, %v", grown, err)
	}
	b.must(b.hv.Start(b.ctx, m.ID))
	for range 2 {
		grown, err := b.hv.Grow(b.ctx, m.ID, "", 1)
		if b.must(err); !grown {
			t.Error("the disk of a guest that runs is not grown")
		}
	}
	b.must(b.hv.Resize(b.ctx, m.ID, m.VCPUs, m.MemoryMiB+32))
	b.must(b.hv.Mark(b.ctx, m.ID, m.Ordered))
	b.must(b.hv.Stop(b.ctx, m.ID))
	b.must(b.hv.Start(b.ctx, m.ID))
}
