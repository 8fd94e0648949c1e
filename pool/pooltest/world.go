package pooltest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"croft"
	"croft/pool"
)

// World holds the machines and processes that the hooks of a test change. It outlives all servers.
type World struct {
	// Trouble is how many of 100 runs of a hook fail; as many hang.
	Trouble map[pool.HookKind]int
	// Max is how many machines of a pool may exist at once; other pools are not limited.
	Max map[string]int

	mu       sync.Mutex
	random   *rand.Rand
	machines map[string]*machine // by name
	running  map[*process]bool
	started  map[pool.ResourceID]bool
	sick     map[string]bool // pools whose every start fails
	broke    chan struct{}   // closed when a machine breaks
	broken   []string        // violated invariants
}

// machine is the simulated machine of a resource.
type machine struct {
	instance croft.InstanceID // empty if the resource is no instance
	pool     string
	user     string // sandbox that has used it since it was made or cleaned
	first    string // sandbox that used it first
	dead     bool
}

// process is a running hook.
type process struct {
	kind   pool.HookKind
	id     pool.ResourceID
	told   []byte // output so far
	orphan bool   // its server has crashed
	killed chan struct{}
}

// NewWorld returns an empty world with this source of randomness.
func NewWorld(random *rand.Rand) *World {
	return &World{Trouble: map[pool.HookKind]int{}, random: random, machines: map[string]*machine{},
		running: map[*process]bool{}, started: map[pool.ResourceID]bool{},
		sick: map[string]bool{}, broke: make(chan struct{})}
}

// Hooks are the hooks of one server.
type Hooks struct {
	*World
	crashed bool
}

var _ pool.Hooks = (*Hooks)(nil)

// Hooks returns the hooks of a new server.
func (w *World) Hooks() *Hooks { return &Hooks{World: w} }

// Crash leaves this server's processes running, as an end by SIGKILL does.
func (h *Hooks) Crash() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.crashed = true
}

// Broken returns the violated invariants.
func (w *World) Broken() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.broken)
}

func (w *World) wrong(format string, args ...any) {
	w.broken = append(w.broken, fmt.Sprintf(format, args...))
}

// Machines are the names of the existing machines.
func (w *World) Machines() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Sorted(maps.Keys(w.machines))
}

// Running returns the number of running processes, and how many of them have no server any more.
func (w *World) Running() (all, orphans int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.running {
		all++
		if p.orphan {
			orphans++
		}
	}
	return all, orphans
}

// Break makes the livechecks of some machine fail from now on.
func (w *World) Break() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if names := slices.Sorted(maps.Keys(w.machines)); len(names) > 0 {
		w.machines[names[w.random.IntN(len(names))]].dead = true
		close(w.broke)
		w.broke = make(chan struct{})
	}
}

// Ail makes all starts of a pool fail from now on, or ends that.
func (w *World) Ail(name string, sick bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sick[name] = sick
}

// Abandon removes a machine that a manager has given up, as its user may have to.
func (w *World) Abandon(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.machines, name)
}

// add adds a machine; the caller holds the world's lock.
func (w *World) add(name string, m *machine) {
	w.machines[name] = m
	n := 0
	for _, other := range w.machines {
		if other.pool == m.pool {
			n++
		}
	}
	if most, bounded := w.Max[m.pool]; bounded && n > most {
		w.wrong("pool %s has %d machines, more than %d", m.pool, n, most)
	}
}

// Held checks that an assigned machine exists, and that nothing cleans or deletes it.
func (w *World) Held(id pool.ResourceID, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.machines[name] == nil {
		w.wrong("%s, which somebody has, does not exist", name)
	}
	for p := range w.running {
		if p.id == id && p.kind != pool.HookLivecheck {
			w.wrong("%s of resource %d runs while somebody has it", p.kind, id)
		}
	}
}

// Use records that a sandbox uses a machine, of a pool that may clean it.
func (w *World) Use(name, sandbox string, cleans bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	m := w.machines[name]
	switch {
	case m == nil:
		w.wrong("sandbox %s was given %s, which does not exist", sandbox, name)
	case m.first != "" && m.first != sandbox:
		w.wrong("sandbox %s was given %s, which %s had used", sandbox, name, m.first)
	case cleans && m.user != "":
		w.wrong("sandbox %s was given %s, which was not cleaned", sandbox, name)
	default:
		m.first, m.user = sandbox, sandbox
	}
}

// fate is the outcome of a run of a hook.
type fate struct {
	takes  time.Duration
	fails  bool
	leaves bool // a failing start leaves its machine behind
}

func (w *World) fate(kind pool.HookKind, of string) fate {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := fate{takes: time.Duration(w.random.IntN(4000)) * time.Millisecond, leaves: w.random.IntN(2) == 0}
	if kind == pool.HookNew && w.sick[of] {
		f.fails = true
		return f
	}
	switch roll, trouble := w.random.IntN(100), w.Trouble[kind]; {
	case roll < trouble:
		f.fails = true
	case roll < 2*trouble:
		f.takes = 1000 * time.Hour
	}
	return f
}

var (
	errStatus = errors.New("the command ended with status 1")
	errKilled = errors.New("the command was ended by signal 9 (killed)")
)

// Run implements pool.Hooks.
func (h *Hooks) Run(ctx context.Context, hook pool.Hook) ([]byte, error) {
	f := h.fate(hook.Kind, variable(hook, "POOL_ID"))
	p := &process{kind: hook.Kind, id: hook.Resource, killed: make(chan struct{})}
	h.mu.Lock()
	if ctx.Err() != nil { // no process starts any more
		h.mu.Unlock()
		return nil, ctx.Err()
	}
	for other := range h.running {
		if other.id == p.id && p.id != 0 && (other.kind == p.kind || other.kind != pool.HookLivecheck &&
			p.kind != pool.HookLivecheck) {
			h.wrong("%s and %s of resource %d run at once", other.kind, p.kind, p.id)
		}
	}
	if p.kind == pool.HookNew && h.started[p.id] {
		h.wrong("resource %d is started twice", p.id)
	}
	h.started[p.id] = h.started[p.id] || p.kind == pool.HookNew
	h.running[p] = true
	h.mu.Unlock()
	limit, cancel := context.WithTimeout(context.Background(), hook.Limit)
	defer cancel()
	select {
	case <-time.After(f.takes / 2):
	case <-limit.Done():
	case <-p.killed:
		return nil, errKilled
	case <-ctx.Done():
		return h.leave(ctx, p, hook, f)
	}
	h.half(p, hook, f)
	select {
	case <-time.After(f.takes - f.takes/2):
		return h.end(p, hook, f)
	case <-limit.Done():
		h.gone(p)
		return p.told, croft.Errorf(croft.Unavailable, "the command was killed at its limit")
	case <-p.killed:
		return nil, errKilled
	case <-ctx.Done():
		return h.leave(ctx, p, hook, f)
	}
}

// leave ends a process with its server, or leaves it running after a crash.
func (h *Hooks) leave(ctx context.Context, p *process, hook pool.Hook, f fate) ([]byte, error) {
	h.mu.Lock()
	crashed := h.crashed
	p.orphan = crashed
	lingers := time.Duration(h.random.IntN(2000)) * time.Millisecond
	h.mu.Unlock()
	if !crashed {
		select {
		case <-p.killed:
		case <-time.After(lingers):
		}
		h.gone(p)
		return p.told, ctx.Err()
	}
	go func() {
		select {
		case <-p.killed:
			return
		case <-time.After(f.takes):
		}
		h.half(p, hook, f)
		_, _ = h.end(p, hook, f) // the result reaches no server
	}()
	return nil, ctx.Err()
}

func (w *World) gone(p *process) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.running, p)
}

// variable reads a variable of a hook's environment.
func variable(h pool.Hook, name string) string {
	for _, v := range h.Env {
		if value, ok := strings.CutPrefix(v, "RESALLOC_"+name+"="); ok {
			return value
		}
	}
	return ""
}

// half applies the effect that a hook has after half of its time: a start has made its machine.
func (w *World) half(p *process, h pool.Hook, f fate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.Kind != pool.HookNew || f.fails && !f.leaves || !w.running[p] {
		return
	}
	name := variable(h, "NAME")
	w.add(name, &machine{pool: variable(h, "POOL_ID")})
	p.told = []byte("made " + name + "\n")
}

// end applies the final effect of a hook.
func (w *World) end(p *process, h pool.Hook, f fate) ([]byte, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.running[p] {
		return nil, errKilled
	}
	delete(w.running, p)
	if f.fails {
		return p.told, errStatus
	}
	name := variable(h, "NAME")
	m := w.machines[name]
	switch h.Kind {
	case pool.HookDelete:
		delete(w.machines, name)
	case pool.HookRelease:
		if m != nil {
			m.user = ""
		}
	case pool.HookLivecheck:
		if m == nil || m.dead {
			return nil, errStatus
		}
	case pool.HookList:
		var list bytes.Buffer
		for _, name := range slices.Sorted(maps.Keys(w.machines)) {
			if w.machines[name].pool == variable(h, "POOL_ID") {
				fmt.Fprintln(&list, name)
			}
		}
		return list.Bytes(), nil
	}
	return p.told, nil
}

// Sweep implements pool.Hooks.
func (h *Hooks) Sweep(_ context.Context, spare func(pool.ResourceID) bool) (map[pool.ResourceID][]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	told := map[pool.ResourceID][]byte{}
	for p := range h.running {
		if p.kind == pool.HookNew && spare(p.id) {
			continue
		}
		if p.told != nil {
			told[p.id] = p.told
		}
		close(p.killed)
		delete(h.running, p)
	}
	return told, nil
}

// Forget implements pool.Hooks: there are no logs.
func (h *Hooks) Forget(...pool.ResourceID) {}

// Logs implements pool.Hooks.
func (h *Hooks) Logs(pool.ResourceID) []string { return nil }
