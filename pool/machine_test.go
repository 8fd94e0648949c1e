package pool_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/internal/durable"
	"croft/pool"
	"croft/pool/pooltest"
)

var (
	seed  = flag.Uint64("pool.seed", 0, "of the one run of the machine test; random runs where 0")
	runs  = flag.Int("pool.runs", 4, "runs of the machine test")
	steps = flag.Int("pool.steps", 200, "steps of each")
)

// limits of the test's pools, the same in every file.
var maxOf = map[pool.Name]int{"warm": 6, "demand": 4, "other": 3, "cloud": 2, "comes": 3}

// startingOf is the highest max_starting of any file.
var startingOf = map[pool.Name]int{"warm": 3, "demand": 2, "other": 2, "cloud": 1, "comes": 1}

// fileOf writes pools.yaml, with some random settings.
func fileOf(r *rand.Rand, with bool) string {
	var b strings.Builder
	common := "  cmd_new: new\n  cmd_delete: delete\n  cmd_livecheck: check\n  cmd_list: list\n  list_period: 5m\n" +
		"  cmd_new_timeout: 60\n  cmd_delete_timeout: 30\n  cmd_livecheck_timeout: 10\n  cmd_release_timeout: 20\n" +
		fmt.Sprintf("  livecheck_period: %d\n  livecheck_attempts: %d\n  start_delay: %d\n", 10+r.IntN(60), 1+r.IntN(3),
			r.IntN(3))
	fmt.Fprintf(&b,
		"warm:\n%s  max: 6\n  max_prealloc: %d\n  max_starting: %d\n  tags: [a, {name: b, priority: %d}]\n  cmd_release: release\n  reuse_opportunity_time: %d\n  reuse_max_count: %d\n  reuse_max_time: %d\n  named_counters: [c]\n",
		common, 1+r.IntN(3), 1+r.IntN(3), r.IntN(10), r.IntN(2)*120, r.IntN(3), r.IntN(2)*200)
	fmt.Fprintf(&b,
		"demand:\n%s  max: 4\n  max_starting: 2\n  tags: [a]\n  tags_on_demand: [{name: d, priority: 5}]\n  reuse_opportunity_time: 60\n", common)
	fmt.Fprintf(&b,
		"other:\n%s  max: 3\n  max_starting: 2\n  tags: [a]\n  tags_on_demand: [d]\n  named_counters: [c]\n", common)
	const instance = "  instance: {resources: 'VCPU:1', project: %s}\n  cmd_new_timeout: 60\n  cmd_delete_timeout: 30\n"
	fmt.Fprintf(&b, "cloud:\n"+instance+"  max: 2\n  max_prealloc: 1\n  tags: [i]\n  reuse_opportunity_time: 30\n",
		"cloud")
	if with && r.IntN(3) == 0 {
		fmt.Fprintf(&b, "comes:\n"+instance+"  max: 3\n  tags: [e]\n  ttl: 40\n", "comes")
	} else if with {
		fmt.Fprintf(&b, "comes:\n%s  max: 3\n  tags: [e]\n  ttl: 40\n", common)
	}
	return b.String()
}

// run is one run of the machine test: random servers, clients and faults.
type run struct {
	*testing.T
	random *rand.Rand
	world  *pooltest.World
	store  *pooltest.Memory
	file   string

	servers []*server
	open    map[pool.TicketID]*holder
	mutes   int                     // commits fail until this step; 0: they succeed
	cuts    bool                    // some failing commits are written in part
	lost    bool                    // the rest of a commit that was written in part is lost
	calm    time.Time               // since when one server leads and its store answers
	paused  map[pool.Name]time.Time // paused pools, and since when
	drained map[pool.Name]time.Time // drained pools, and since when
}

// server is one manager.
type server struct {
	*pool.Manager
	hooks *pooltest.Hooks
	stop  context.CancelFunc
	ended chan error
}

// holder is the owner of a ticket, and the resource that it was seen to have.
type holder struct {
	has  pool.ResourceID
	used time.Time // last use by its owner
}

// The whole manager is tested with hooks that fail and hang, servers that stop and crash, a store that answers late or
// not at all, changing files, and clients that come and go.
func TestManagerUnderAnything(t *testing.T) {
	first, n := *seed, 1
	if first == 0 {
		first, n = rand.Uint64(), *runs
	}
	for i := range n {
		s := first + uint64(i)
		t.Run(fmt.Sprint("seed ", s), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { newRun(t, s).play() })
		})
	}
}

func newRun(t *testing.T, seed uint64) *run {
	random := rand.New(rand.NewPCG(seed, 1))
	r := &run{T: t, random: random, world: pooltest.NewWorld(rand.New(rand.NewPCG(seed, 2))),
		store: pooltest.NewMemory(),
		file:  filepath.Join(t.TempDir(), "pools.yaml"), open: map[pool.TicketID]*holder{}, cuts: seed%2 == 0,
		calm: time.Now(), paused: map[pool.Name]time.Time{}, drained: map[pool.Name]time.Time{}}
	r.world.Max = map[string]int{}
	for name, most := range maxOf {
		r.world.Max[string(name)] = most
	}
	r.world.Trouble = map[pool.HookKind]int{pool.HookNew: 12, pool.HookDelete: 12, pool.HookLivecheck: 3,
		pool.HookRelease: 15, pool.HookList: 20}
	return r
}

func (r *run) write(text string) {
	if err := durable.Write(r.file, []byte(text), 0o600); err != nil { // atomically: the servers read at any time
		r.Fatal(err)
	}
}

func (r *run) start() {
	hooks := r.world.Hooks()
	m, err := pool.New(pool.Config{Partition: "00000000-0000-0000-0000-000000000001", Store: r.store, Hooks: hooks,
		Instances: pooltest.Instances{Hooks: hooks}, File: r.file,
		Me: pool.Server{Name: fmt.Sprint("server", len(r.servers)), Machine: "m"}, History: 100000})
	if err != nil {
		r.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &server{m, hooks, stop, make(chan error, 1)}
	go func() { s.ended <- m.Run(ctx) }()
	r.servers = append(r.servers, s)
}

// end stops a server, or makes it crash.
func (r *run) end(i int, crash bool) {
	s := r.servers[i]
	defer r.stir()
	if _, leads := s.Leader(); crash && leads {
		s.hooks.Crash()
		r.store.Depose()
	}
	s.stop()
	if err := <-s.ended; err != nil {
		r.Error(err)
	}
	r.servers = append(r.servers[:i:i], r.servers[i+1:]...)
}

// stir records that another server may lead from now on, or that the store answers again.
func (r *run) stir() {
	r.calm = time.Now()
	r.lost = r.lost || !r.store.CommittedAtomically()
}

// fail makes the store fail for two steps: it does not answer, or revokes the lead.
func (r *run) fail(step int) {
	err := croft.Errorf(croft.Unavailable, "no answer")
	if r.random.IntN(3) == 0 {
		err = croft.Errorf(croft.Conflict, "another server acts")
	}
	part := float64(r.random.IntN(2))
	if r.cuts && r.random.IntN(2) == 0 {
		part = r.random.Float64()
	}
	r.store.Fail(err, part)
	r.mutes = step + 2
	if l := r.leader(); l != nil {
		r.burst(l)
	}
}

// burst makes several clients send requests at once, so that one batch contains all their changes.
func (r *run) burst(l *server) {
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	var ask sync.WaitGroup
	for range 4 {
		o := r.opening()
		ask.Go(func() { _, _ = l.Open(ctx, o) }) // the outcome is unknown
	}
	for i, id := range slices.Sorted(maps.Keys(r.open)) {
		if i%2 == 0 {
			ask.Go(func() { _ = l.Close(ctx, id) })
			delete(r.open, id)
		}
	}
	ask.Wait()
}

// leader returns the server that leads; nil: none leads.
func (r *run) leader() *server {
	for _, s := range r.servers {
		if _, here := s.Leader(); here {
			return s
		}
	}
	return nil
}

func (r *run) play() {
	r.write(fileOf(r.random, true))
	defer r.endAll()
	r.start()
	r.start()
	for i := range *steps {
		if r.mutes == i {
			r.stir()
			if r.random.IntN(2) == 0 { // the written part remains
				r.store.Depose()
			}
			r.store.Fail(nil, 0)
			r.mutes = 0
		}
		r.step(i)
		time.Sleep(time.Duration(r.random.IntN(5000)) * time.Millisecond)
		synctest.Wait()
		r.check()
		if r.Failed() {
			r.Fatalf("after step %d", i)
		}
	}
	r.finish()
}

// endAll stops the servers and their remaining processes.
func (r *run) endAll() {
	for len(r.servers) > 0 {
		r.end(0, false)
	}
	if _, err := r.world.Hooks().Sweep(context.Background(), func(pool.ResourceID) bool { return false }); err != nil {
		r.Error(err)
	}
	synctest.Wait()
}

// step does one random thing.
func (r *run) step(i int) {
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	l := r.leader()
	switch roll := r.random.IntN(100); {
	case roll < 3:
		r.end(r.random.IntN(len(r.servers)), r.random.IntN(2) == 0)
		r.start()
	case roll < 5:
		r.stir()
		r.store.Depose()
	case roll < 8:
		r.fail(i)
	case roll < 11:
		r.write(fileOf(r.random, r.random.IntN(2) == 0))
	case roll < 13:
		r.write("warm:\n  cmd_new: x\n  max: many\n")
	case roll < 15:
		r.world.Break()
	case roll < 16:
		r.world.Ail([]string{"warm", "demand", "cloud"}[r.random.IntN(3)], r.random.IntN(3) == 0)
	case l == nil:
	case roll < 20:
		r.changeMode(ctx, l, []pool.Name{"warm", "demand", "other", "cloud"}[r.random.IntN(4)])
	case roll < 24:
		if all, err := l.Resources(false); err == nil && len(all) > 0 {
			r.tolerate(l.DeleteResources(ctx, all[r.random.IntN(len(all))].ID))
		}
	case roll < 30:
		r.use(ctx, l)
	case roll < 67:
		r.take(ctx, l)
	default:
		r.giveBack(ctx, l)
	}
}

// tolerate ignores errors that may occur while servers come and go.
func (r *run) tolerate(err error) {
	if err != nil && !errors.Is(err, croft.Unavailable) && !errors.Is(err, croft.NotFound) &&
		!errors.Is(err, croft.Conflict) {
		r.Error(err)
	}
}

// opening is a random request by one of a few owners.
func (r *run) opening() pool.Opening {
	tags := [][]string{{"a"}, {"a", "b"}, {"d"}, {"a", "d"}, {"e"}, {"i"}}[r.random.IntN(6)]
	o := pool.Opening{Tags: tags, Owner: []string{"", "alice"}[r.random.IntN(2)]}
	if r.random.IntN(3) > 0 {
		o.Sandbox = fmt.Sprint("box", r.random.IntN(2))
	}
	if r.random.IntN(4) == 0 {
		o.TTL = time.Duration(5+r.random.IntN(30)) * time.Second
	}
	return o
}

func (r *run) take(ctx context.Context, l *server) {
	st, err := l.Open(ctx, r.opening())
	if err != nil {
		r.tolerate(err)
		return
	}
	if r.open[st.ID] != nil {
		r.Errorf("ticket %d was given twice", st.ID)
	}
	r.open[st.ID] = &holder{used: time.Now()}
}

// use reads a ticket, as its working owner does.
func (r *run) use(ctx context.Context, l *server) {
	for _, id := range slices.Sorted(maps.Keys(r.open)) {
		if r.random.IntN(3) == 0 {
			if _, err := l.Get(ctx, id); err == nil {
				r.open[id].used = time.Now()
			} else {
				r.tolerate(err)
			}
		}
	}
}

// changeMode pauses, drains or resumes a pool.
func (r *run) changeMode(ctx context.Context, l *server, name pool.Name) {
	roll := r.random.IntN(5)
	delete(r.drained, name)
	if roll > 1 {
		delete(r.paused, name)
	}
	err := []func(context.Context, pool.Name) error{l.Pause, l.Drain, l.Resume, l.Resume, l.Resume}[roll](ctx, name)
	r.tolerate(err)
	if _, already := r.paused[name]; err == nil && roll <= 1 && !already {
		r.paused[name] = time.Now()
	}
	if err == nil && roll == 1 {
		r.drained[name] = time.Now()
	}
}

func (r *run) giveBack(ctx context.Context, l *server) {
	for _, id := range slices.Sorted(maps.Keys(r.open)) {
		if r.random.IntN(2) == 0 {
			continue
		}
		if err := l.Close(ctx, id); err != nil {
			r.tolerate(err)
			return
		}
		delete(r.open, id)
		return
	}
}
