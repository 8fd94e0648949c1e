package compute

import (
	"context"
	"io"
	"net/netip"
	"slices"
	"time"

	"croft"
	"croft/compute/machine"
	"croft/hosts/audit"
)

// Orders is the store of the agent's orders and observations.
type Orders interface {
	// WatchOrders calls wake for the instance of every existing order of the host, then for every order that changes or
	// disappears. It lists again after a compaction or a lost connection, and returns only when ctx ends.
	WatchOrders(ctx context.Context, host croft.HostID, wake func(croft.InstanceID)) error
	// Order returns the stored order. NotFound: there is no order.
	Order(ctx context.Context, host croft.HostID, id croft.InstanceID) (croft.Order, error)
	// Remains reports whether a host from which an instance was moved may still have parts of it: the host has an order
	// for it, and is not forgotten.
	Remains(ctx context.Context, host croft.HostID, id croft.InstanceID) (bool, error)
	// Observed returns the last stored observation. NotFound: there is no observation.
	Observed(ctx context.Context, host croft.HostID, id croft.InstanceID) (croft.Observation, error)
	// Observe stores an observation. Conflict: the order is gone, nothing is stored.
	Observe(ctx context.Context, o croft.Observation) error
	// Origin returns the host that has the disk of an instance which the order lets arrive: its ID, name, API and
	// whether it is alive. NotFound: the order is none to arrive. Unavailable: that host is not on record.
	Origin(ctx context.Context, o croft.Order) (croft.Host, error)
	// Arrived ends the order to arrive: the instance is this host's from now on and gets the goal after the move, while
	// its former host keeps its copy of the disk until HandOver. With a failure, which the former host may report by
	// its order to leave, the instance stays where it was, and the target gets a tombstone. Conflict: order or record
	// changed meanwhile, nothing is written.
	Arrived(ctx context.Context, o croft.Order, failure string) error
	// HandOver makes the former host of the order's instance remove its copy of the disk, if it still has an order to
	// leave. Conflict: order or record changed meanwhile, nothing is written.
	HandOver(ctx context.Context, o croft.Order) error
	// Forget removes the order, observation, record and name of an instance whose tombstone has been carried
	// out, in one transaction. Conflict: the order changed meanwhile, nothing is removed.
	Forget(ctx context.Context, o croft.Order) error
}

// Registry is where the agent registers its host.
type Registry interface {
	// PutHost stores the host's record except Drained, Alive and Seen.
	PutHost(ctx context.Context, h croft.Host) error
	// Hosts returns the named hosts that exist.
	Hosts(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error)
	// Serve makes me the agent of its host while ctx lives and no agent of another place holds the agent lock, and
	// makes the host alive once known is closed. It replaces a lost lease, and gives up lock and lease when ctx ends.
	// acquired is called with nil whenever me gets the lock; if it returns false, Serve gives the lock up for some
	// time. When another agent holds the lock, acquired is called with that rival, and Serve waits for it.
	Serve(ctx context.Context, me croft.Agent, known <-chan struct{}, acquired func(rival *croft.Agent) bool) error
}

// Records is the part of the records that the agent reads, and the removal of its own host's records.
type Records interface {
	// Instance returns a record. NotFound: there is no record.
	Instance(ctx context.Context, id croft.InstanceID) (croft.Instance, error)
	// HostEvidence returns a host's orders and observations, and the records of their instances and of the instances in
	// more.
	HostEvidence(ctx context.Context, host croft.HostID, more ...croft.InstanceID) (audit.Evidence, error)
	// Drop removes an order or observation that has no instance, unless it changed meanwhile.
	Drop(ctx context.Context, d audit.Difference) error
}

// ReleaseRemedy says what ends the wait for a guest that does not release a volume.
const ReleaseRemedy = "unmount it in the guest; or stop the guest, and it is detached at once"

// Volumes is the store of the volumes of the host. Each method can be repeated.
type Volumes interface {
	// WatchVolumes calls wake for every volume of the host, then for every volume that changes or disappears. It lists
	// again after a compaction or a lost connection, and returns only when ctx ends.
	WatchVolumes(ctx context.Context, host croft.HostID, wake func(croft.VolumeID)) error
	// Volume returns a volume of the host. NotFound.
	Volume(ctx context.Context, host croft.HostID, id croft.VolumeID) (croft.Volume, error)
	// MadeVolume records the size of a volume's file, and that it has no error. NotFound.
	MadeVolume(ctx context.Context, host croft.HostID, id croft.VolumeID, sizeGB int64) error
	// FailedVolume records why the orders about a volume are not carried out; empty: they are. NotFound.
	FailedVolume(ctx context.Context, host croft.HostID, id croft.VolumeID, why string) error
	// DetachedVolume records that a volume that is to be detached from an instance is. NotFound.
	DetachedVolume(ctx context.Context, host croft.HostID, id croft.VolumeID, from croft.InstanceID) error
	// ForgetVolume removes the record of a volume that is to be removed. Conflict: it is not to be removed.
	ForgetVolume(ctx context.Context, host croft.HostID, id croft.VolumeID) error
	// TookSnapshot records that a snapshot is taken: how.Taken, how.Method and how.Note. NotFound.
	TookSnapshot(ctx context.Context, host croft.HostID, id croft.VolumeID, how croft.Snapshot) error
	// RolledBack ends the order to roll back to a snapshot: it was carried out at that time or, if why is not empty,
	// changed nothing. NotFound.
	RolledBack(ctx context.Context, host croft.HostID, id croft.VolumeID, at time.Time, why string) error
}

// Storages is the store of the records of shared storage.
type Storages interface {
	// Storage returns the record of a storage. NotFound.
	Storage(ctx context.Context, name string) (croft.Storage, error)
	// PutStorage writes a record, and returns it as stored; one with the revision 0 is a new one. Conflict: it changed
	// since. Invalid: the cloud's programs are too old.
	PutStorage(ctx context.Context, s croft.Storage) (croft.Storage, error)
}

// Copies is the store of the orders for copies of images on the host. Each method can be repeated.
type Copies interface {
	// WatchImages calls wake for every copy that the host is ordered to have, then for every order that changes or
	// disappears. It lists again after a compaction or a lost connection, and returns only when ctx ends.
	WatchImages(ctx context.Context, host croft.HostID, wake func(croft.ImageID)) error
	// ImageCopy returns an order of the host. NotFound.
	ImageCopy(ctx context.Context, host croft.HostID, id croft.ImageID) (croft.ImageCopy, error)
	// ImageSource returns how the host gets an image that it needs for an instance which it has an order about or,
	// without an instance, for a copy. NotFound: no such order names the image, or the image was removed.
	ImageSource(ctx context.Context, host croft.HostID, id croft.ImageID, instance croft.InstanceID) (croft.ImageSource,
		error)
	// MadeImage records that the host has verified its copy. Invalid: it differs from the image.
	MadeImage(ctx context.Context, host croft.HostID, id croft.ImageID, f croft.ImageFile) error
	// FailedImage records why the host has no copy; final: it will not try again, so an image without other copies
	// has failed.
	FailedImage(ctx context.Context, host croft.HostID, id croft.ImageID, why string, final bool) error
	// ForgetImage removes the order for a copy that is to be removed. Conflict: it is not to be removed.
	ForgetImage(ctx context.Context, host croft.HostID, id croft.ImageID) error
}

// CopyFiles has the files of images of the cloud's catalog on the host.
type CopyFiles interface {
	// Get returns the file of an image, and marks it as used. False: it does not exist.
	Get(id croft.ImageID) (CachedImage, bool)
	// Received returns how many bytes of an upload are durable.
	Received(id croft.ImageID) (int64, error)
	// Receive appends a chunk to an upload of total bytes, and returns how many bytes are durable then, also on an
	// error. Conflict: at is not the number of bytes that were. NoCapacity: there is no space.
	Receive(ctx context.Context, id croft.ImageID, at, total int64, chunk io.Reader) (int64, error)
	// Staged returns the name of the file in which an image is staged.
	Staged(id croft.ImageID) string
	// Admit verifies the staged file, and makes it the file of the image. Empty fields of want are not compared, and
	// most is the maximum of bytes. Invalid: it is another file, or no image that is accepted; it is removed then.
	Admit(ctx context.Context, id croft.ImageID, want croft.ImageFile, most int64) (croft.ImageFile, error)
	// Keep is Admit for a staged file whose SHA-256 is known to be the one of want.
	Keep(id croft.ImageID, want croft.ImageFile, most int64) (croft.ImageFile, error)
	// Convert converts the staged upload, a disk of another format or an OVA, in a sandbox, and makes the result the
	// file of the image, a qcow2 of at most most bytes. Only the SHA256 of want is compared, with the upload. Invalid:
	// as for Admit, or it cannot be converted. NoCapacity: there is no space. Unavailable: the host has no sandbox.
	Convert(ctx context.Context, id croft.ImageID, want croft.ImageFile, most int64) (croft.ImageFile, error)
	// Link makes a file of the cache the file of the image, too. Invalid: as for Admit.
	Link(ctx context.Context, id croft.ImageID, img CachedImage, want croft.ImageFile, most int64) (croft.ImageFile,
		error)
	// Flatten writes the data of a disk to the staging file, as a qcow2 that needs no other file. No program may write
	// to the layers. NoCapacity: there is no space, or it would have more than most bytes.
	Flatten(ctx context.Context, id croft.ImageID, layers []Layer, most int64) error
	// Generalize removes from the staging file what tells machines apart, in a sandbox, as for Convert. The file has at
	// most most bytes afterwards. Invalid: it cannot, finally. NoCapacity.
	Generalize(ctx context.Context, id croft.ImageID, most int64) error
	// Room returns NoCapacity unless the host has space for more bytes of images. It removes files that keep does not
	// name and that were not used for a while.
	Room(bytes int64, keep func(croft.ImageID) bool) error
	// Remove removes all files of an image. Disks that were made from it keep it.
	Remove(id croft.ImageID) error
	// All lists the images that have files.
	All() ([]croft.ImageID, error)
}

// Inventory is the part of the Placement API that the agent needs.
type Inventory interface {
	// EnsureProvider creates the provider or updates its name, inventories, traits and aggregates to match p; it writes
	// only differences.
	EnsureProvider(ctx context.Context, p croft.Provider) error
	// Claims returns the allocations against a provider, by consumer. NotFound: there is no such provider.
	Claims(ctx context.Context, host croft.HostID) (map[croft.InstanceID]croft.Resources, error)
	// Release removes an instance's allocations on the hosts that may returns, if may permits it. It changes only the
	// claim that was read before may was called. Conflict: the claim has changed since. A missing claim is no error.
	Release(ctx context.Context, id croft.InstanceID, may croft.Permit) error
}

// Hypervisor is the part of libvirt that the agent needs. All methods except Watch are idempotent: they succeed if
// their result exists already.
type Hypervisor interface {
	// List returns the domains that croft made on this host, of all partitions.
	List(ctx context.Context) ([]Domain, error)
	// Get returns a domain that croft made. NotFound: there is no such domain.
	Get(ctx context.Context, id croft.InstanceID) (Domain, error)
	// Define makes the domain persistent, shut off. A domain with the same definition is left unchanged.
	Define(ctx context.Context, m Machine) error
	// Mark sets the mark of a defined domain and, unless it is off, the generation that it was started for.
	// NotFound: it is not defined.
	Mark(ctx context.Context, id croft.InstanceID, m Ordered) error
	// Start boots a defined domain for its generation. NotFound: it is not defined.
	Start(ctx context.Context, id croft.InstanceID) error
	// Stop asks the guest to power off, and cuts the power when ctx ends or the hypervisor's grace period is over.
	Stop(ctx context.Context, id croft.InstanceID) error
	// Eject empties the CD drive of a defined domain, also while its guest runs and has locked the drive. NotFound: it
	// is not defined.
	Eject(ctx context.Context, id croft.InstanceID) error
	// CutPower ends the guest without asking it. One that is off is left as it is. NotFound: it is not defined.
	CutPower(ctx context.Context, id croft.InstanceID) error
	// Remove cuts the power, removes the definition and releases the guest's DHCP leases. A missing domain is success.
	Remove(ctx context.Context, id croft.InstanceID) error
	// Volumes returns the volumes of a domain: of its definition, and of the guest if it runs. NotFound: it is not
	// defined.
	Volumes(ctx context.Context, id croft.InstanceID) ([]croft.VolumeID, error)
	// Attach adds a volume to a domain, and to the guest if it runs. NotFound: it is not defined.
	Attach(ctx context.Context, id croft.InstanceID, v Volume) error
	// Detach takes a volume from a domain, and from the guest if it runs. NotFound: it is not defined. Unavailable: the
	// guest has not released it yet, with ReleaseRemedy; Volumes has it until then.
	Detach(ctx context.Context, id croft.InstanceID, v croft.VolumeID) error
	// Resize gives a domain other processors and memory (MiB), which a running guest has from its next start on.
	// NotFound: it is not defined.
	Resize(ctx context.Context, id croft.InstanceID, vcpus, memory int64) error
	// Grow makes a volume of a guest that runs larger, or its root disk (RootDisk). A larger one is kept. False: the
	// guest is off or has no such volume, and nothing is changed. NotFound: it is not defined.
	Grow(ctx context.Context, id croft.InstanceID, v croft.VolumeID, sizeGB int64) (bool, error)
	// Tops returns the topmost files of a domain's disks: of the guest if it is not off, else of the definition.
	// NotFound.
	Tops(ctx context.Context, id croft.InstanceID) (map[croft.VolumeID]string, error)
	// PutOver makes existing files the tops of disks of a guest that is not off, all at one moment: each is an empty
	// overlay of the present top. The guest's agent freezes the file systems meanwhile if quiesce is true, and thaws
	// them afterwards, whatever happens to this process. ErrNoAgent: the guest has no agent, and nothing has changed.
	// Unavailable, with quiesce: its agent does not answer. Conflict: the guest is off. NotFound.
	PutOver(ctx context.Context, id croft.InstanceID, tops map[croft.VolumeID]string, quiesce bool) error
	// Thaw asks the agent of a guest to thaw its file systems. It is no error that they are not frozen, or that the
	// guest is off. ErrNoAgent. NotFound.
	Thaw(ctx context.Context, id croft.InstanceID) error
	// Merge makes a running guest write the data of a layer into the layer below, and use that instead. False: it goes
	// on in the background; call it again until it returns true. Unavailable: it failed, as because the host's disk is
	// full; the guest uses the layer as before. Conflict: the guest is off. NotFound.
	Merge(ctx context.Context, id croft.InstanceID, disk croft.VolumeID, layer, below string) (bool, error)
	// Redefine sets the files of disks in the definition of a domain, all at one moment. The files of other disks, and
	// those of the guest while it runs, do not change. NotFound.
	Redefine(ctx context.Context, id croft.InstanceID, disks Disks) error
	// GivePCI gives a domain that is off these PCI devices of the host instead of those in its definition. Conflict: it
	// is not off. NotFound: it is not defined.
	GivePCI(ctx context.Context, id croft.InstanceID, devices []PCI) error
	// ForeignPCI returns the addresses of PCI devices in the definitions of machines that are not croft's, each with
	// the name of such a machine.
	ForeignPCI(ctx context.Context) (map[string]string, error)
	// Machines returns the traits of croft.MachineTraits that machines on this host can have, and the trait of each
	// architecture that it runs.
	Machines(ctx context.Context) ([]croft.Trait, error)
	// Watch calls wake when a domain's state or addresses changed, or may have changed. It reconnects, and returns only
	// when ctx ends.
	Watch(ctx context.Context, wake func(croft.InstanceID)) error
}

// ErrNoAgent says that no agent in the guest can freeze and thaw its file systems.
var ErrNoAgent = croft.Errorf(croft.Unavailable, "no guest agent is connected: install qemu-guest-agent in the guest")

// Disks are the layers of the disks of a domain by volume, the topmost layer first.
type Disks map[croft.VolumeID][]Layer

// RootDisk is the key of the root disk in Disks.
const RootDisk croft.VolumeID = ""

// LayerAt returns the position of a file among layers; -1: it is not there.
func LayerAt(layers []Layer, path string) int {
	return slices.IndexFunc(layers, func(l Layer) bool { return l.Path == path })
}

// Bridged is a hypervisor whose guests may lose their networks while they run.
type Bridged interface {
	// CutOff returns the running instances that have lost a network.
	CutOff() []croft.InstanceID
}

// Consoles is a hypervisor whose guests have an interactive serial console, and may have a screen.
type Consoles interface {
	// OpenConsole attaches exclusively to the console of a running guest, until it is closed or the guest is
	// off, which reads as io.EOF. Read and Write may run concurrently; Close ends both. With takeOver it ends the
	// attachment of another client; without, another client is a Conflict, as is a guest that is off. NotFound: there
	// is no such instance.
	OpenConsole(ctx context.Context, id croft.InstanceID, takeOver bool) (io.ReadWriteCloser, error)
	// OpenScreen is OpenConsole for the screen: it carries the protocol of VNC. Conflict: the machine has no screen.
	OpenScreen(ctx context.Context, id croft.InstanceID, takeOver bool) (io.ReadWriteCloser, error)
	// Screenshot returns what the screen shows, as a PNG. Conflict: the guest is off, or the machine has no screen.
	Screenshot(ctx context.Context, id croft.InstanceID) ([]byte, error)
}

// ImageStore fetches images and makes disks from them.
type ImageStore interface {
	// Fetch returns the image from the cache, after fetching, verifying and inspecting it if needed. Invalid: the
	// reference, the checksum or the file is bad. NotFound: the address has no image. Unavailable: it may answer later.
	Fetch(ctx context.Context, ref string, progress func(croft.Progress)) (CachedImage, error)
	// FetchPublic is like Fetch, for a reference that a tenant chose: it connects only to public addresses, and checks
	// where the reference leads before it returns an image from the cache. Invalid: the reference leads to another
	// address.
	FetchPublic(ctx context.Context, ref string, progress func(croft.Progress)) (CachedImage, error)
	// Disk makes an overlay of sizeGB GiB over the image in dir, or keeps the existing one. Invalid: the
	// image's virtual size is greater.
	Disk(ctx context.Context, img CachedImage, dir string, sizeGB int64) ([]Layer, error)
	// Base returns the image below the disk in dir, as a file in dir. NotFound: there is none. Invalid: it is no image.
	Base(ctx context.Context, dir string) (CachedImage, error)
	// Adopt makes the file staged, which was copied from another host, the disk in dir, above img; above nothing if img
	// has no format. It can be repeated after a crash. Invalid: the file is no disk of sizeGB GiB above such an image.
	Adopt(ctx context.Context, img CachedImage, dir, staged string, sizeGB int64) ([]Layer, error)
	// Enlarge makes a disk larger, given the topmost file of its chain; a larger one is kept. No guest may use it
	// meanwhile. NotFound: there is no disk.
	Enlarge(ctx context.Context, file string, sizeGB int64) error
	// Volume makes an empty disk of sizeGB GiB in a file, or makes the existing one larger; a disk of that size or
	// larger is kept. No guest may use it meanwhile. Unavailable: there is no space.
	Volume(ctx context.Context, file string, sizeGB int64) error
	// Overlay makes, or replaces, an empty overlay of a disk in a file. No guest may use it. Unavailable: there is no
	// space.
	Overlay(ctx context.Context, file string, below Layer) error
	// Below returns the backing file that is named in the header of a disk; empty: it has none. Invalid: the file is no
	// disk, or keeps the data in another one.
	Below(file string) (string, error)
	// Fits returns Unavailable if the file system has no space for a copy of the data in a file.
	Fits(file string) error
	// Merge writes the data of the first layer of a disk into the second, and leaves the first as it is. It can be
	// repeated after it was interrupted. No guest may use the layers. Unavailable: there is no space, or no program
	// for it.
	Merge(ctx context.Context, layers []Layer) error
	// ReadDisk writes the content of a disk to w, given its layers, to which nothing writes meanwhile.
	ReadDisk(ctx context.Context, layers []Layer, w io.Writer) error
	// WriteDisk makes, or replaces, a disk without a layer below, of sizeGB GiB, with the content that it reads; a
	// shorter
	// one is followed by zeros. After an error there is no file. No guest may use it. Unavailable: there is no space.
	WriteDisk(ctx context.Context, file string, sizeGB int64, r io.Reader) error
	// CD makes a file the image of a CD, which QEMU may read. Invalid: the image is no ISO 9660 image. Unavailable:
	// there is no space, or the image was evicted since it was fetched.
	CD(ctx context.Context, img CachedImage, file string) error
	// OnlyFirmware returns the only firmware that boots a disk, given its layers: bios or uefi; empty: either may. No
	// guest may use the disk.
	OnlyFirmware(layers []Layer) (croft.Firmware, error)
	// Rebase names another backing file in the header of a disk, which has the same data. No guest may use it.
	Rebase(ctx context.Context, file string, below Layer) error
}

// Seeds makes metadata disks for guests that read their metadata from a disk. nil: the metadata server is the only
// source.
type Seeds interface {
	// Source returns the metadata source of the order's instance, never MetadataAuto. Invalid: this host cannot provide
	// the source that the order requires.
	Source(o croft.Order) (croft.Metadata, error)
	// WriteSeed writes the disk, for sources other than the server.
	WriteSeed(ctx context.Context, w io.Writer, o croft.Order) error
}

// CachedImage is a verified file in the cache.
type CachedImage struct {
	Path        string // absolute
	Format      string // qcow2, raw or croft.ImageISO, from the file's own header
	VirtualSize int64  // bytes
	Digest      string // sha256, hex, of that file, which may have been unpacked after the fetch
}

// The definition of a domain, which programs without an agent use too.
type (
	Machine = machine.Machine
	Layer   = machine.Layer
	Volume  = machine.Volume
	NIC     = machine.NIC
	Ordered = machine.Ordered
	PCI     = machine.PCI
)

// OrderedBy returns the part of an order that is recorded on its domain.
func OrderedBy(o croft.Order) Ordered {
	return Ordered{Generation: o.Generation, Project: o.Project, Open: o.Spec.Open, Name: o.Name}
}

// Power is the power state of a domain.
type Power string

// The power states of a domain. PowerPaused covers all states in which the domain has a process and the guest makes no
// progress.
const (
	PowerOn     Power = "on"
	PowerOff    Power = "off"
	PowerPaused Power = "paused"
)

// Domain is the hypervisor's state of an instance.
type Domain struct {
	ID        croft.InstanceID
	Partition croft.PartitionID
	Ordered
	Power   Power
	Started int64 // the generation that it was last started for; 0: stopped since
	Crashed bool  // off because the guest or its process died, not by request
	// off because the guest powered itself off without a stop request; lost when the hypervisor restarts
	Halted bool
	CD     bool // its CD drive has an ISO
	// paused because a write to one of its disks failed: the host's disk was full
	Stalled   bool
	Addresses []netip.Addr
	Reserved  []netip.Addr // reserved for the guest, whether it has requested them yet or not
	PCI       []PCI        // of its definition
}
