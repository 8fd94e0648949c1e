package compute_test

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/sim"
	"croft/compute/pci"
	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
	"croft/internal/testing/patient"
)

func TestMain(m *testing.M) {
	patient.SideBySide(8)
	goleak.VerifyTestMain(m)
}

// ledger is the agent's view of Placement, in memory.
type ledger struct {
	mu       sync.Mutex
	provider croft.Provider
	claims   map[croft.InstanceID]croft.Resources
	at       map[croft.InstanceID]croft.HostID // hosts of instances, if they matter
	taken    string                            // a provider name that is in use
	gone     bool                              // the provider was removed
	away     atomic.Bool
	stuck    atomic.Bool // releases fail
}

func (l *ledger) EnsureProvider(_ context.Context, p croft.Provider) error {
	if l.away.Load() {
		return errAway
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.Name == l.taken {
		return croft.Errorf(croft.Conflict, "the name %s is taken", p.Name)
	}
	l.provider = p
	return nil
}

func (l *ledger) Claims(context.Context, croft.HostID) (map[croft.InstanceID]croft.Resources, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone {
		return nil, croft.Errorf(croft.NotFound, "no such provider")
	}
	return maps.Clone(l.claims), nil
}

func (l *ledger) Release(ctx context.Context, id croft.InstanceID, may croft.Permit) error {
	on, err := may(ctx)
	if err != nil {
		return err
	}
	if l.stuck.Load() {
		return errAway
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := l.at[id]; at == "" || slices.Contains(on, at) {
		delete(l.claims, id)
	}
	return nil
}

func (l *ledger) claim(id croft.InstanceID) { l.claimWith(id, nil) }

// claimWith claims a processor, and the PCI devices among some resources.
func (l *ledger) claimWith(id croft.InstanceID, r croft.Resources) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claims[id] = croft.Resources{croft.VCPU: 1}
	for class, n := range r {
		if class.IsPCI() {
			l.claims[id][class] = n
		}
	}
}

// offers returns the inventory of a class as it was last written.
func (l *ledger) offers(class croft.ResourceClass) (croft.Inventory, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	inventory, has := l.provider.Inventories[class]
	return inventory, has
}

func (l *ledger) holds(id croft.InstanceID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, ok := l.claims[id]
	return ok
}

// cloud is one agent with simulated guests on a real etcd.
type cloud struct {
	t      *testing.T
	store  *etcdstore.Store
	server *etcdserver.Server
	hv     *sim.Hypervisor
	images sim.Images
	ledger *ledger
	host   croft.Host
	dir    string
	sweep  time.Duration
	seeds  compute.Seeds
	pci    pci.Source
	stop   func()

	diagnose func(context.Context) []croft.Finding // checks the machine again and again; nil: nothing does

	attaching []croft.Volume              // by the next request
	volumes   compute.Volumes             // nil: the store's
	mounted   string                      // the directory of the shared storage nfs1; empty: the host mounts none
	between   compute.Orders              // the orders that the agent uses, if a test replaces the store
	recorder  *tracetest.InMemoryExporter // if set, orders belong to a trace
	trace     string
}

func newCloud(t *testing.T) *cloud { return newFaultyCloud(t, nil) }

// newFaultyCloud returns a cloud whose hypervisor calls fault before each operation.
func newFaultyCloud(t *testing.T, fault func(context.Context, string, croft.InstanceID) error) *cloud {
	t.Helper()
	return newCloudOf(t, sim.Config{Fault: fault})
}

// newCloudOf returns a cloud with the given simulated hypervisor.
func newCloudOf(t *testing.T, config sim.Config) *cloud {
	t.Helper()
	server := etcdtest.Server(t)
	hv, err := sim.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = hv.Close() })
	store := etcdtest.Open(t, server)
	return &cloud{
		t: t, server: server, store: store, between: store.Orders, hv: hv,
		ledger: &ledger{claims: map[croft.InstanceID]croft.Resources{}},
		host:   croft.Host{ID: croft.NewHostID(), Name: "h1", VirtType: "sim"},
		dir:    t.TempDir(), sweep: time.Hour,
	}
}

// start runs the agent until stop or the test's end, and returns when it takes orders.
func (c *cloud) start() *compute.Agent {
	c.t.Helper()
	ready := make(chan struct{})
	agent := c.launch(func() { close(ready) })
	<-ready
	return agent
}

// launch is like start, for an agent that may never take orders.
func (c *cloud) launch(ready func()) *compute.Agent {
	c.t.Helper()
	var dirs []compute.SharedDir
	if c.mounted != "" {
		dirs = append(dirs, compute.SharedDir{Name: "nfs1", Path: c.mounted})
	}
	agent, err := compute.New(compute.Config{
		SharedDirs: dirs, Storages: c.store.Storages,
		Host: c.host, Partition: c.store.Partition(), Provider: compute.Offer{}.Provider(c.host, c.store.Partition(),
			facts),
		Dir: c.dir, NICs: []compute.NIC{{Network: "default"}},
		Networks: map[string]compute.NIC{"lab": {Bridge: "br-lab"}},
		Orders:   c.between, Registry: c.store.Registry, Records: c.store.Records, Shared: c.store.Turn,
		Volumes: cmp.Or[compute.Volumes](c.volumes, c.store.Volumes), Inventory: c.ledger, Hypervisor: c.hv,
		Images: c.images,
		Seeds:  c.seeds, PCI: c.pci, Diagnose: c.diagnose, DiagnoseEvery: 1,
		ResyncEvery: time.Hour, SweepEvery: c.sweep, Log: slog.New(slog.NewTextHandler(c.t.Output(), nil)),
		Traces: c.traces(),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- agent.Run(ctx, ready) }()
	c.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			c.t.Error(err)
		}
	})
	c.t.Cleanup(c.stop)
	return agent
}

// request writes the record, the claim and the order, as a scheduler does.
func (c *cloud) request(name string) croft.Instance { return c.requestOn(name) }

func (c *cloud) requestOn(name string, networks ...string) croft.Instance {
	c.t.Helper()
	return c.requestSpec(name, croft.Spec{InstanceSettings: croft.InstanceSettings{Networks: networks}})
}

func (c *cloud) requestSpec(name string, spec croft.Spec) croft.Instance {
	c.t.Helper()
	return c.requestAs(croft.DefaultProject, name, spec)
}

func (c *cloud) requestAs(project croft.Project, name string, spec croft.Spec) croft.Instance {
	c.t.Helper()
	spec.Image, spec.Resources = "http://images/"+name, croft.Resources{croft.VCPU: 1, croft.MemoryMB: 256,
		croft.DiskGB: 1}
	return c.requestInstance(croft.Instance{ID: croft.NewInstanceID(), Project: project, Name: name, Spec: spec})
}

func (c *cloud) requestInstance(inst croft.Instance) croft.Instance {
	c.t.Helper()
	inst.Created = time.Now().UTC()
	inst, err := c.store.Instances.Create(c.t.Context(), inst)
	if err != nil {
		c.t.Fatal(err)
	}
	c.ledger.claimWith(inst.ID, inst.Spec.Resources)
	inst.Volumes = c.attaching
	for {
		assigned, err := c.store.Instances.Assign(c.t.Context(), inst, c.order(inst, croft.WantRunning))
		if errors.Is(err, croft.Unavailable) {
			continue // the host is not alive yet
		}
		if err != nil {
			c.t.Fatal(err)
		}
		return assigned
	}
}

func (c *cloud) order(inst croft.Instance, want croft.Want) croft.Order {
	return croft.Order{
		Partition: c.store.Partition(), Host: c.host.ID, Instance: inst.ID, Generation: inst.Generation + 1, Want: want,
		Project: inst.Project, Name: inst.Name, Spec: inst.Spec, Issued: time.Now().UTC(), Trace: c.trace,
		Storage: inst.Storage,
	}
}

func (c *cloud) reorder(inst croft.Instance, want croft.Want) croft.Instance {
	c.t.Helper()
	inst, err := c.store.Instances.Reorder(c.t.Context(), inst, c.order(inst, want))
	if err != nil {
		c.t.Fatal(err)
	}
	return inst
}

// await follows the instance until it has the state, for its newest order, or has no record any more (empty state).
func (c *cloud) await(inst croft.Instance, want croft.State) *croft.Observation {
	c.t.Helper()
	var seen *croft.Observation
	reached := false
	err := c.store.Instances.WatchInstance(c.t.Context(), inst.ID, func(st *croft.Status) bool {
		if st == nil {
			reached = want == ""
			return false
		}
		seen = st.Observation
		reached = seen != nil && seen.State == want && seen.Generation == st.Instance.Generation
		return !reached
	})
	if err != nil || !reached {
		c.t.Fatalf("instance %s never came to %q: %v", inst.Name, want, err)
	}
	return seen
}

// bare fails the test unless everything of an instance is removed from the host.
func (c *cloud) bare(inst croft.Instance) {
	c.t.Helper()
	if _, err := c.hv.Get(c.t.Context(), inst.ID); !errors.Is(err, croft.NotFound) {
		c.t.Errorf("there is a domain of %s: %v", inst.Name, err)
	}
	if _, err := os.Stat(filepath.Join(c.dir, string(inst.ID))); !errors.Is(err, os.ErrNotExist) {
		c.t.Errorf("there are files of %s: %v", inst.Name, err)
	}
}

func TestAnInstanceRunsStopsStartsAndEnds(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.start()
	inst := c.request("web")
	if seen := c.await(inst, croft.StateRunning); len(seen.Addresses) != 1 || seen.MAC != inst.ID.MAC(0).String() {
		t.Errorf("got %+v, want an address and the derived MAC", seen)
	}
	inst = c.reorder(inst, croft.WantStopped)
	c.await(inst, croft.StateStopped)
	inst = c.reorder(inst, croft.WantRunning)
	c.await(inst, croft.StateRunning)
	inst = c.reorder(inst, croft.WantGone)
	c.await(inst, "")
	c.bare(inst)
	if c.ledger.holds(inst.ID) {
		t.Error("the claim is not back")
	}
}

func TestGuestsOutliveTheAgentAndTheNextOneFindsThem(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.start()
	inst := c.request("web")
	c.await(inst, croft.StateRunning)
	c.stop()
	for class, inv := range c.ledger.provider.Inventories {
		if inv.Capacity() != 0 {
			t.Errorf("after the agent's end %d of %s can still be claimed", inv.Capacity(), class)
		}
	}
	if d, err := c.hv.Get(t.Context(), inst.ID); err != nil || d.Power != compute.PowerOn {
		t.Fatalf("the guest did not outlive the agent: %+v, %v", d, err)
	}
	inst = c.reorder(inst, croft.WantStopped) // while no agent runs
	c.start()
	c.await(inst, croft.StateStopped)
	if c.ledger.provider.Inventories[croft.VCPU].Capacity() == 0 {
		t.Error("the returned agent does not offer its inventory")
	}
}

func TestDestroyCancelsABuildAndLeavesNothing(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	fetching := make(chan struct{})
	c.images.Fault = func(ctx context.Context, _ string) error {
		close(fetching)
		<-ctx.Done() // a download that ends only when cancelled
		return ctx.Err()
	}
	c.start()
	inst := c.request("web")
	<-fetching
	inst = c.reorder(inst, croft.WantGone)
	c.await(inst, "")
	c.bare(inst)
}

func TestAnErrorThatRepeatingCannotHelpIsFinalAndLeavesNothing(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	calls := 0
	c.images.Fault = func(context.Context, string) error {
		calls++
		return croft.Errorf(croft.Invalid, "the image has another checksum")
	}
	agent := c.start()
	inst := c.request("web")
	seen := c.await(inst, croft.StateFailed)
	if seen.Error != "the image has another checksum" || seen.ErrorKind != croft.Invalid {
		t.Errorf("got %+v, want the sentence and its kind", seen)
	}
	c.bare(inst)
	agent.Resync(t.Context())
	if calls != 1 {
		t.Errorf("the image was fetched %d times, want 1", calls)
	}
	if !c.ledger.holds(inst.ID) {
		t.Error("the claim went although the instance is there")
	}
}

func TestAnErrorThatMayPassIsTriedAgainAtTheNextResync(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	var once sync.Once
	c.images.Fault = func(context.Context, string) (err error) {
		once.Do(func() { err = croft.Errorf(croft.Unavailable, "the image server does not answer") })
		return err
	}
	agent := c.start()
	inst := c.request("web")
	c.await(inst, croft.StateFailed)
	agent.Resync(t.Context())
	c.await(inst, croft.StateRunning)
}

// TestAnInstanceWaitsForItsChosenAddress: another guest has it, which did not choose it.
func TestAnInstanceWaitsForItsChosenAddress(t *testing.T) {
	t.Parallel()
	c := newCloudOf(t, sim.Config{Subnet: netip.MustParsePrefix("10.0.0.0/30")}) // guests have 10.0.0.2
	agent := c.start()
	first := c.request("first")
	c.await(first, croft.StateRunning)
	const address = "10.0.0.2"
	second := c.requestSpec("second", croft.Spec{InstanceSettings: croft.InstanceSettings{FixedAddress: address}})
	seen := c.await(second, croft.StateFailed)
	if seen.ErrorKind != croft.Conflict || !strings.Contains(seen.Error, "the address "+address+" is not free") ||
		!strings.Contains(seen.Error, "free it, and the instance starts") {
		t.Errorf("it says %q of kind %q", seen.Error, seen.ErrorKind)
	}
	agent.Resync(t.Context())
	if _, err := c.hv.Get(t.Context(), second.ID); !errors.Is(err, croft.NotFound) {
		t.Errorf("it has a domain: %v", err)
	}
	c.reorder(first, croft.WantGone)
	c.await(first, "")
	agent.Resync(t.Context())
	if seen := c.await(second, croft.StateRunning); len(seen.Addresses) != 1 || seen.Addresses[0].String() != address {
		t.Errorf("it has %v", seen.Addresses)
	}
	c.stop() // the address outlives the agent
	c.reorder(second, croft.WantStopped)
	c.start()
	c.await(second, croft.StateStopped)
	third := c.requestSpec("third", croft.Spec{})
	if seen := c.await(third, croft.StateFailed); seen.ErrorKind != croft.NoCapacity {
		t.Errorf("the only address is in use, and it says %q of kind %q", seen.Error, seen.ErrorKind)
	}
}

func TestADomainWithoutOrderIsLeftAlone(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	orphan := compute.Machine{ID: croft.NewInstanceID(), Partition: c.store.Partition(),
		Ordered: compute.Ordered{Generation: 1}, Name: "orphan",
		VCPUs: 1, MemoryMiB: 64}
	if err := errors.Join(c.hv.Define(t.Context(), orphan), c.hv.Start(t.Context(), orphan.ID)); err != nil {
		t.Fatal(err)
	}
	agent := c.start()
	agent.Resync(t.Context())
	if d, err := c.hv.Get(t.Context(), orphan.ID); err != nil || d.Power != compute.PowerOn {
		t.Errorf("the orphan was touched: %+v, %v", d, err)
	}
}

func TestAGuestThatCrashesIsStartedAgain(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	agent := c.start()
	inst := c.request("web")
	c.await(inst, croft.StateRunning)
	if err := c.hv.Crash(inst.ID); err != nil {
		t.Fatal(err)
	}
	c.await(inst, croft.StateFailed) // immediately after its start: no restart loop
	agent.Expire(inst.ID)
	agent.Resync(t.Context())
	c.await(inst, croft.StateRunning)
}

func TestAStartThatFailedWasNoStart(t *testing.T) {
	t.Parallel()
	var once sync.Once
	c := newFaultyCloud(t, func(_ context.Context, op string, _ croft.InstanceID) (err error) {
		if op == sim.OpStart {
			once.Do(func() { err = croft.Errorf(croft.Unavailable, "interrupted") })
		}
		return err
	})
	c.start()
	inst := c.request("web")
	c.await(inst, croft.StateRunning) // at the next pass, because a failed start is not recorded
}

func sweep(t *testing.T, agent *compute.Agent) {
	t.Helper()
	if err := agent.SweepNow(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func isUnavailable(err error) bool { return errors.Is(err, croft.Unavailable) }

func TestTheSweepUndoesWhatDeadSchedulersBegan(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	agent := c.start()
	dead := etcdtest.Open(t, c.server)
	begun, err := dead.Instances.Create(t.Context(), croft.Instance{ID: croft.NewInstanceID(),
		Project: croft.DefaultProject,
		Name:    "half"})
	if err != nil {
		t.Fatal(err)
	}
	c.ledger.claim(begun.ID)
	living := c.request("whole")
	sweep(t, agent)
	if !c.ledger.holds(begun.ID) {
		t.Fatal("a living scheduler's claim was swept")
	}
	if err := dead.Close(); err != nil {
		t.Fatal(err)
	}
	sweep(t, agent)
	if c.ledger.holds(begun.ID) || !c.ledger.holds(living.ID) {
		t.Error("the sweep took the wrong claim, or none")
	}
	if _, err := c.store.Instances.Instance(t.Context(), begun.ID); !errors.Is(err, croft.NotFound) {
		t.Errorf("the record of the dead scheduler is still there: %v", err)
	}
}

func TestAClaimWithoutRecordIsReleasedAtItsSecondSighting(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	agent := c.start()
	stray := croft.NewInstanceID()
	c.ledger.claim(stray)
	sweep(t, agent)
	if !c.ledger.holds(stray) {
		t.Fatal("the claim was released at its first sighting: a scheduler may be about to write its record")
	}
	sweep(t, agent)
	if c.ledger.holds(stray) {
		t.Error("the claim was not released")
	}
}

func TestAHostWhoseNameIsTakenIsOfferedUnderAnother(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.ledger.taken = "h1"
	c.start()
	if want := "h1-" + string(c.host.ID)[:8]; c.ledger.provider.Name != want {
		t.Errorf("got %q, want %q", c.ledger.provider.Name, want)
	}
}

// The host kept the other name, and the problem, until its agent was restarted.
func TestAHostTakesItsNameAgainOnceTheOtherHostIsForgotten(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.ledger.taken = "h1"
	agent := c.start()
	recorded := func() croft.Host {
		hosts, err := agent.Registry.Hosts(t.Context(), c.host.ID)
		if err != nil {
			t.Fatal(err)
		}
		return hosts[c.host.ID]
	}
	sweep(t, agent)
	if name := c.ledger.provider.Name; name == "h1" || len(recorded().Problems) != 1 {
		t.Fatalf("while the other host is there it is offered as %q, with problems %q", name, recorded().Problems)
	}
	c.ledger.mu.Lock()
	c.ledger.taken = ""
	c.ledger.mu.Unlock()
	sweep(t, agent)
	if name := c.ledger.provider.Name; name != "h1" || len(recorded().Problems) != 0 {
		t.Errorf("once the other host is forgotten it is offered as %q, with problems %q", name, recorded().Problems)
	}
}
