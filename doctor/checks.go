package doctor

import (
	"maps"
	"slices"
)

// Checks returns the checks for c, most basic first.
func Checks(c Config, p Probes) []Check {
	var checks []Check
	if c.Libvirt {
		checks = append(checks,
			Check{"machine", c.lookMachine},
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
		}
		if c.Bridge != "" {
			checks = append(checks, Check{"bridge", lookBridge(p, c.Bridge)})
		}
		for _, name := range slices.Sorted(maps.Keys(c.Named)) {
			if n := c.Named[name]; n.Bridge != "" {
				checks = append(checks, Check{"network " + name, lookBridge(p, n.Bridge)})
			} else {
				checks = append(checks, Check{"network " + name, lookNetwork(p, n.Network)})
			}
		}
		checks = append(checks, Check{"packet filter", c.lookFilter(p)})
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
