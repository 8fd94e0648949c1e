package compute

import (
	"context"
	"io"
	"net/netip"
	"slices"

	"croft"
	"croft/audit"
)

// Orders is where the agent reads its orders and writes its observations.
type Orders interface {
	// WatchOrders calls wake for the instance of every existing order of the host, then for every order that changes or
	// disappears. It lists again after a compaction or a lost connection, and returns only when ctx ends.
	WatchOrders(ctx context.Context, host croft.HostID, wake func(croft.InstanceID)) error
	// Order returns the stored order. NotFound: there is no order.
	Order(ctx context.Context, host croft.HostID, id croft.InstanceID) (croft.Order, error)
	// Remains reports whether a host that an instance was moved away from may still have something of it: the
	// host has an order for it and is not forgotten.
	Remains(ctx context.Context, host croft.HostID, id croft.InstanceID) (bool, error)
	// Observed returns the last stored observation. NotFound: there is no observation.
	Observed(ctx context.Context, host croft.HostID, id croft.InstanceID) (croft.Observation, error)
	// Observe stores an observation. Conflict: the order is gone, nothing is stored.
	Observe(ctx context.Context, o croft.Observation) error
	// Forget removes the order, observation, record and name of an instance whose tombstone has been carried
	// out, in one transaction. Conflict: the order changed meanwhile, nothing is removed.
	Forget(ctx context.Context, o croft.Order) error
}

// Registry is where the agent registers its host.
type Registry interface {
	// PutHost stores the host's record except Drained, Alive and Seen.
	PutHost(ctx context.Context, h croft.Host) error
	// Hosts returns those of the named hosts that exist.
	Hosts(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error)
	// Serve makes me the agent of its host while ctx lives and no agent of another place holds the agent lock, and
	// makes the host alive once known is closed. It replaces a lost lease, and gives all of that up when ctx ends.
	// acquired is called with nil whenever me becomes the host's agent, which it gives up for a while if acquired
	// returns false; and with the rival when another agent holds the lock, which Serve waits for.
	Serve(ctx context.Context, me croft.Agent, known <-chan struct{}, acquired func(rival *croft.Agent) bool) error
}

// Records is what the agent reads and removes of its own host's records.
type Records interface {
	// Instance returns a record. NotFound: there is no record.
	Instance(ctx context.Context, id croft.InstanceID) (croft.Instance, error)
	// HostEvidence returns a host's orders and observations, and the records of their instances and of more.
	HostEvidence(ctx context.Context, host croft.HostID, more ...croft.InstanceID) (audit.Evidence, error)
	// Drop removes an order or observation without an instance, unless it changed meanwhile.
	Drop(ctx context.Context, d audit.Difference) error
}

// Inventory is the part of the Placement API that the agent needs.
type Inventory interface {
	// EnsureProvider creates the provider or updates its name, inventories, traits and aggregates to match p;
	// it writes nothing that matches already.
	EnsureProvider(ctx context.Context, p croft.Provider) error
	// Claims returns the allocations against a provider, by consumer. NotFound: there is no such provider.
	Claims(ctx context.Context, host croft.HostID) (map[croft.InstanceID]croft.Resources, error)
	// Release removes what an instance claims on the hosts that may names, if may permits that, from the claim as it
	// was read before may was asked. Conflict: the claim has changed since. A missing claim is no error.
	Release(ctx context.Context, id croft.InstanceID, may croft.Permit) error
}

// Hypervisor is the part of libvirt that the agent needs. All methods but Watch are idempotent: they succeed
// if their result exists already.
type Hypervisor interface {
	// List returns the domains that croft made on this host, of all partitions.
	List(ctx context.Context) ([]Domain, error)
	// Get returns one of them. NotFound: there is no such domain.
	Get(ctx context.Context, id croft.InstanceID) (Domain, error)
	// Define makes the domain persistent, shut off. A domain with the same definition is left as it is.
	Define(ctx context.Context, m Machine) error
	// Mark sets the mark of a defined domain and, unless it is off, the generation that it was started for.
	// NotFound: it is not defined.
	Mark(ctx context.Context, id croft.InstanceID, m Ordered) error
	// Start boots a defined domain for its generation. NotFound: it is not defined.
	Start(ctx context.Context, id croft.InstanceID) error
	// Stop asks the guest to power off, and cuts the power when ctx ends or the hypervisor's grace period is over.
	Stop(ctx context.Context, id croft.InstanceID) error
	// Remove cuts the power, removes the definition and releases the guest's DHCP leases. A missing domain is success.
	Remove(ctx context.Context, id croft.InstanceID) error
	// Watch calls wake when a domain's state or addresses changed, or may have. It reconnects, and returns
	// only when ctx ends.
	Watch(ctx context.Context, wake func(croft.InstanceID)) error
}

// Bridged is a hypervisor whose guests may lose their networks while they run.
type Bridged interface {
	// CutOff returns the running instances that have lost a network.
	CutOff() []croft.InstanceID
}

// Consoles is a hypervisor whose guests have an interactive serial console.
type Consoles interface {
	// OpenConsole attaches exclusively to the console of a running guest, until it is closed or the guest is
	// off, which reads as io.EOF. Read and Write may run concurrently; Close ends both. Conflict: another
	// client is attached, or the guest is off. NotFound: there is no such instance.
	OpenConsole(ctx context.Context, id croft.InstanceID) (io.ReadWriteCloser, error)
}

// Images fetches images and makes disks from them.
type Images interface {
	// Fetch returns the image from the cache, after fetching, verifying and inspecting it if needed. Invalid:
	// the reference, the checksum or the file is bad. NotFound: there is nothing at the address. Unavailable:
	// it may answer later.
	Fetch(ctx context.Context, ref string, progress func(croft.Progress)) (Image, error)
	// FetchPublic is Fetch for a reference that a tenant chose: it connects to addresses of the internet alone, and
	// checks where the reference leads before it returns an image from the cache. Invalid: the reference leads
	// elsewhere.
	FetchPublic(ctx context.Context, ref string, progress func(croft.Progress)) (Image, error)
	// Disk makes an overlay of sizeGB GiB over the image in dir, or keeps the existing one. Invalid: the
	// image's virtual size is greater.
	Disk(ctx context.Context, img Image, dir string, sizeGB int64) ([]Layer, error)
}

// Seeds makes metadata disks for guests that read their metadata from one. Nil: the metadata server is the only source.
type Seeds interface {
	// Source returns where the order's instance finds its metadata, never MetadataAuto. Invalid: this host
	// cannot provide what the order asks for.
	Source(o croft.Order) (croft.Metadata, error)
	// WriteSeed writes the disk, for sources other than the server.
	WriteSeed(ctx context.Context, w io.Writer, o croft.Order) error
}

// Image is a verified file in the cache.
type Image struct {
	Path        string // absolute
	Format      string // qcow2 or raw, from the file's own header
	VirtualSize int64  // bytes
	Digest      string // sha256, hex, of that file, which may have been unpacked after the fetch
}

// Layer is one file of a disk's backing chain, topmost first.
type Layer struct {
	Path   string // absolute
	Format string // qcow2 or raw
}

// Ordered is what a domain carries of the order that it carries out.
type Ordered struct {
	Generation int64
	// guests of other projects on the host are kept from it; empty: an earlier croft defined it
	Project croft.Project
	Open    []string // ports that they reach nevertheless, as in croft.Spec
}

// Equal reports whether two of them say the same.
func (m Ordered) Equal(other Ordered) bool {
	return m.Generation == other.Generation && m.Project == other.Project && slices.Equal(m.Open, other.Open)
}

// OrderedBy returns what a domain that carries out an order carries of it.
func OrderedBy(o croft.Order) Ordered {
	return Ordered{Generation: o.Generation, Project: o.Project, Open: o.Spec.Open}
}

// Machine is the definition of a domain.
type Machine struct {
	ID        croft.InstanceID
	Partition croft.PartitionID
	Ordered
	Name      string // of the instance, for people; domains are named by ID
	VCPUs     int64
	MemoryMiB int64
	Disk      []Layer // the overlay first, then its backing files
	Seed      string  // path of an ISO; empty: no seed
	// where the guest looks for its metadata first; the machine's SMBIOS data depends on it
	Source  croft.Metadata
	Console string // path of the serial console's log
	NICs    []NIC
}

// NIC is one network interface: on a libvirt network or on a bridge of the host.
type NIC struct {
	MAC     string
	Network string // libvirt network, such as default
	Bridge  string // host bridge; used if Network is empty
}

// Power is whether a domain runs.
type Power string

// The powers of a domain. PowerPaused covers all states in which the domain has a process and the guest makes
// no progress.
const (
	PowerOn     Power = "on"
	PowerOff    Power = "off"
	PowerPaused Power = "paused"
)

// Domain is what the hypervisor knows of an instance.
type Domain struct {
	ID        croft.InstanceID
	Partition croft.PartitionID
	Ordered
	Power   Power
	Started int64 // the generation that it was last started for; 0: stopped since
	Crashed bool  // off because the guest or its process died, not by request
	// off because the guest powered itself off without a stop request; lost when the hypervisor restarts
	Halted    bool
	Addresses []netip.Addr
	Reserved  []netip.Addr // the guest's alone, whether it has requested them yet or not
}
