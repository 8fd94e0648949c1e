package node

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"croft/compute"
	"croft/hypervisor/libvirt"
)

// nics are the interfaces of guests that name no networks: the libvirt network,
// then the bridge.
func (h *host) nics() []compute.NIC {
	var all []compute.NIC
	if h.settings.Network.Name != "" {
		all = append(all, compute.NIC{Network: h.settings.Network.Name})
	}
	if h.settings.Network.Bridge != "" {
		all = append(all, compute.NIC{Bridge: h.settings.Network.Bridge})
	}
	return all
}

// networks are what guests may name.
func (h *host) networks() map[string]compute.NIC {
	all := map[string]compute.NIC{}
	for name, n := range h.settings.Networks {
		all[name] = compute.NIC{Network: n.Network, Bridge: n.Bridge}
	}
	return all
}

// startNetworks starts those of libvirt's networks that guests may name, and looks for
// the bridges, so that one which is not there is told now and not to the first guest.
func (h *host) startNetworks(ctx context.Context, hv *libvirt.Driver) error {
	if bridge := h.settings.Network.Bridge; bridge != "" {
		if err := hv.Bridge(bridge); err != nil {
			return fmt.Errorf("network.bridge: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(h.settings.Networks)) {
		n := h.settings.Networks[name]
		var err error
		if n.Network != "" {
			_, err = hv.Network(ctx, n.Network)
		} else {
			err = hv.Bridge(n.Bridge)
		}
		if err != nil {
			return fmt.Errorf("networks.%s: %w", name, err)
		}
	}
	return nil
}
