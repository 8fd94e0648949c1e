package doctor

import (
	"context"
	"io/fs"
	"net/netip"
	"time"
)

// Probes are the questions that checks ask of a host. System answers all that
// need no hypervisor; whoever joins the parts adds KVM, Libvirt, Guests, MetadataServer
// and Network.
type Probes struct {
	// KVM tells whether KVM runs a guest here, and why not.
	KVM func(ctx context.Context) (usable bool, reason string)
	// Libvirt connects and returns the versions of libvirt and QEMU, for people.
	Libvirt func(ctx context.Context) (string, error)
	// Guests returns the UUIDs of croft's guests that libvirt has.
	Guests func(ctx context.Context) ([]string, error)
	// MetadataServer tells, of the process that serves metadata on a bridge, for which cloud
	// it does, and whether that is this host's.
	MetadataServer func(ctx context.Context, bridge string, pid int32) (cloud string, ours bool, err error)
	// Filter tells why guests cannot be held to their addresses.
	Filter func(ctx context.Context) error
	// Network looks at a network of libvirt's and starts nothing.
	Network func(ctx context.Context, name string) (Network, error)

	File      func(path string) (File, error)      // fs.ErrNotExist where there is none
	LookPath  func(program string) (string, error) // an error where it is not installed
	Writable  func(dir string) error               // nil where files can be made in it
	DiskFree  func(dir string) (uint64, error)     // bytes
	Memory    func(ctx context.Context) (available, total uint64, err error)
	Links     func() ([]Link, error) // network interfaces
	Listeners func(ctx context.Context) ([]Listener, error)
	Clock     func() (Clock, error)
}

// Network is a network of libvirt's.
type Network struct {
	Defined bool
	Active  bool
	Bridge  string
	Subnet  netip.Prefix // of the host's own address on it
}

// File is what matters of a file's permissions.
type File struct {
	Mode  fs.FileMode
	Owner string // names where they are known, numbers elsewhere
	Group string
}

// Link is a network interface with its addresses.
type Link struct {
	Name      string
	Addresses []netip.Prefix
}

// Listener is a TCP socket that somebody listens on.
type Listener struct {
	Addr    netip.AddrPort
	PID     int32  // 0 where the process is not ours to know
	Program string // its name, or empty
}

// Clock is what the kernel knows of the clock.
type Clock struct {
	Synchronised bool
	MaxError     time.Duration
}
