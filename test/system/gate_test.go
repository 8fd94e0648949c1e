package system

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"croft"
	"croft/compute"
	"croft/internal/books"
	"croft/schedule"
)

// errGate is what a fault of the test looks like to the part that meets it.
var errGate = errors.New("a fault of the test")

// gate stands between one process and everything outside it. Each crossing may
// fail before or after what it is for, and one of them may be the process's last.
type gate struct {
	mu     sync.Mutex
	rng    *rand.Rand
	faulty float64 // how likely a crossing fails, before and after alike
	last   int     // crossings left until the process dies; negative: it lives
	dead   bool
	died   chan struct{}  // closed when the process died at a crossing
	late   sync.WaitGroup // writes whose answer is lost and which are not done yet
	tally  *tally         // of the world
}

// tally is what happened at crossings, and where the next process dies.
type tally struct {
	mu    sync.Mutex
	count map[string]int // what happened -> how often
	fatal string         // the crossing that kills whoever comes there first; empty: none
}

// note counts a crossing. True: whoever is there dies.
func (t *tally) note(crossing string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count["crossed "+crossing]++
	if t.fatal != crossing {
		return false
	}
	t.fatal = ""
	return true
}

// kill has the next process die at a crossing.
func (t *tally) kill(crossing string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fatal = crossing
}

func (t *tally) counts() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.count)
}

func (t *tally) add(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count[what]++
}

func (w *world) newGate(seed uint64, faulty float64, last int) *gate {
	return &gate{rng: rand.New(rand.NewPCG(seed, 1)), faulty: faulty, last: last, died: make(chan struct{}), tally: w.tally}
}

// cross asks whether to go on; called before and after each operation, and the
// crossing says of which one.
func (g *gate) cross(crossing string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dead {
		return errGate
	}
	if fatal := g.tally.note(crossing); fatal || g.last == 0 {
		g.dead = true
		close(g.died)
		g.tally.add("died " + crossing)
		return errGate
	}
	g.last--
	if g.rng.Float64() < g.faulty {
		g.tally.add("failed " + crossing)
		return croft.Errorf(croft.Unavailable, "%w", errGate)
	}
	return nil
}

// mayBeLate are the writes that are done late at times, with their answers lost, as in an etcd whose disk stands
// still for a while. Whoever makes them has to know what became of them, or leave it to others.
var mayBeLate = map[string]bool{
	"scheduler Assign": true, "scheduler Reorder": true, "scheduler Discard": true, "scheduler Bury": true, "scheduler Claim": true,
	"operator SetMoving": true, "operator Relocate": true, "operator Reorder": true, "operator Reclaim": true, "operator Bury": true,
}

// delayed tells whether a write is to be done late, and by how much.
func (g *gate) delayed(point string) (by time.Duration, yes bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !mayBeLate[point] || g.rng.Float64() >= 3*g.faulty {
		return 0, false
	}
	g.tally.add("late " + point)
	return time.Duration(g.rng.IntN(30)) * time.Millisecond, true
}

// die ends the process: it does nothing any more.
func (g *gate) die() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dead = true
}

// calm ends the faults.
func (g *gate) calm() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.faulty, g.last = 0, -1
}

// through does something that returns a value between two crossings.
func through[T any](g *gate, point string, do func() (T, error)) (T, error) {
	var none T
	if err := g.cross("before " + point); err != nil {
		return none, err
	}
	if by, late := g.delayed(point); late {
		g.late.Go(func() {
			time.Sleep(by)
			_, _ = do()
		})
		return none, croft.Errorf(croft.Unavailable, "%w: the answer is lost", errGate)
	}
	v, err := do()
	if gone := g.cross("after " + point); gone != nil {
		return none, gone
	}
	return v, err
}

func (g *gate) do(point string, do func() error) error {
	_, err := through(g, point, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

// agentSide is what an agent sees of the world, through its gate.
type agentSide struct {
	gate *gate
	compute.Orders
	compute.Registry
	compute.Records
	compute.Inventory
}

func (a *agentSide) Order(ctx context.Context, h croft.HostID, id croft.InstanceID) (croft.Order, error) {
	return through(a.gate, "agent Order", func() (croft.Order, error) { return a.Orders.Order(ctx, h, id) })
}

func (a *agentSide) Remains(ctx context.Context, h croft.HostID, id croft.InstanceID) (bool, error) {
	return through(a.gate, "agent Remains", func() (bool, error) { return a.Orders.Remains(ctx, h, id) })
}

func (a *agentSide) Observe(ctx context.Context, o croft.Observation) error {
	return a.gate.do("agent Observe", func() error { return a.Orders.Observe(ctx, o) })
}

func (a *agentSide) Forget(ctx context.Context, o croft.Order) error {
	return a.gate.do("agent Forget", func() error { return a.Orders.Forget(ctx, o) })
}

func (a *agentSide) PutHost(ctx context.Context, h croft.Host) error {
	return a.gate.do("agent PutHost", func() error { return a.Registry.PutHost(ctx, h) })
}

func (a *agentSide) Instance(ctx context.Context, id croft.InstanceID) (croft.Instance, error) {
	return through(a.gate, "agent Instance", func() (croft.Instance, error) { return a.Records.Instance(ctx, id) })
}

func (a *agentSide) Books(ctx context.Context) (books.Books, error) {
	return through(a.gate, "agent Books", func() (books.Books, error) { return a.Records.Books(ctx) })
}

func (a *agentSide) HostBooks(ctx context.Context, h croft.HostID, more ...croft.InstanceID) (books.Books, error) {
	return through(a.gate, "agent HostBooks", func() (books.Books, error) { return a.Records.HostBooks(ctx, h, more...) })
}

func (a *agentSide) Drop(ctx context.Context, d books.Difference) error {
	return a.gate.do("agent Drop", func() error { return a.Records.Drop(ctx, d) })
}

func (a *agentSide) Fence(ctx context.Context, i croft.Instance) (croft.Instance, error) {
	return through(a.gate, "agent Fence", func() (croft.Instance, error) { return a.Records.Fence(ctx, i) })
}

func (a *agentSide) TakeTurn(ctx context.Context, length time.Duration) (bool, error) {
	return through(a.gate, "agent TakeTurn", func() (bool, error) { return a.Records.TakeTurn(ctx, length) })
}

func (a *agentSide) Discard(ctx context.Context, inst croft.Instance) error {
	return a.gate.do("agent Discard", func() error { return a.Records.Discard(ctx, inst) })
}

func (a *agentSide) EnsureProvider(ctx context.Context, p croft.Provider) error {
	return a.gate.do("agent EnsureProvider", func() error { return a.Inventory.EnsureProvider(ctx, p) })
}

func (a *agentSide) Claims(ctx context.Context, h croft.HostID) (map[croft.InstanceID]croft.Resources, error) {
	return through(a.gate, "agent Claims", func() (map[croft.InstanceID]croft.Resources, error) { return a.Inventory.Claims(ctx, h) })
}

func (a *agentSide) Release(ctx context.Context, id croft.InstanceID, on ...croft.HostID) error {
	return a.gate.do("agent Release", func() error { return a.Inventory.Release(ctx, id, on...) })
}

// gatedHypervisor is the agent's hypervisor through its gate.
type gatedHypervisor struct {
	gate *gate
	compute.Hypervisor
}

func (h *gatedHypervisor) List(ctx context.Context) ([]compute.Domain, error) {
	return through(h.gate, "hypervisor List", func() ([]compute.Domain, error) { return h.Hypervisor.List(ctx) })
}

func (h *gatedHypervisor) Get(ctx context.Context, id croft.InstanceID) (compute.Domain, error) {
	return through(h.gate, "hypervisor Get", func() (compute.Domain, error) { return h.Hypervisor.Get(ctx, id) })
}

func (h *gatedHypervisor) Define(ctx context.Context, m compute.Machine) error {
	return h.gate.do("hypervisor Define", func() error { return h.Hypervisor.Define(ctx, m) })
}

func (h *gatedHypervisor) Mark(ctx context.Context, id croft.InstanceID, generation int64) error {
	return h.gate.do("hypervisor Mark", func() error { return h.Hypervisor.Mark(ctx, id, generation) })
}

func (h *gatedHypervisor) Start(ctx context.Context, id croft.InstanceID) error {
	return h.gate.do("hypervisor Start", func() error { return h.Hypervisor.Start(ctx, id) })
}

func (h *gatedHypervisor) Stop(ctx context.Context, id croft.InstanceID) error {
	return h.gate.do("hypervisor Stop", func() error { return h.Hypervisor.Stop(ctx, id) })
}

func (h *gatedHypervisor) Remove(ctx context.Context, id croft.InstanceID) error {
	return h.gate.do("hypervisor Remove", func() error { return h.Hypervisor.Remove(ctx, id) })
}

// schedulerSide is what a scheduler sees of the world, through its gate.
type schedulerSide struct {
	gate *gate
	schedule.Records
	schedule.View
	schedule.Claims
}

func (s *schedulerSide) Create(ctx context.Context, i croft.Instance) (croft.Instance, error) {
	return through(s.gate, "scheduler Create", func() (croft.Instance, error) { return s.Records.Create(ctx, i) })
}

func (s *schedulerSide) Assign(ctx context.Context, i croft.Instance, o croft.Order) (croft.Instance, error) {
	return through(s.gate, "scheduler Assign", func() (croft.Instance, error) { return s.Records.Assign(ctx, i, o) })
}

func (s *schedulerSide) Fence(ctx context.Context, i croft.Instance) (croft.Instance, error) {
	return through(s.gate, "scheduler Fence", func() (croft.Instance, error) { return s.Records.Fence(ctx, i) })
}

func (s *schedulerSide) Discard(ctx context.Context, i croft.Instance) error {
	return s.gate.do("scheduler Discard", func() error { return s.Records.Discard(ctx, i) })
}

func (s *schedulerSide) Reorder(ctx context.Context, i croft.Instance, o croft.Order) (croft.Instance, error) {
	return through(s.gate, "scheduler Reorder", func() (croft.Instance, error) { return s.Records.Reorder(ctx, i, o) })
}

func (s *schedulerSide) Bury(ctx context.Context, i croft.Instance, o croft.Order) error {
	return s.gate.do("scheduler Bury", func() error { return s.Records.Bury(ctx, i, o) })
}

func (s *schedulerSide) Find(ctx context.Context, p croft.Project, id string) (croft.Status, error) {
	return through(s.gate, "scheduler Find", func() (croft.Status, error) { return s.View.Find(ctx, p, id) })
}

func (s *schedulerSide) Hosts(ctx context.Context, ids ...croft.HostID) (map[croft.HostID]croft.Host, error) {
	return through(s.gate, "scheduler Hosts", func() (map[croft.HostID]croft.Host, error) { return s.View.Hosts(ctx, ids...) })
}

func (s *schedulerSide) Candidates(ctx context.Context, query string, limit int) ([]croft.Candidate, error) {
	return through(s.gate, "scheduler Candidates", func() ([]croft.Candidate, error) { return s.Claims.Candidates(ctx, query, limit) })
}

func (s *schedulerSide) Claim(ctx context.Context, id croft.InstanceID, p croft.Project, c croft.Candidate) error {
	return s.gate.do("scheduler Claim", func() error { return s.Claims.Claim(ctx, id, p, c) })
}

func (s *schedulerSide) Release(ctx context.Context, id croft.InstanceID, on ...croft.HostID) error {
	return s.gate.do("scheduler Release", func() error { return s.Claims.Release(ctx, id, on...) })
}
