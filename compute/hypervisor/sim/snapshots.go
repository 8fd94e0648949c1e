package sim

import (
	"context"
	"slices"

	"croft"
	"croft/compute"
)

// layers returns the layers of a disk; nil: the guest has no such disk.
func (g *guest) layers(id croft.VolumeID) []compute.Layer {
	if id == compute.RootDisk {
		return slices.Clone(g.Machine.Disk)
	}
	i := g.volume(id)
	if i < 0 {
		return nil
	}
	return append([]compute.Layer{{Path: g.Machine.Volumes[i].Path, Format: "qcow2"}}, g.Machine.Volumes[i].Below...)
}

// setDisk replaces the layers of a disk. Copies of the machine do not change.
func (g *guest) setDisk(id croft.VolumeID, layers []compute.Layer) {
	if id == compute.RootDisk {
		g.Machine.Disk = slices.Clone(layers)
	} else if i := g.volume(id); i >= 0 {
		g.Machine.Volumes = slices.Clone(g.Machine.Volumes)
		g.Machine.Volumes[i].Path, g.Machine.Volumes[i].Below = layers[0].Path, slices.Clone(layers[1:])
	}
}

// Tops implements compute.Hypervisor.
func (h *Hypervisor) Tops(ctx context.Context, id croft.InstanceID) (map[croft.VolumeID]string, error) {
	return call(ctx, h, OpGet, id, func() (map[croft.VolumeID]string, error) {
		g, err := h.find(id)
		if err != nil {
			return nil, err
		}
		all := map[croft.VolumeID]string{compute.RootDisk: g.Machine.Disk[0].Path}
		for _, v := range g.Machine.Volumes {
			all[v.ID] = v.Path
		}
		return all, nil
	})
}

// PutOver implements compute.Hypervisor.
func (h *Hypervisor) PutOver(ctx context.Context, id croft.InstanceID, tops map[croft.VolumeID]string,
	quiesce bool) error {
	return h.do(ctx, OpPutOver, id, func() error {
		g, err := h.find(id)
		if err != nil {
			return err
		}
		if g.Power == compute.PowerOff {
			return errOff
		}
		if quiesce && !(g.Answers && g.Power == compute.PowerOn) {
			return compute.ErrNoAgent
		}
		for disk := range tops {
			if g.layers(disk) == nil {
				return croft.Errorf(croft.Conflict, "it does not have all of the disks")
			}
		}
		for disk, top := range tops {
			if layers := g.layers(disk); layers[0].Path != top {
				g.setDisk(disk, append([]compute.Layer{{Path: top, Format: "qcow2"}}, layers...))
			}
		}
		return h.saved(id)
	})
}

var errOff = croft.Errorf(croft.Conflict, "the guest is off")

// Thaw implements compute.Hypervisor.
func (h *Hypervisor) Thaw(ctx context.Context, id croft.InstanceID) error {
	return h.do(ctx, OpThaw, id, func() error {
		g, err := h.find(id)
		if err == nil && g.Power != compute.PowerOff && !g.Answers {
			err = compute.ErrNoAgent
		}
		return err
	})
}

// Merge implements compute.Hypervisor. Like QEMU it names the layer below in the header of the layer above.
func (h *Hypervisor) Merge(ctx context.Context, id croft.InstanceID, disk croft.VolumeID, layer, below string) (bool,
	error) {
	return call(ctx, h, OpMerge, id, func() (bool, error) {
		g, err := h.find(id)
		if err != nil {
			return false, err
		}
		if g.Power == compute.PowerOff {
			return false, errOff
		}
		layers := g.layers(disk)
		i := compute.LayerAt(layers, layer)
		if i >= 0 {
			if err := merge(layer, below); err != nil {
				return false, err
			}
		}
		if i > 0 {
			if err := rename(layers[i-1].Path, below); err != nil {
				return false, err
			}
		}
		if i >= 0 {
			g.setDisk(disk, slices.Delete(layers, i, i+1))
		}
		return true, h.saved(id)
	})
}

// Redefine implements compute.Hypervisor. A simulated guest has only a definition.
func (h *Hypervisor) Redefine(ctx context.Context, id croft.InstanceID, disks compute.Disks) error {
	return h.do(ctx, OpRedefine, id, func() error {
		g, err := h.find(id)
		if err != nil {
			return err
		}
		for disk, layers := range disks {
			g.setDisk(disk, layers)
		}
		return h.saved(id)
	})
}

// Answer gives a guest an agent, or takes it away.
func (h *Hypervisor) Answer(id croft.InstanceID, answers bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, err := h.find(id)
	if err == nil {
		g.Answers = answers
	}
	return err
}
