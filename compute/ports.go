package compute

import (
	"context"
	"io"
	"net/netip"

	"croft"
	"croft/audit"
)

// Orders is where the agent reads what it is to do.
type Orders interface {
	// WatchOrders calls wake with the instance of every order of the host that
	// exists now, then of every one that changes or disappears. It lists again by
	// itself after a compaction or a lost connection, and returns only with ctx.
	WatchOrders(ctx context.Context, host croft.HostID, wake func(croft.InstanceID)) error
	// Order returns the order as it is stored now; NotFound where there is none.
	Order(ctx context.Context, host croft.HostID, id croft.InstanceID) (croft.Order, error)
	// Remains tells whether a host that an instance was moved away from may have something
	// of it still: it has an order about it, and is not forgotten.
	Remains(ctx context.Context, host croft.HostID, id croft.InstanceID) (bool, error)
	// Observed returns the observation that was stored last; NotFound where there is none.
	Observed(ctx context.Context, host croft.HostID, id croft.InstanceID) (croft.Observation, error)
	// Observe stores what the agent saw. Conflict: the order is gone, nothing is stored.
	Observe(ctx context.Context, o croft.Observation) error
	// Forget removes order, observation, record and name of an instance whose
	// tombstone has been carried out, in one transaction. Conflict: the order
	// changed meanwhile, nothing is removed.
	Forget(ctx context.Context, o croft.Order) error
}

// Registry is where the agent makes its host known.
type Registry interface {
	// PutHost stores the host's record; Drained, Alive and Seen are not part of it.
	PutHost(ctx context.Context, h croft.Host) error
	// Hosts returns the named hosts that exist.
	Hosts(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error)
	// Serve makes me the agent of my host while ctx lives and no agent of another
	// place is, and the host alive once known is closed; it takes a new lease when one
	// is lost, and ends all of that with ctx. seated is called with nil whenever I
	// become the host's agent, and gives that up for a while where it returns false;
	// with a rival where another is, who is waited for.
	Serve(ctx context.Context, me croft.Agent, known <-chan struct{}, seated func(rival *croft.Agent) bool) error
}

// Records is what the agent reads and removes of the records of its own host.
type Records interface {
	// Instance returns a record; NotFound where there is none.
	Instance(ctx context.Context, id croft.InstanceID) (croft.Instance, error)
	// HostEvidence returns orders and observations of a host, and the records of those
	// instances and of more.
	HostEvidence(ctx context.Context, host croft.HostID, more ...croft.InstanceID) (audit.Evidence, error)
	// Drop removes an order or an observation that belongs to no instance, unless it changed meanwhile.
	Drop(ctx context.Context, d audit.Difference) error
}

// Inventory is the part of the Placement API that the agent needs.
type Inventory interface {
	// EnsureProvider creates the provider or brings its name, inventories, traits
	// and aggregates to what p says; writes nothing where they already are.
	EnsureProvider(ctx context.Context, p croft.Provider) error
	// Claims returns the allocations against a provider, by consumer. NotFound: there is
	// no such provider.
	Claims(ctx context.Context, host croft.HostID) (map[croft.InstanceID]croft.Resources, error)
	// Release removes what an instance claims, where that is on one of the hosts, if any are named,
	// and unless it changes meanwhile; none is not an error. So it takes nothing from
	// another instance that got the UUID on another host.
	Release(ctx context.Context, id croft.InstanceID, on ...croft.HostID) error
}

// Hypervisor is the part of libvirt that the agent needs. All but Watch are
// idempotent: asking for what already is succeeds.
type Hypervisor interface {
	// List returns the domains that croft made on this host, of any partition.
	List(ctx context.Context) ([]Domain, error)
	// Get returns one of them; NotFound where there is none.
	Get(ctx context.Context, id croft.InstanceID) (Domain, error)
	// Define makes the domain persistent, shut off. One of the same definition stays as it is.
	Define(ctx context.Context, m Machine) error
	// Mark makes generation the one that a defined domain has, and, while it is not off,
	// the one that it was started for; NotFound where it is not defined.
	Mark(ctx context.Context, id croft.InstanceID, generation int64) error
	// Start boots a defined domain, for the generation that it has; NotFound where it is
	// not defined.
	Start(ctx context.Context, id croft.InstanceID) error
	// Stop asks the guest to power off and cuts the power when ctx ends or the
	// hypervisor's grace period is over.
	Stop(ctx context.Context, id croft.InstanceID) error
	// Remove cuts the power, removes the definition and gives the guest's DHCP leases
	// back; no such domain is success.
	Remove(ctx context.Context, id croft.InstanceID) error
	// Watch calls wake when a domain's life or addresses changed, or may have. It
	// reconnects by itself and returns only with ctx.
	Watch(ctx context.Context, wake func(croft.InstanceID)) error
}

// Consoles is a hypervisor whose guests have a serial console to type at.
type Consoles interface {
	// OpenConsole attaches to the console of a running guest, alone, until it is
	// closed or the guest is off, which reads as io.EOF. Reading and writing may
	// overlap, and Close ends both. Conflict: somebody else is attached, or it is
	// off. NotFound: there is no such instance.
	OpenConsole(ctx context.Context, id croft.InstanceID) (io.ReadWriteCloser, error)
}

// Images fetches images and makes disks of them.
type Images interface {
	// Fetch returns the image in the cache, fetching, verifying and inspecting it
	// first where needed. Invalid: the reference, the checksum or the file is bad.
	// NotFound: there is nothing at the address. Unavailable: it may answer later.
	Fetch(ctx context.Context, ref string, progress func(croft.Progress)) (Image, error)
	// Disk makes the overlay of size GiB over the image in dir, or leaves the one
	// that is there. Invalid: the image's virtual size is greater.
	Disk(ctx context.Context, img Image, dir string, sizeGB int64) ([]Layer, error)
}

// Seeds makes the disk with an instance's metadata for guests that read it from
// there. Nil where the metadata server is the only source.
type Seeds interface {
	// Source returns where the instance of an order finds its metadata, never
	// MetadataAuto. Invalid: not where the order wants it, on this host.
	Source(o croft.Order) (croft.Metadata, error)
	// WriteSeed writes the disk, for a source other than the server.
	WriteSeed(ctx context.Context, w io.Writer, o croft.Order) error
}

// Image is a verified file in the cache.
type Image struct {
	Path        string // absolute
	Format      string // qcow2 or raw, from the file's own header
	VirtualSize int64  // bytes
	Digest      string // sha256, hex, of that file, which may have been packed when it was fetched
}

// Layer is one file of a disk's backing chain, the topmost first.
type Layer struct {
	Path   string // absolute
	Format string // qcow2 or raw
}

// Machine is a domain as the agent wants it defined.
type Machine struct {
	ID         croft.InstanceID
	Partition  croft.PartitionID
	Generation int64
	Name       string // the instance's, for people; domains are named by ID
	VCPUs      int64
	MemoryMiB  int64
	Disk       []Layer // the overlay first, then what it stands on
	Seed       string  // path of an ISO, or empty
	// where the guest is to look for its metadata first; what the machine says of itself depends on it
	Source  croft.Metadata
	Console string // path of the serial console's log
	NICs    []NIC
}

// NIC is one network interface: on a libvirt network or on a bridge of the host.
type NIC struct {
	MAC     string
	Network string // libvirt network, such as default
	Bridge  string // host bridge; used where Network is empty
}

// Power is whether a domain runs.
type Power string

// The powers of a domain. PowerPaused covers every state in which the domain has a
// process and the guest makes no progress.
const (
	PowerOn     Power = "on"
	PowerOff    Power = "off"
	PowerPaused Power = "paused"
)

// Domain is what the hypervisor knows of an instance.
type Domain struct {
	ID         croft.InstanceID
	Partition  croft.PartitionID
	Generation int64 // of the order that defined it
	Power      Power
	Started    int64 // the generation that it was started for last; 0 where it was stopped since
	Crashed    bool  // off because the guest or its process died, not by request
	// off because the guest powered itself off, with nobody stopping it; forgotten by a hypervisor that restarts
	Halted    bool
	Addresses []netip.Addr
	Reserved  []netip.Addr // the guest's alone, whether it has asked for them yet or not
}
