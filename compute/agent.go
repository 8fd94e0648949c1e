package compute

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"croft"
	"croft/compute/backup"
	"croft/compute/pci"
	"croft/compute/storage"
	"croft/hosts/audit"
	"croft/internal/delay"
	"croft/internal/endpoint"
	"croft/internal/keyed"
	"croft/internal/mailbox"
	"croft/internal/turns"
)

// Config configures an Agent. All interfaces are required except Shared, Volumes, Copies, Storages, Backups,
// Repository, Key, Seeds and Peers.
type Config struct {
	Host      croft.Host        // ID required; Place distinguishes its agent from one on a copied machine
	Partition croft.PartitionID // required
	Provider  croft.Provider    // the host's offer; ID is Host.ID
	Dir       string            // required; holds one directory per instance
	NICs      []NIC             // for guests that name no networks; addresses are filled in per instance
	Networks  map[string]NIC    // further networks that guests may name, in addition to croft.DefaultNetworks
	// returns the ranges of the addresses that the host's usual network gives to guests, as FIRST-LAST; nil: none
	GuestAddresses func(ctx context.Context) ([]string, error)
	PCI            pci.Source // the PCI devices that guests may have; empty: none

	Orders   Orders
	Registry Registry
	Records  Records
	Shared   audit.Shared // records that belong to no host; nil: another process audits them
	// ends requests for volumes whose processes died; nil: another process does
	VolumeRequests audit.Volumes
	Resizes        audit.Resizes  // the same of requests to resize instances
	Volumes        Volumes        // nil: this host has no volumes
	Backups        Backups        // nil: this host makes no backups
	Repository     Repository     // likewise
	Key            backup.HostKey // opens the access to stores of backups; its public key is in the record of the host
	Storages       Storages       // nil: this host uses no shared storage
	SharedDirs     []SharedDir    // of shared storage; none without Storages
	Catalog        audit.Images   // looks after the images of the cloud's catalog; nil: another process does
	Copies         Copies         // nil: this host has no images of the cloud's catalog
	CopyFiles      CopyFiles      // their files; required with Copies
	Inventory      Inventory
	Hypervisor     Hypervisor
	Images         ImageStore
	Seeds          Seeds // nil: guests read metadata only from the server
	// returns a client for the agent of another host, which must show that host's certificate if its API uses TLS; nil:
	// for agents without TLS
	Peers func(croft.Host) (*http.Client, error)

	MaxBuilds   int           // concurrent builds; 4 by default
	ResyncEvery time.Duration // how often every instance is examined; 30 s by default
	SweepEvery  time.Duration // how often claims are compared with records; 60 s by default
	UsageEvery  time.Duration // how often the usage of guests is measured; 1 min by default
	UsageFile   string        // their past usage across restarts of the agent; empty: it ends with the agent
	// checks the machine, and returns the faults; nil: nothing checks it
	Diagnose      func(context.Context) []croft.Finding
	DiagnoseEvery time.Duration // how often; 1 h by default
	// announces to users that an instance expires soon, when it is this agent's turn; nil: only the log reports it
	Announce func(context.Context, croft.Instance) error
	Log      *slog.Logger // required

	Traces trace.TracerProvider // records the execution of traced orders; none by default
}

// Agent carries out the orders of one host.
type Agent struct {
	Config
	workers keyed.Workers[croft.InstanceID]

	volumeWorkers keyed.Workers[croft.VolumeID]
	volumeTurns   turns.Turns[croft.VolumeID] // held while a volume's file is opened, made or removed
	agentTurns    *agentTurns
	knownVolumes  sync.Map // keys are the volumes of the host
	// keys are the volumes whose orders were not carried out
	awaitedVolumes sync.Map
	released       *mailbox.Box[croft.VolumeID] // volumes and snapshots of instances that ended
	// by volume on shared storage, the instance for which this process has taken its lock
	lockedFor sync.Map

	jobWorkers   keyed.Workers[string]
	jobs         jobLimits // of jobs for backups
	knownJobs    sync.Map  // keys are the jobs of the host that it has seen
	imageWorkers keyed.Workers[croft.ImageID]
	imageTurns   turns.Turns[croft.ImageID] // held while the file of an image is made or removed
	copiesOf     imageCopies

	builds  chan struct{} // one token per running build
	copies  chan struct{} // one token per disk that is fetched from another host
	metrics *metrics

	locked atomic.Bool // this agent holds the agent lock of its host; otherwise it does nothing
	known  atomic.Bool // the provider and the host's record are up to date

	troubles troubles

	shared          []*shared
	ownAggregates   []string            // of the host's provider, without those of shared storage
	mounts          []croft.HostStorage // of the record; accessed while introducing is held, as the next one
	storageProblems []string
	guestAddresses  []string // of the record, likewise; nil: not read yet
	unclaimed       int64    // GiB of disks for which nothing is claimed
	offerChanged    bool     // the inventories were not written since they changed
	mountsChanged   chan struct{}

	passthrough passthrough

	offering    sync.Mutex // held while the inventories are written
	introducing sync.Mutex // held while the host's record is written
	problems    [problemKinds]string
	recorded    [problemKinds]string // the problems in the host's record
	findings    []croft.Finding      // faults of the machine; nil: not checked yet
	unrecorded  bool                 // the host's record has other findings

	instances instances
	samples   *samples

	// Accessed only by the sweep.
	foundHere []audit.Difference // by the last sweep
	forgotten bool               // the host was forgotten, and this is logged
	caretaker *audit.Caretaker

	reporting sync.Mutex // held while a guest's reports are changed
	reporters *mailbox.Box[croft.InstanceID]
}

// New checks the configuration. It starts nothing.
func New(c Config) (*Agent, error) {
	if c.Host.ID == "" || c.Partition == "" || c.Dir == "" || c.Log == nil ||
		c.Orders == nil || c.Registry == nil || c.Records == nil ||
		c.Inventory == nil || c.Hypervisor == nil || c.Images == nil {
		return nil,
			croft.Errorf(croft.Invalid, "compute: Host, Partition, Dir, Log and all interfaces but Shared, Volumes "+
				"and Seeds are required")
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "compute: directory %s: %w", c.Dir, err)
	}
	c.Dir = dir
	c.MaxBuilds = cmp.Or(c.MaxBuilds, 4)
	c.ResyncEvery = cmp.Or(c.ResyncEvery, 30*time.Second)
	c.SweepEvery = cmp.Or(c.SweepEvery, time.Minute)
	c.UsageEvery = cmp.Or(c.UsageEvery, hourEvery)
	c.DiagnoseEvery = cmp.Or(c.DiagnoseEvery, time.Hour)
	if c.Peers == nil {
		c.Peers = func(croft.Host) (*http.Client, error) { return endpoint.AgentClient(nil), nil }
	}
	if c.Traces == nil {
		c.Traces = noop.NewTracerProvider()
	}
	a := &Agent{
		Config:    c,
		builds:    make(chan struct{}, c.MaxBuilds),
		copies:    make(chan struct{}, mostCopies),
		instances: instances{all: map[croft.InstanceID]*memory{}, awaited: map[croft.InstanceID]bool{}},
		samples:   newSamples(c.UsageFile),

		caretaker: &audit.Caretaker{Host: c.Host.ID, Records: c.Records, Shared: c.Shared, Inventory: c.Inventory,
			Volumes: c.VolumeRequests, Resizes: c.Resizes, Images: c.Catalog, Every: c.SweepEvery,
			Announce: c.Announce, Log: c.Log},

		passthrough: passthrough{turn: make(chan struct{}, 1), chosen: map[croft.InstanceID][]PCI{}},

		agentTurns: newAgentTurns(),

		reporters: mailbox.New[croft.InstanceID](),
		released:  mailbox.New[croft.VolumeID](),
	}
	a.metrics = newMetrics(a.builds, &a.locked, &a.known, a.instances.states, a.caretaker.Collector(),
		newUsages(c.Hypervisor, a.instances.names))
	a.ownAggregates, a.mountsChanged = c.Provider.Aggregates, make(chan struct{}, 1)
	for _, s := range c.SharedDirs {
		a.shared = append(a.shared, &shared{problem: "the shared storage " + s.Name + " is not examined yet",
			dir: storage.New(storage.Config{Name: s.Name, Path: s.Path, Host: c.Host.ID,
				Partition: c.Partition, RenewEvery: s.RenewEvery, Fault: s.Fault})})
	}
	a.workers.Do, a.volumeWorkers.Do, a.jobWorkers.Do, a.imageWorkers.Do = a.pass, a.passVolume, a.passJob, a.passImage
	a.copiesOf.saving = map[croft.VolumeID]context.CancelFunc{}
	a.copiesOf.receiving = map[croft.ImageID]*reception{}
	a.copiesOf.sends = make(chan struct{}, mostSends)
	return a, nil
}

// Run carries out orders until ctx ends, then withdraws the host's inventory and returns. Guests keep
// running. ready is called once the host takes orders.
func (a *Agent) Run(ctx context.Context, ready func()) error {
	if err := a.tighten(); err != nil {
		a.Log.Warn("other users of this machine may read instances' metadata disks", "host", a.Host.ID, "op",
			"limit modes", "err", err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		_ = a.Orders.WatchOrders(ctx, a.Host.ID, func(id croft.InstanceID) { a.workers.Interrupt(ctx, id) })
	})
	work.Go(func() {
		_ = a.Hypervisor.Watch(ctx, func(id croft.InstanceID) { a.workers.Wake(ctx, id) })
	})
	work.Go(func() { a.watchVolumes(ctx) })
	work.Go(func() { a.watchJobs(ctx) })
	work.Go(func() { a.watchStorages(ctx) })
	work.Go(func() { a.watchImages(ctx) })
	work.Go(func() {
		a.resync(ctx)
		delay.Every(ctx, a.ResyncEvery, a.resync)
	})
	work.Go(func() { delay.Every(ctx, awaitPoll, a.lookAgain) })
	work.Go(func() { delay.Every(ctx, a.SweepEvery, a.sweep) })
	work.Go(func() { a.measure(ctx) })
	if a.Diagnose != nil {
		work.Go(func() {
			a.diagnose(ctx)
			delay.Every(ctx, a.DiagnoseEvery, a.diagnose)
		})
	}
	work.Go(func() {
		_ = a.reporters.Run(ctx, func(id croft.InstanceID) { a.workers.Wake(ctx, id) })
	})
	work.Go(func() {
		_ = a.released.Run(ctx, func(id croft.VolumeID) { a.volumeWorkers.Wake(ctx, id) })
	})
	work.Go(func() { a.serve(ctx, ready) })
	work.Wait()
	a.volumeWorkers.Wait()
	a.jobWorkers.Wait()
	a.imageWorkers.Wait()
	a.workers.Wait()
	a.instances.arriveAll()
	if a.known.Load() && a.locked.Load() {
		return a.retire(ctx)
	}
	return nil
}

// announce offers the host's inventory and writes the host's record, retrying until it succeeds or ctx ends.
func (a *Agent) announce(ctx context.Context) bool {
	wait := firstWait
	for ctx.Err() == nil {
		err := a.recallUnclaimed(ctx)
		offered := a.offered()
		if err == nil {
			err = a.Inventory.EnsureProvider(ctx, offered)
		}
		if errors.Is(err, croft.Conflict) && offered.Name == a.Host.Name {
			// Another provider has the host's name, for example this machine's provider before it lost its state
			// directory. Names are for display; the UUID identifies the host.
			name := a.Host.Name + "-" + string(a.Host.ID)[:8]
			a.offerAs(name)
			a.Log.Warn("another host has this name; it is offered under another", "host", a.Host.ID, "name", name)
			a.setProblem(problemName, fmt.Sprintf("another host has the name %s, so Placement knows this one as %s: "+
				"give one of them another host.name, or forget the other one (croft host remove UUID) if it was "+
				"this machine before", a.Host.Name, name))
			continue
		}
		if err == nil {
			a.readGuestAddresses(ctx)
			err = a.introduce(ctx)
		}
		if err == nil {
			a.troubles.known.Store(nil)
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		a.troubles.known.Store(&err)
		a.Log.Warn("cannot make the host known yet", "host", a.Host.ID, "err", err)
		_ = delay.For(ctx, wait)
		wait = min(2*wait, lastWait)
	}
	return false
}

// reclaimName offers the host under its own name again once no other provider has that name, and removes the problem
// from its record. A failure is retried at the next sweep.
func (a *Agent) reclaimName(ctx context.Context) error {
	a.offering.Lock()
	defer a.offering.Unlock()
	p := a.offered()
	if p.Name == a.Host.Name {
		return nil
	}
	p.Name = a.Host.Name
	err := a.Inventory.EnsureProvider(ctx, p)
	if errors.Is(err, croft.Conflict) {
		return nil // the other provider is still there
	}
	if err != nil {
		return fmt.Errorf("offer the host under its own name: %w", err)
	}
	a.setProblem(problemName, "")
	if err := a.introduce(ctx); err != nil {
		return err
	}
	a.offerAs(p.Name)
	a.Log.Info("no other host has this name any more; it is offered under it", "host", a.Host.ID, "name", p.Name)
	return nil
}

// offered returns the provider as the agent offers it now.
func (a *Agent) offered() croft.Provider {
	a.introducing.Lock()
	defer a.introducing.Unlock()
	p := a.Provider
	if disk, has := p.Inventories[croft.DiskGB]; has && a.unclaimed > 0 {
		disk.Reserved = min(disk.Total, disk.Reserved+a.unclaimed)
		p.Inventories = maps.Clone(p.Inventories)
		p.Inventories[croft.DiskGB] = disk
	}
	if len(a.passthrough.offered) > 0 {
		p.Inventories = maps.Clone(p.Inventories)
		maps.Copy(p.Inventories, a.passthrough.offered)
	}
	return p
}

// offerAs sets the name under which the host is offered from now on.
func (a *Agent) offerAs(name string) {
	a.introducing.Lock()
	defer a.introducing.Unlock()
	a.Provider.Name = name
}

// Pauses between attempts of announce.
const (
	firstWait = 500 * time.Millisecond
	lastWait  = 15 * time.Second
)

// awaitPoll is how often awaited instances are checked.
const awaitPoll = 2 * time.Second

// retire keeps new claims away from the host while no agent serves it. The provider, its claims and the guests stay. If
// the provider was removed, because the host was forgotten, it is not created again.
func (a *Agent) retire(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if _, err := a.Inventory.Claims(ctx, a.Host.ID); errors.Is(err, croft.NotFound) {
		return nil
	}
	p := a.offered()
	p.Inventories = maps.Clone(p.Inventories)
	for class, inv := range p.Inventories {
		inv.Reserved = inv.Total
		p.Inventories[class] = inv
	}
	p.Traits = append(slices.Clone(p.Traits), "COMPUTE_STATUS_DISABLED")
	if err := a.Inventory.EnsureProvider(ctx, p); err != nil {
		a.Log.Warn("the host's inventory could not be withdrawn; schedulers will see that it is silent", "host",
			a.Host.ID, "err", err)
	}
	return nil
}

// resync wakes every instance that is in this agent's memory or has a domain. The list with which the watch starts
// wakes the other instances that have an order.
func (a *Agent) resync(ctx context.Context) {
	domains, err := a.Hypervisor.List(ctx)
	if err != nil {
		a.troubles.hypervisor.Store(&err)
		a.logUnless(ctx, err, "list domains")
		return
	}
	a.troubles.hypervisor.Store(nil)
	ids := map[croft.InstanceID]bool{}
	for _, d := range domains {
		ids[d.ID] = true
	}
	for _, id := range a.instances.ids() {
		ids[id] = true
	}
	for id := range ids {
		a.workers.Wake(ctx, id)
	}
	a.wakeVolumes(ctx)
	a.wakeJobs(ctx)
	a.wakeImages(ctx)
}

// logUnless logs an error unless ctx has ended.
func (a *Agent) logUnless(ctx context.Context, err error, op string) {
	if ctx.Err() == nil {
		a.Log.Warn("the agent could not finish; it tries again", "host", a.Host.ID, "op", op, "err", err)
	}
}

// read returns the order and the state that Plan compares.
func (a *Agent) read(ctx context.Context, id croft.InstanceID) (*croft.Order, Have, error) {
	have := Have{Home: a.Partition}
	var want *croft.Order
	order, err := a.Orders.Order(ctx, a.Host.ID, id)
	switch {
	case err == nil:
		want = &order
	case !errors.Is(err, croft.NotFound):
		return nil, have, err
	}
	domain, err := a.Hypervisor.Get(ctx, id)
	switch {
	case err == nil:
		have.Domain = &domain
	case !errors.Is(err, croft.NotFound):
		return nil, have, fmt.Errorf("look at the domain: %w", err)
	}
	if _, err := os.Lstat(a.dir(id)); err == nil || want != nil && want.Storage != "" {
		have.Files = true
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, have, fmt.Errorf("look for the instance's files: %w", err)
	}
	return want, have, nil
}

// clean removes the instance's files.
func (a *Agent) clean(id croft.InstanceID) error {
	if err := os.RemoveAll(a.dir(id)); err != nil {
		return fmt.Errorf("remove the instance's files: %w", err)
	}
	return nil
}

func (a *Agent) dir(id croft.InstanceID) string { return filepath.Join(a.Dir, string(id)) }

// ConsoleLog returns the path of an instance's serial console log.
func (a *Agent) ConsoleLog(id croft.InstanceID) string {
	return filepath.Join(a.dir(id), "console.log")
}

// lookAgain wakes the awaited instances: some networks do not report a guest's new address, and nothing reports that
// etcd or libvirt answers again.
func (a *Agent) lookAgain(ctx context.Context) {
	a.lookAgainAtVolumes(ctx)
	a.lookAgainAtImages(ctx)
	for _, id := range a.instances.awaitedOnes() {
		a.workers.Wake(ctx, id)
	}
}

// Collector returns the agent's metrics.
func (a *Agent) Collector() prometheus.Collector { return a.metrics }
