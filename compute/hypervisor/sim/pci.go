package sim

import (
	"context"
	"maps"
	"slices"

	"croft"
	"croft/compute"
)

// GivePCI implements compute.Hypervisor.
func (h *Hypervisor) GivePCI(ctx context.Context, id croft.InstanceID, devices []compute.PCI) error {
	return h.do(ctx, OpGive, id, func() error {
		g, err := h.find(id)
		if err != nil {
			return err
		}
		if g.Power != compute.PowerOff {
			return croft.Errorf(croft.Conflict, "instance %s is not off: its PCI devices stay", id)
		}
		g.Machine.PCI = devices
		return h.saved(id)
	})
}

// ForeignPCI implements compute.Hypervisor.
func (h *Hypervisor) ForeignPCI(ctx context.Context) (map[string]string, error) {
	return call(ctx, h, OpList, "", func() (map[string]string, error) { return maps.Clone(h.foreign), nil })
}

// TakePCI gives a PCI device to a machine that is not croft's, or takes it from that machine if name is empty. A device
// that a guest uses stays there.
func (h *Hypervisor) TakePCI(address, name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range h.guests {
		if g.Power != compute.PowerOff && g.hasPCI(address) {
			return
		}
	}
	if h.foreign == nil {
		h.foreign = map[string]string{}
	}
	h.foreign[address] = name
	maps.DeleteFunc(h.foreign, func(_, name string) bool { return name == "" })
}

// freePCI refuses a start with a device that another guest has, as libvirt does. The caller holds h.mu.
func (h *Hypervisor) freePCI(id croft.InstanceID, devices []compute.PCI) error {
	for _, unit := range devices {
		for _, address := range unit.Addresses {
			if name, taken := h.foreign[address]; taken {
				return inUse(id, address, name)
			}
			for other, g := range h.guests {
				if other != id && g.Power != compute.PowerOff && g.hasPCI(address) {
					return inUse(id, address, string(other))
				}
			}
		}
	}
	return nil
}

func (g *guest) hasPCI(address string) bool {
	return slices.ContainsFunc(g.Machine.PCI, func(p compute.PCI) bool { return slices.Contains(p.Addresses, address) })
}

func inUse(id croft.InstanceID, address, by string) error {
	return croft.Errorf(croft.Unavailable, "start instance %s: PCI device %s is in use by %s", id, address, by)
}
