package doctor

import (
	"maps"
	"slices"

	"croft/internal/checks"
)

// Checks returns the checks for c, most basic first.
func Checks(c Config, p Probes) []checks.Check {
	var all []checks.Check
	if c.Libvirt {
		all = append(all,
			checks.Check{Name: "machine", Look: c.lookMachine},
			checks.Check{Name: "kvm", Look: c.lookKVM(p)},
			checks.Check{Name: "qemu", Look: lookProgram(p, qemu[c.native()].program, qemu[c.native()].debianPackage)},
			checks.Check{Name: "libvirt", Look: lookLibvirt(p)},
			checks.Check{Name: "machines", Look: c.lookMachines(p)},
			checks.Check{Name: "tun", Look: lookTun(p)},
			checks.Check{Name: "guests", Look: c.lookGuests(p)},
		)
		if c.Network != "" {
			all = append(all,
				checks.Check{Name: "dnsmasq", Look: lookProgram(p, "dnsmasq", "dnsmasq-base")},
				checks.Check{Name: "network", Look: lookNetwork(p, c.Network)},
			)
		}
		if c.Bridge != "" {
			all = append(all, checks.Check{Name: "bridge", Look: lookBridge(p, c.Bridge)})
		}
		for _, name := range slices.Sorted(maps.Keys(c.Named)) {
			if n := c.Named[name]; n.Bridge != "" {
				all = append(all, checks.Check{Name: "network " + name, Look: lookBridge(p, n.Bridge)})
			} else {
				all = append(all, checks.Check{Name: "network " + name, Look: lookNetwork(p, n.Network)})
			}
		}
		all = append(all, checks.Check{Name: "packet filter", Look: c.lookFilter(p)})
	}
	if c.Metadata {
		all = append(all, checks.Check{Name: "metadata", Look: c.lookMetadata(p)})
	}
	all = append(all,
		checks.Check{Name: "state", Look: c.lookState(p)},
		checks.Check{Name: "disk", Look: lookDisk(p, c.StateDir)},
		checks.Check{Name: "memory", Look: lookMemory(p)},
	)
	for _, port := range c.Ports {
		all = append(all, checks.Check{Name: "port " + port.Use, Look: c.lookPort(p, port)})
	}
	return append(all, checks.Check{Name: "clock", Look: lookClock(p)})
}
