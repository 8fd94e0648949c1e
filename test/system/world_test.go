package system

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"croft"
	"croft/compute"
	"croft/compute/backup"
	"croft/compute/hypervisor/sim"
	"croft/compute/pci"
	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
	"croft/hosts/audit"
	"croft/internal/testing/wire"
	"croft/placement"
	"croft/placementclient"
	"croft/schedule"
	agentgate "croft/trust/gate"
	"croft/trust/gate/gatetest"
)

// anyPort makes etcd choose a port, which it then keeps.
const anyPort = "127.0.0.1:0"

// world is one installation: etcd, Placement, hosts. Its state survives the death of any process in it.
type world struct {
	t      *testing.T
	seed   uint64
	dir    string
	etcd   *etcdserver.Server
	listen string
	store  *etcdstore.Store // the test's
	claims *placementclient.Client
	hosts  []*machine
	front  *gatetest.Front // the agents' only access; nil: they use etcd and Placement directly
	full   bool            // hosts have shared storage, too
	// all hosts; hosts lacks the ones that are away while the world settles
	machines []*machine

	repository *repository          // of backups
	keeping    atomic.Pointer[gate] // of the process that carries out requests for backups

	schedulers    atomic.Int64 // so far
	placementDown atomic.Bool
	placing       sync.Mutex
	placement     *placementProcess // guarded by placing
	original      string            // address of OpenStack's Placement behind that process; empty: it is croft's own
	faulty        float64
	calmed        atomic.Bool // the faults have ended
	mood          mood
	calls         atomic.Uint64 // numbers random choices, each with its own seed
	gates         atomic.Uint64 // numbers the gates
	history       *etcdtest.History
	caretaker     *gate           // of a separate caretaker process; nil: agents are caretakers
	without       map[string]bool // disabled fixes
	forgetting    sync.Mutex      // held while a host is being forgotten

	tally *tally

	mu     sync.Mutex
	facts  map[croft.InstanceID]*fact
	doomed map[croft.InstanceID]bool // a destroy was tried, maybe while the request ran: it may or may not exist
	forced map[croft.InstanceID]bool // destroyed by force: the claim goes at once, and the guest may outlive it
	reused map[croft.InstanceID]bool // UUIDs used by two instances in succession: either may exist
	broken []string                  // violations seen during the run
	forgot map[croft.HostID]bool     // hosts that were forgotten at some time

	data *dataLog // what the guests wrote
}

// fact is what the test knows about one instance.
type fact struct {
	name      string
	created   bool // a request was acknowledged
	refused   bool // a request failed permanently: nothing may be left
	destroyed bool // a destroy that started after the answer was acknowledged
	held      bool // it was requested as a hold
	ended     int  // acknowledged uses and releases of the hold

	label    string // the value of its property labelKey that was requested; empty: none
	labelled bool   // that was acknowledged

	unprotected int // how often the end of its protection was requested
	ending      int // such requests that go on
	protected   int // one more than that when its protection was last acknowledged; 0: never
}

// machine is a host: its guests, identity and files outlive its agent.
type machine struct {
	w        *world
	n        int
	id       croft.HostID
	archs    []croft.Arch // of its guests; empty: x86_64
	hv       *sim.Hypervisor
	defining sync.WaitGroup // calls that are late because nothing orders them
	dir      string
	wire     *wire.Wire       // between its agent and etcd
	slow     atomic.Bool      // its hypervisor is slow
	dead     atomic.Bool      // its hypervisor answers only the test
	api      *httptest.Server // from which other hosts copy disks

	hand sync.Mutex // held while agents are started or ended
	gate *gate
	stop func() // nil: no agent runs
	away bool   // without power until the test restores it

	frozen freezer
	key    backup.HostKey
	pci    pci.Source // two GPUs

	agent     *compute.Agent    // the latest
	inventory compute.Inventory // its agents' view of Placement, if it differs from the world's
}

func newWorld(t *testing.T, seed uint64, hosts int, faulty float64) *world {
	t.Helper()
	return newWorldWith(t, seed, hosts, faulty, false)
}

func newWorldWith(t *testing.T, seed uint64, hosts int, faulty float64, full bool) *world {
	t.Helper()
	w := &world{full: full, t: t, seed: seed, dir: t.TempDir(), listen: anyPort, faulty: faulty,
		facts: map[croft.InstanceID]*fact{}, doomed: map[croft.InstanceID]bool{}, reused: map[croft.InstanceID]bool{},
		forced:  map[croft.InstanceID]bool{},
		tally:   &tally{count: map[string]int{}, lines: map[croft.InstanceID][]string{}},
		without: takenOut(), mood: newMood(seed), data: newDataLog(),
		forgot: map[croft.HostID]bool{}}
	w.repository = newRepository()
	w.startEtcd()
	t.Cleanup(func() { w.etcd.Close() })
	t.Cleanup(func() { etcdtest.CheckDump(t, "http://"+w.listen) })
	w.history = etcdtest.Record(t, "http://"+w.listen)
	w.store = w.open()
	w.startPlacement()
	agentsSee := w.listen
	if seed%2 == 0 {
		w.startFront()
		agentsSee = w.front.Address
	}
	for n := range hosts {
		m := &machine{w: w, n: n, id: croft.NewHostID(), dir: filepath.Join(w.dir, fmt.Sprintf("host%d", n)),
			wire: wire.New(t, agentsSee), frozen: freezer{locks: map[croft.InstanceID]bool{}}}
		if n%2 == 1 {
			m.archs = croft.Archs()
		}
		hv, err := sim.New(sim.Config{Fault: m.drag, Late: m.lag, Arch: m.archs, Subnet: guestSubnet})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.defining.Wait(); _ = hv.Close() })
		m.hv, m.pci = hv, gpusOf(t)
		m.api = httptest.NewTLSServer(http.HandlerFunc(m.answer))
		t.Cleanup(m.api.Close)
		if m.key, err = backup.OpenHostKey(m.dir + ".backup-key"); err != nil {
			t.Fatal(err)
		}
		w.hosts = append(w.hosts, m)
		t.Cleanup(m.kill)
	}
	w.machines = w.hosts
	for _, m := range w.hosts {
		m.boot(0)
	}
	w.awaitHosts()
	if full {
		w.startBackups()
	}
	return w
}

// startFront makes agents use a gate, and runs a caretaker for records that belong to no host.
func (w *world) startFront() {
	store := w.open()
	w.front = gatetest.Start(w.t, store.Partition(), agentgate.ServerConfig{Orders: store.Orders,
		Registry: store.Registry, Records: store.Records, Volumes: store.Volumes, Backups: store.Backups,
		Images: store.Images, Inventory: w.claims, Usable: store.Usable})
	w.caretaker = w.gate(0)
	side := &agentSide{gate: w.caretaker, Records: store.Records, Shared: w.worseShared(store.Turn),
		Inventory: w.worseInventory(w.claims)}
	caretaker := &audit.Caretaker{Records: side, Shared: side, Inventory: side, Every: 100 * time.Millisecond,
		Volumes: w.volumes(w.caretaker, store), Resizes: w.resizes(w.caretaker, store),
		Images: w.catalog(w.caretaker, store),
		Log:    slog.New(slog.DiscardHandler)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	ended := make(chan struct{})
	go func() { defer close(ended); _ = caretaker.Run(ctx) }()
	w.t.Cleanup(func() { cancel(); w.caretaker.resume(); <-ended; w.caretaker.late.Wait() })
}

// awaitHosts returns when all hosts take orders.
func (w *world) awaitHosts() {
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	_ = w.store.Instances.WatchInstances(ctx, func() {
		hosts, err := w.store.Registry.Hosts(ctx)
		alive := 0
		for _, h := range hosts {
			if m := w.machineOrNil(h.ID); h.Alive && len(h.Storages) == len(m.sharedDirs(m.gate)) {
				alive++
			}
		}
		if err == nil && alive == len(w.hosts) {
			cancel()
		}
	})
}

func (w *world) startEtcd() {
	server, err := etcdserver.Start(context.WithoutCancel(w.t.Context()),
		etcdserver.Config{Dir: filepath.Join(w.dir, "etcd"), Listen: w.listen, Unsynced: true})
	if err != nil {
		w.t.Fatal(err)
	}
	w.etcd = server
	if w.listen == anyPort {
		w.listen = server.Endpoint()[len("http://"):]
	}
}

// restartEtcd stops etcd for a moment, as a restart of its process does, and the gate with it, if any.
func (w *world) restartEtcd() {
	w.etcd.Close()
	w.startEtcd()
	if w.front != nil {
		w.front.Restart(w.t)
	}
}

func (w *world) open() *etcdstore.Store {
	w.t.Helper()
	return w.openAt(w.listen)
}

func (w *world) openAt(address string) *etcdstore.Store {
	w.t.Helper()
	store, err := etcdstore.Open(w.t.Context(), etcdstore.Config{Endpoints: []string{"http://" + address},
		DialTimeout: time.Minute, SessionTTL: 2 * time.Second, Mint: true})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = store.Close() })
	return store
}

// gate returns a process's gate. last is the number of crossings until the process dies; 0: no limit.
func (w *world) gate(last int) *gate {
	faulty := w.faulty
	if w.calmed.Load() {
		faulty = 0
	}
	return w.newGate(w.seed+w.calls.Add(1)*7919, faulty, last-1)
}

func noMissing(_ context.Context, ref string) error {
	if ref == missing {
		return croft.Errorf(croft.NotFound, "there is no image %s", ref)
	}
	return nil
}

// boot starts the host's agent, unless it runs or the host has no power. last: as for gate.
func (m *machine) boot(last int) {
	m.hand.Lock()
	defer m.hand.Unlock()
	if m.away || m.stop != nil && !m.gate.isDead() {
		return
	}
	m.end()
	w := m.w
	m.gate = w.gate(last)
	m.gate.expire = m.expire
	m.gate.stop = func(stopped bool) {
		if stopped {
			m.wire.Hold()
		} else {
			m.wire.Flow()
		}
	}
	m.wire.Mend() // otherwise the agent could not start
	m.wire.Flow()
	side, partition, store, end := m.connect()
	var shared audit.Shared
	var requests audit.Volumes
	var sizes audit.Resizes
	var catalog audit.Images
	if side.Shared != nil {
		shared, requests, sizes = side, w.volumes(m.gate, store), w.resizes(m.gate, store)
		catalog = w.catalog(m.gate, store)
	}
	host := croft.Host{ID: m.id, Name: fmt.Sprintf("host%d", m.n), VirtType: "sim",
		Location: fmt.Sprintf("s/r/k%d", m.n%2), API: m.api.URL, Token: string(m.id), Images: true,
		BackupKey: m.key.Public(), Arch: m.archs}
	machines, err := m.hv.Machines(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	facts := compute.Facts{CPUs: hostCPUs, MemoryMiB: hostMemory, DiskGiB: hostDisk, Machines: machines}
	agent, err := compute.New(compute.Config{
		Peers:   func(croft.Host) (*http.Client, error) { return m.api.Client(), nil },
		Volumes: &agentVolumes{m.gate, side.volumes}, VolumeRequests: requests, Resizes: sizes,
		Storages: side, SharedDirs: m.sharedDirs(m.gate),
		Copies: agentImages{m, m.gate, side.copies}, CopyFiles: m.copyFiles(), Catalog: catalog,
		Backups: agentBackups{m.gate, side.backups}, Key: m.key, Repository: gatedRepository{m.gate, w.repository},
		PCI:  m.pci,
		Host: host, Partition: partition, Provider: compute.Offer{VCPURatio: 1}.Provider(host, partition, facts),
		Dir: m.dir, NICs: []compute.NIC{{Network: "default"}},
		GuestAddresses: func(ctx context.Context) ([]string, error) { return m.hv.GuestAddresses(ctx, "default") },
		Orders:         side, Registry: side, Records: side, Shared: shared, Inventory: side,
		Hypervisor:  &gatedHypervisor{m.gate, &worseHypervisor{m.hv, m}},
		Images:      originImages{sim.Images{Fault: noMissing}, m.dir + "-cache"},
		ResyncEvery: 100 * time.Millisecond, SweepEvery: 100 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		w.t.Fatal(err)
	}
	m.agent = agent
	g := m.gate
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = agent.Run(ctx, func() {})
		g.late.Wait()
		end()
	}()
	m.stop = sync.OnceFunc(func() { cancel(); <-ended })
}

// What a host offers.
const (
	hostCPUs   = 4
	hostMemory = 4096
	hostDisk   = 80
)

// answer serves the API of the host's agent, if it has one that runs.
func (m *machine) answer(rw http.ResponseWriter, r *http.Request) {
	agent := m.answering(r.Context())
	if agent == nil {
		panic(http.ErrAbortHandler)
	}
	(&compute.API{Agent: agent, Token: string(m.id)}).Handler().ServeHTTP(rw, r)
}

// connect returns the view of the world of the host's next agent, with its store unless it uses a gate.
func (m *machine) connect() (side *agentSide, p croft.PartitionID, store *etcdstore.Store, end func()) {
	w := m.w
	if w.front != nil {
		c := w.front.Client(w.t, m.id, m.wire.Address())
		end = func() { _ = c.Close() }
		return &agentSide{gate: m.gate, Orders: w.worseOrders(c), Registry: c, Records: c,
			Inventory: w.worseInventory(c), hangUp: end, volumes: c, copies: c, backups: c}, c.Partition(), nil, end
	}
	store = w.openAt(m.wire.Address())
	end = sync.OnceFunc(func() { _ = store.Close() })
	inventory := w.worseInventory(cmp.Or[compute.Inventory](m.inventory, w.claims))
	return &agentSide{gate: m.gate, Orders: w.worseOrders(store.Orders), Registry: store.Registry,
			Records: store.Records,
			Shared:  w.worseShared(store.Turn), Inventory: inventory, hangUp: end, volumes: store.Volumes,
			storages: store.Storages, copies: store.Images, backups: store.Backups},
		store.Partition(), store, end
}

// looking marks the context of the test's calls.
type looking struct{}

// runs reports whether a guest of an instance runs on the host.
func (m *machine) runs(id croft.InstanceID) bool {
	d, err := m.hv.Get(context.WithValue(m.w.t.Context(), looking{}, true), id)
	return err == nil && d.Power == compute.PowerOn
}

// drag delays a hypervisor's calls while it is slow.
func (m *machine) drag(ctx context.Context, op string, id croft.InstanceID) error {
	if m.dead.Load() && ctx.Value(looking{}) == nil {
		return croft.Errorf(croft.Unavailable, "libvirtd is dead")
	}
	if op == sim.OpStart {
		if err := m.w.lockedByQEMU(id, m.files(id), m); err != nil {
			return err
		}
	}
	if !m.slow.Load() {
		return nil
	}
	select {
	case <-ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
	return nil
}

// lag makes calls of a slow hypervisor take effect late, when their callers may have left.
func (m *machine) lag(string, croft.InstanceID) {
	if m.slow.Load() {
		<-time.After(100 * time.Millisecond)
	}
}

// kill ends the agent as kill -9 does: it does nothing more, and its lease lives on for a while.
func (m *machine) kill() {
	m.hand.Lock()
	defer m.hand.Unlock()
	m.end()
}

// end kills the agent, if one runs. It requires that m.hand is held.
func (m *machine) end() {
	if m.stop != nil {
		m.gate.die()
		m.gate.resume() // otherwise its connections would stay suspended
		m.stop()
		m.stop = nil
	}
}

// cut keeps the host's agent away from etcd. An agent that is being started has its connection by then.
func (m *machine) cut() {
	m.hand.Lock()
	defer m.hand.Unlock()
	m.wire.Cut()
}

// expire ends the lease of the host's agent. A live agent takes another one.
func (m *machine) expire() {
	// leases survive while etcd is down
	_ = etcdtest.Expire(m.w.t.Context(), "http://"+m.w.listen, m.w.store.Partition(), "agents/"+string(m.id))
}

// leave ends the agent as a signal does.
func (m *machine) leave() {
	m.hand.Lock()
	defer m.hand.Unlock()
	if m.stop != nil {
		m.gate.resume()
		m.stop()
		m.stop = nil
	}
}

// lose cuts the host's power until restore.
func (m *machine) lose() {
	m.hand.Lock()
	defer m.hand.Unlock()
	m.away = true
	m.end()
	defer m.powerLost()
	ctx := context.WithValue(m.w.t.Context(), looking{}, true)
	domains, err := m.hv.List(ctx)
	if err != nil {
		m.w.t.Errorf("host%d: %v", m.n, err)
	}
	for _, d := range domains {
		if err := m.hv.Stop(ctx, d.ID); err != nil && !errors.Is(err, croft.NotFound) { // removed meanwhile
			m.w.t.Errorf("host%d: %v", m.n, err)
		}
	}
	m.expire()
}

// restore restores the host's power.
func (m *machine) restore() {
	m.hand.Lock()
	defer m.hand.Unlock()
	m.away = false
}

// scheduler runs do as one command: a process with a separate connection, which may die in the middle.
func (w *world) scheduler(last int, do func(*schedule.Scheduler) error) error {
	return w.connected(last, func(s *schedule.Scheduler, _ *etcdstore.Store) error { return do(s) })
}

// connected is scheduler, for a process that also uses its connection for other things.
func (w *world) connected(last int, do func(*schedule.Scheduler, *etcdstore.Store) error) error {
	g := w.gate(last)
	store := w.open()
	defer func() { _ = store.Close() }()
	defer g.late.Wait()
	side := &schedulerSide{w: w, gate: g, Records: w.worseRequests(store.Instances),
		Holds: store.Instances, View: store.Instances, Registry: store.Registry, Groups: store.Groups, Claims: w.claims}
	g.expire = side.expire
	config := schedule.Config{Partition: store.Partition(), Records: side, Holds: side, View: side,
		Registry: side, Groups: side, Claims: side, Volumes: w.volumes(g, store),
		UndoTimeout: 5 * time.Second, Backoff: time.Millisecond}
	if w.schedulers.Add(1)%3 == 0 { // like a server of the API, with the state of Placement in its memory
		defer w.inOneStep(&config, side, store)()
	}
	s, err := schedule.New(config)
	if err != nil {
		w.t.Fatal(err)
	}
	return do(s, store)
}

// inOneStep gives a scheduler a separate ledger, unless that cannot be loaded.
func (w *world) inOneStep(c *schedule.Config, side *schedulerSide, store *etcdstore.Store) (end func()) {
	server, err := placement.New(placement.Config{Store: store.Placement(0), Log: slog.New(slog.DiscardHandler),
		Retry: 20 * time.Millisecond})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	var work sync.WaitGroup
	work.Go(func() { _ = server.Run(ctx) })
	loading, loaded := context.WithTimeout(ctx, time.Second)
	defer loaded()
	if server.WaitReady(loading) == nil {
		side.Claims = localClaims{side.Claims, server}
		placer := &gatedPlacer{side.gate, store.NewPlacer(server.Ledger())}
		c.Placer = func() schedule.Placer { return placer }
	}
	return func() { cancel(); work.Wait() }
}

// localClaims searches candidates in memory.
type localClaims struct {
	schedule.Claims
	server *placement.Server
}

func (c localClaims) Candidates(ctx context.Context, query string, limit int) ([]croft.Candidate, error) {
	return c.server.Candidates(ctx, query, limit)
}

// gatedPlacer is a Placer whose process may die before and after each call. The tests of etcdstore cover answers that
// are lost between process and etcd.
type gatedPlacer struct {
	gate *gate
	schedule.Placer
}

func (p *gatedPlacer) Place(ctx context.Context, i croft.Instance, o croft.Order, c croft.Candidate) (croft.Instance,
	error) {
	if err := p.gate.cross("before scheduler Place", i.ID); err != nil {
		return i, err
	}
	placed, err := p.Placer.Place(ctx, i, o, c)
	if gone := p.gate.cross("after scheduler Place", i.ID); gone != nil {
		return i, gone
	}
	return placed, err
}

// actor does random actions, one after the other.
type actor struct {
	*world
	rng *rand.Rand
}

func (w *world) actor(n uint64) *actor {
	return &actor{w, rand.New(rand.NewPCG(w.seed, n))}
}

// lifetime returns the number of crossings until the next process dies; most processes have no limit.
func (a *actor) lifetime() int {
	if a.rng.IntN(a.mood.dies) != 0 {
		return 0
	}
	return 1 + a.rng.IntN(12)
}

// owner returns the project to which the claim of an instance is charged.
func (w *world) owner(inst croft.Instance) croft.Owner {
	return croft.Owner{Partition: w.store.Partition(), Project: inst.Project}
}
