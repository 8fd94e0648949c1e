package doctor

import (
	"context"
	"io/fs"
	"net/netip"
	"time"

	"croft"
)

// Probes are the functions through which checks read a host. System returns the probes that need no hypervisor; the
// caller adds KVM, Libvirt, Machines, Guests, CutOff, MetadataServer, Filter and Network.
type Probes struct {
	// KVM reports whether KVM runs a guest here, and why not.
	KVM func(ctx context.Context) (usable bool, reason string)
	// Libvirt connects and returns the versions of libvirt and QEMU, for people.
	Libvirt func(ctx context.Context) (string, error)
	// Machines returns the traits of the machines that libvirt runs.
	Machines func(ctx context.Context) ([]croft.Trait, error)
	// Guests returns the UUIDs of croft's guests in libvirt.
	Guests func(ctx context.Context) ([]string, error)
	// CutOff returns the UUIDs of croft's running guests with an interface that is on no bridge.
	CutOff func(ctx context.Context) ([]string, error)
	// MetadataServer returns the owner of the metadata server that a process runs on a bridge.
	MetadataServer func(ctx context.Context, bridge string, pid int32) (MetadataServer, error)
	// Filter returns why guests cannot be restricted to their addresses.
	Filter func(ctx context.Context) error
	// Network describes a libvirt network and starts nothing.
	Network func(ctx context.Context, name string) (Network, error)

	File      func(path string) (File, error)      // fs.ErrNotExist: no such file
	LookPath  func(program string) (string, error) // an error: not installed
	Writable  func(dir string) error               // nil: files can be created in it
	DiskFree  func(dir string) (uint64, error)     // bytes
	Memory    func(ctx context.Context) (available, total uint64, err error)
	Links     func() ([]Link, error) // network interfaces
	Listeners func(ctx context.Context) ([]Listener, error)
	Clock     func() (Clock, error)
}

// MetadataServer is a metadata server of croft.
type MetadataServer struct {
	Cloud   string // its partition
	Ours    bool   // it serves this host's cloud
	Sibling string // UUID of the other host whose agent it belongs to; empty: this host's, or unknown
}

// Network is a libvirt network.
type Network struct {
	Defined bool
	Active  bool
	Bridge  string
	Subnet  netip.Prefix // the subnet of the host's own address on it
}

// File is the relevant part of a file's permissions.
type File struct {
	Mode  fs.FileMode
	Owner string // names if known, else numbers
	Group string
}

// Link is a network interface with its addresses.
type Link struct {
	Name      string
	Addresses []netip.Prefix
}

// Listener is a listening TCP socket.
type Listener struct {
	Addr    netip.AddrPort
	PID     int32  // 0: the process is not visible to us
	Program string // its name, or empty
}

// Clock is the kernel's view of the clock.
type Clock struct {
	Synchronised bool
	MaxError     time.Duration
}
