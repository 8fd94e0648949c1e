package doctor

import "net/netip"

// Config says what the host is to be looked at for.
type Config struct {
	StateDir string
	Libvirt  bool // guests are libvirt's; false for simulated ones
	// the libvirt network of the guests; empty where a bridge of the host is used alone
	Network  string
	Bridge   string                  // the bridge of the host that they are on, too; empty where there is none
	Named    map[string]NamedNetwork // that guests may ask for
	Spoofing bool                    // guests may send from any address
	VirtType string                  // auto, kvm or qemu
	Metadata bool                    // this host serves metadata
	Arch     string                  // of the machine, as Go names it
	Ports    []Port                  // that croft listens on
}

// NamedNetwork is a network of libvirt or a bridge of the host.
type NamedNetwork struct{ Network, Bridge string }

// Port is an address that croft listens on, and what for.
type Port struct {
	Use  string // etcd, Placement ...
	Addr netip.AddrPort
}
