package sim

import (
	"context"
	"slices"

	"croft"
	"croft/compute"
)

// Volumes implements compute.Hypervisor.
func (h *Hypervisor) Volumes(ctx context.Context, id croft.InstanceID) ([]croft.VolumeID, error) {
	return call(ctx, h, OpGet, id, func() (all []croft.VolumeID, err error) {
		g, err := h.find(id)
		if err != nil {
			return nil, err
		}
		for _, v := range g.Machine.Volumes {
			all = append(all, v.ID)
		}
		slices.Sort(all)
		return all, nil
	})
}

// Attach implements compute.Hypervisor.
func (h *Hypervisor) Attach(ctx context.Context, id croft.InstanceID, v compute.Volume) error {
	return h.do(ctx, OpAttach, id, func() error {
		g, err := h.find(id)
		if err != nil || g.volume(v.ID) >= 0 {
			return err
		}
		g.Machine.Volumes = append(slices.Clip(g.Machine.Volumes), v)
		return h.saved(id)
	})
}

// Detach implements compute.Hypervisor.
func (h *Hypervisor) Detach(ctx context.Context, id croft.InstanceID, v croft.VolumeID) error {
	return h.do(ctx, OpDetach, id, func() error {
		g, err := h.find(id)
		if err != nil || g.volume(v) < 0 {
			return err
		}
		if g.Clinging && g.Power != compute.PowerOff {
			return croft.Errorf(croft.Unavailable, "the guest has not released it; %s", compute.ReleaseRemedy)
		}
		i := g.volume(v)
		g.Machine.Volumes = slices.Delete(slices.Clone(g.Machine.Volumes), i, i+1)
		return h.saved(id)
	})
}

// Cling makes a guest release no volume while it runs, or again release them.
func (h *Hypervisor) Cling(id croft.InstanceID, clings bool) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	g, err := h.find(id)
	if err == nil {
		g.Clinging = clings
	}
	return err
}

// Grow implements compute.Hypervisor.
func (h *Hypervisor) Grow(ctx context.Context, id croft.InstanceID, v croft.VolumeID, _ int64) (bool, error) {
	return call(ctx, h, OpGrow, id, func() (bool, error) {
		g, err := h.find(id)
		return err == nil && g.Power != compute.PowerOff && (v == "" || g.volume(v) >= 0), err
	})
}

// Resize implements compute.Hypervisor.
func (h *Hypervisor) Resize(ctx context.Context, id croft.InstanceID, vcpus, memory int64) error {
	return h.do(ctx, OpResize, id, func() error {
		g, err := h.find(id)
		if err != nil {
			return err
		}
		g.Machine.VCPUs, g.Machine.MemoryMiB = vcpus, memory
		return h.saved(id)
	})
}

// volume returns the position of a volume; -1: the guest does not have it.
func (g *guest) volume(id croft.VolumeID) int {
	return slices.IndexFunc(g.Machine.Volumes, func(v compute.Volume) bool { return v.ID == id })
}
