package node

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"croft/hypervisor/libvirt"
)

// startNetworks starts the networks of libvirt that guests may name, and checks the bridges: a missing bridge
// must fail the start, not the first guest that names it.
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
