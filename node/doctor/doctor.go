// Package doctor checks whether a host meets the agent's needs, and reports in one line per check what it found and how
// to fix it. It changes nothing, and it reads the host only through Probes, so that every result can be tested on any
// machine.
package doctor

import (
	"net/netip"

	"croft"
)

// Config describes the purposes for which the host is checked.
type Config struct {
	StateDir string
	Running  int  // ID of the croft process that uses StateDir now; 0: none does
	Libvirt  bool // guests run in libvirt; false: simulated
	// the guests' libvirt network; empty: only a host bridge is used
	Network  string
	Bridge   string                  // the host bridge of the guests; empty: none
	Named    map[string]NamedNetwork // networks that guests may request by name
	Spoofing bool                    // guests may send from any address
	VirtType string                  // auto, kvm or qemu
	Metadata bool                    // this host serves metadata
	Arch     string                  // the machine's architecture in Go's notation
	Emulated []croft.Arch            // architectures of machines that it is to emulate
	Ports    []Port                  // ports on which croft listens
}

// NamedNetwork is a libvirt network or a host bridge.
type NamedNetwork struct{ Network, Bridge string }

// Port is a listening address of croft and its purpose.
type Port struct {
	Use  string // etcd, Placement ...
	Addr netip.AddrPort
}
