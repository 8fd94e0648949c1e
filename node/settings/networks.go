package settings

import (
	"maps"
	"slices"

	"croft"
)

// checkNetworks refuses networks that no guest could use.
func (s *Settings) checkNetworks() error {
	for _, name := range slices.Sorted(maps.Keys(s.Networks)) {
		if err := croft.CheckNetworkName(name); err != nil {
			return croft.Errorf(croft.Invalid, "networks: %w", err)
		}
		n := s.Networks[name]
		switch {
		case name == croft.DefaultNetworks:
			return croft.Errorf(croft.Invalid,
				"networks.%s: that name means the networks of the setting network: take another", name)
		case (n.Network == "") == (n.Bridge == ""):
			return croft.Errorf(croft.Invalid,
				"networks.%s: name either a network of libvirt (network) or a bridge of this host (bridge)", name)
		}
	}
	return nil
}
