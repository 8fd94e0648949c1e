package hvtest

import (
	"encoding/binary"
	"errors"
	"maps"
	"os"
	"testing"

	"croft"
	"croft/compute"
)

// overlay makes an empty overlay of a disk that emptyQcow2 made.
func overlay(b bench, path, below string) compute.Layer {
	b.Helper()
	disk := append([]byte{}, emptyQcow2...)
	ext := binary.BigEndian.AppendUint32(nil, 0xe2792aca) // the format of the backing file
	ext = binary.BigEndian.AppendUint32(ext, 5)
	ext = append(ext, "qcow2\x00\x00\x00"...)
	ext = append(ext, make([]byte, 8)...)
	name := 104 + copy(disk[104:], ext)
	copy(disk[name:], below)
	binary.BigEndian.PutUint64(disk[8:], uint64(name))
	binary.BigEndian.PutUint32(disk[16:], uint32(len(below)))
	b.must(os.WriteFile(path, disk, 0o600))
	return layer(path)
}

func layer(path string) compute.Layer { return compute.Layer{Path: path, Format: "qcow2"} }

// topped checks the topmost files of a domain's disks.
func (b bench) topped(id croft.InstanceID, want map[croft.VolumeID]string) {
	b.Helper()
	got, err := b.hv.Tops(b.ctx, id)
	if b.must(err); !maps.Equal(got, want) {
		b.Fatalf("the topmost files are %v, want %v", got, want)
	}
}

// merge waits until a layer of the root disk is merged into the one below.
func (b bench) merge(id croft.InstanceID, what, below compute.Layer) {
	b.Helper()
	for {
		done, err := b.hv.Merge(b.ctx, id, compute.RootDisk, what.Path, below.Path)
		if b.must(err); done {
			return
		}
	}
}

func (s Suite) snapshots(t *testing.T) {
	b := s.bench(t)
	m := s.machine(b)
	root, data := layer(m.Disk[0].Path), volume(b, m)
	b.must(os.WriteFile(root.Path, emptyQcow2, 0o600))
	m.Disk, m.Volumes = []compute.Layer{root}, []compute.Volume{data}
	b.must(b.hv.Define(b.ctx, m))
	plain := map[croft.VolumeID]string{compute.RootDisk: root.Path, data.ID: data.Path}
	b.topped(m.ID, plain)
	first, beside := overlay(b, root.Path+".1", root.Path), overlay(b, data.Path+".1", data.Path)
	over := map[croft.VolumeID]string{compute.RootDisk: first.Path, data.ID: beside.Path}
	b.kind(b.hv.PutOver(b.ctx, m.ID, over, false), croft.Conflict)
	_, err := b.hv.Merge(b.ctx, m.ID, compute.RootDisk, first.Path, root.Path)
	b.kind(err, croft.Conflict)
	b.must(b.hv.Thaw(b.ctx, m.ID))
	b.must(b.hv.Start(b.ctx, m.ID))
	for _, err := range []error{b.hv.PutOver(b.ctx, m.ID, over, true), b.hv.Thaw(b.ctx, m.ID)} {
		if !errors.Is(err, compute.ErrNoAgent) {
			t.Errorf("a guest without an agent: %v", err)
		}
	}
	b.topped(m.ID, plain)
	b.kind(b.hv.PutOver(b.ctx, m.ID, map[croft.VolumeID]string{croft.NewVolumeID(): first.Path}, false), croft.Conflict)
	for range 2 {
		b.must(b.hv.PutOver(b.ctx, m.ID, over, false))
		b.topped(m.ID, over)
		b.must(b.hv.Redefine(b.ctx, m.ID, compute.Disks{compute.RootDisk: {first, root},
			data.ID: {beside, layer(data.Path)}}))
	}
	b.must(b.hv.Stop(b.ctx, m.ID))
	b.topped(m.ID, over)
	b.must(b.hv.Start(b.ctx, m.ID))
	b.topped(m.ID, over)

	second := overlay(b, root.Path+".2", first.Path)
	over[compute.RootDisk] = second.Path
	b.must(b.hv.PutOver(b.ctx, m.ID, map[croft.VolumeID]string{compute.RootDisk: second.Path}, false))
	b.topped(m.ID, over)
	for range 2 {
		b.merge(m.ID, first, root) // in the middle
		b.topped(m.ID, over)
		b.must(b.hv.Redefine(b.ctx, m.ID, compute.Disks{compute.RootDisk: {second, root}}))
	}
	b.must(os.Remove(first.Path))
	b.merge(m.ID, second, root) // on top
	over[compute.RootDisk] = root.Path
	b.topped(m.ID, over)
	b.must(b.hv.Redefine(b.ctx, m.ID, compute.Disks{compute.RootDisk: {root}}))
	b.must(os.Remove(second.Path))
	b.must(b.hv.Stop(b.ctx, m.ID))
	b.topped(m.ID, over)
	b.must(b.hv.Redefine(b.ctx, m.ID, compute.Disks{data.ID: {layer(data.Path)}}))
	b.topped(m.ID, plain)
	b.must(b.hv.Start(b.ctx, m.ID))
	b.has(m.ID, data.ID)
}

func (s Suite) disksOfNothing(t *testing.T) {
	b := s.bench(t)
	id := croft.NewInstanceID()
	_, err := b.hv.Tops(b.ctx, id)
	b.kind(err, croft.NotFound)
	b.kind(b.hv.PutOver(b.ctx, id, map[croft.VolumeID]string{compute.RootDisk: "/nowhere"}, false), croft.NotFound)
	b.kind(b.hv.Thaw(b.ctx, id), croft.NotFound)
	_, err = b.hv.Merge(b.ctx, id, compute.RootDisk, "/nowhere", "/below")
	b.kind(err, croft.NotFound)
	b.kind(b.hv.Redefine(b.ctx, id, compute.Disks{}), croft.NotFound)
}
