package hvtest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"croft"
	"croft/compute"
)

// volume returns a volume in the directory of a machine.
func volume(b bench, m compute.Machine) compute.Volume {
	b.Helper()
	id := croft.NewVolumeID()
	v := compute.Volume{ID: id, Path: filepath.Join(filepath.Dir(m.Disk[0].Path), string(id)), Serial: "data"}
	b.must(os.WriteFile(v.Path, emptyQcow2, 0o600))
	return v
}

// emptyQcow2 is a disk of 1 MiB.
var emptyQcow2 = func() []byte {
	disk := make([]byte, 4<<16)
	copy(disk, "QFI\xfb\x00\x00\x00\x03")
	for at, b := range map[int]byte{
		23: 16, 29: 0x10, 39: 1, 45: 3, 53: 1, 59: 1, 99: 4, 103: 104, // bits, size, L1, refcount table, their order
		1<<16 + 5: 2, 2<<16 + 1: 1, 2<<16 + 3: 1, 2<<16 + 5: 1, 2<<16 + 7: 1,
	} {
		disk[at] = b
	}
	return disk
}()

// has checks which volumes a domain has.
func (b bench) has(id croft.InstanceID, want ...croft.VolumeID) {
	b.Helper()
	got, err := b.hv.Volumes(b.ctx, id)
	b.must(err)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		b.Errorf("it has the volumes %v, want %v", got, want)
	}
}

func (s Suite) volumes(t *testing.T) {
	b := s.bench(t)
	m := s.machine(b)
	first, second := volume(b, m), volume(b, m)
	m.Volumes = []compute.Volume{first}
	b.must(b.hv.Define(b.ctx, m))
	b.has(m.ID, first.ID)
	for range 2 {
		b.must(b.hv.Attach(b.ctx, m.ID, second))
		b.has(m.ID, first.ID, second.ID)
	}
	if grown, err := b.hv.Grow(b.ctx, m.ID, second.ID, 1); grown || err != nil {
		t.Errorf("a volume of a guest that is off: grown %v, %v", grown, err)
	}
	b.must(b.hv.Start(b.ctx, m.ID))
	b.has(m.ID, first.ID, second.ID)
	for range 2 {
		grown, err := b.hv.Grow(b.ctx, m.ID, second.ID, 1)
		if b.must(err); !grown {
			t.Error("a volume of a guest that runs is not grown")
		}
	}
	if grown, err := b.hv.Grow(b.ctx, m.ID, croft.NewVolumeID(), 1); grown || err != nil {
		t.Errorf("a volume that the guest does not have: grown %v, %v", grown, err)
	}
	b.must(b.hv.Stop(b.ctx, m.ID))
	for range 2 {
		b.must(b.hv.Detach(b.ctx, m.ID, first.ID))
		b.has(m.ID, second.ID)
	}
	m.Volumes = nil
	m.Generation++
	b.must(b.hv.Define(b.ctx, m))
	b.has(m.ID)
}

func (s Suite) volumesWhileItRuns(t *testing.T) {
	b := s.bench(t)
	m := s.machine(b)
	v := volume(b, m)
	b.must(b.hv.Define(b.ctx, m))
	b.must(b.hv.Start(b.ctx, m.ID))
	for range 2 {
		b.must(b.hv.Attach(b.ctx, m.ID, v))
		b.has(m.ID, v.ID)
	}
	// A guest that does not answer keeps the volume until it is off.
	if err := b.hv.Detach(b.ctx, m.ID, v.ID); err != nil {
		b.kind(err, croft.Unavailable)
		b.has(m.ID, v.ID)
		b.kind(b.hv.Detach(b.ctx, m.ID, v.ID), croft.Unavailable)
	}
	b.must(b.hv.Stop(b.ctx, m.ID))
	b.must(b.hv.Detach(b.ctx, m.ID, v.ID))
	b.has(m.ID)
	b.must(b.hv.Start(b.ctx, m.ID))
	b.has(m.ID)
}

func (s Suite) volumesOfNothing(t *testing.T) {
	b := s.bench(t)
	id := croft.NewInstanceID()
	_, err := b.hv.Volumes(b.ctx, id)
	b.kind(err, croft.NotFound)
	b.kind(b.hv.Attach(b.ctx, id, compute.Volume{ID: croft.NewVolumeID(), Path: "/nowhere"}), croft.NotFound)
	b.kind(b.hv.Detach(b.ctx, id, croft.NewVolumeID()), croft.NotFound)
	_, err = b.hv.Grow(b.ctx, id, croft.NewVolumeID(), 1)
	b.kind(err, croft.NotFound)
}
