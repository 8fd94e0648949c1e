package doctor

import (
	"net/netip"
)

// Config says what the host is to be looked at for.
type Config struct {
	StateDir string
	Libvirt  bool   // guests are libvirt's; false for simulated ones
	Network  string // the libvirt network of the guests; empty where a bridge of the host is used
	Bridge   string // that bridge
	VirtType string // auto, kvm or qemu
	Metadata bool   // this host serves metadata
	Ports    []Port // that croft listens on
}

// Port is an address that croft listens on, and what for.
type Port struct {
	Use  string // etcd, Placement ...
	Addr netip.AddrPort
}

// Checks returns what there is to look at, most basic first.
func Checks(c Config, p Probes) []Check {
	var checks []Check
	if c.Libvirt {
		checks = append(checks,
			Check{"kvm", c.lookKVM(p)},
			Check{"qemu", lookProgram(p, "qemu-system-x86_64", "qemu-system-x86")},
			Check{"libvirt", lookLibvirt(p)},
			Check{"tun", lookTun(p)},
			Check{"guests", c.lookGuests(p)},
		)
		if c.Network != "" {
			checks = append(checks,
				Check{"dnsmasq", lookProgram(p, "dnsmasq", "dnsmasq-base")},
				Check{"network", lookNetwork(p, c.Network)},
			)
		} else {
			checks = append(checks, Check{"bridge", lookBridge(p, c.Bridge)})
		}
	}
	if c.Metadata {
		checks = append(checks, Check{"metadata", c.lookMetadata(p)})
	}
	checks = append(checks,
		Check{"state", c.lookState(p)},
		Check{"disk", lookDisk(p, c.StateDir)},
		Check{"memory", lookMemory(p)},
	)
	for _, port := range c.Ports {
		checks = append(checks, Check{"port " + port.Use, lookPort(p, port)})
	}
	return append(checks, Check{"clock", lookClock(p)})
}
