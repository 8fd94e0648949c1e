package system

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"croft"
	"croft/etcdstore/etcdtest"
)

// errGate is the error of a call that the test failed.
var errGate = errors.New("a fault of the test")

// gate stands between one process and everything outside it. Each crossing may fail before or after the call, may
// be the process's last, and may suspend the process for a while.
type gate struct {
	number uint64 // in the history of the world
	mu     sync.Mutex
	rng    *rand.Rand
	faulty float64 // probability that a crossing fails, before and after the call alike
	last   int     // crossings left until the process dies; negative: no limit
	dead   bool
	died   chan struct{}  // closed when the process died
	held   chan struct{}  // closed when the process resumes; nil: not suspended
	late   sync.WaitGroup // writes in flight whose answer is lost
	tally  *tally         // of the world
	mood   mood           // of the world

	turning sync.Mutex         // held while the process is suspended or resumed
	stop    func(stopped bool) // suspends and resumes what the process has outside its gate; nil: nothing
	expire  func()             // ends the lease of the process; nil: no lease
}

// tally counts events at crossings, and knows which processes are suspended.
type tally struct {
	mu        sync.Mutex
	count     map[string]int // event -> how often
	fatal     string         // kills the first process at this crossing; empty: none
	suspended []*suspension
	lines     map[croft.InstanceID][]string // the crossings that concern an instance, each with its time
}

// mood sets the frequency of faults in a run. Runs differ, since some losses need many faults of one kind and few
// of the others.
type mood struct {
	late  float64 // probability that a write takes effect late
	stops float64 // factor of the probabilities in mayStop
	dies  int     // one process in this many dies
	// how many user actions there are for each fault of the installation, and how probable it is that a call fails
	every  int
	faulty float64
}

func newMood(seed uint64) mood {
	rng := rand.New(rand.NewPCG(seed, 3))
	return mood{
		late:  []float64{0.03, 0.1, 0.2}[rng.IntN(3)],
		stops: []float64{0.5, 1, 3}[rng.IntN(3)],
		dies:  []int{3, 10, 40}[rng.IntN(3)],

		every: []int{6, 12, 30}[rng.IntN(3)], faulty: []float64{0.01, 0.003, 0.001}[rng.IntN(3)],
	}
}

// note counts a crossing. True: the process dies at it.
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

// kill lets the next process die at a crossing.
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

// tell records an event of a process that concerns an instance.
func (t *tally) tell(about croft.InstanceID, g *gate, format string, args ...any) {
	if about == "" {
		return
	}
	t.say(about, fmt.Sprintf("process %d %s", g.number, fmt.Sprintf(format, args...)))
}

// say records an event that concerns an instance.
func (t *tally) say(about croft.InstanceID, event string) {
	line := time.Now().Format(etcdtest.Clock) + " " + event
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lines[about] = append(t.lines[about], line)
}

// about returns the recorded events of an instance.
func (t *tally) about(id croft.InstanceID) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.lines[id])
}

func (t *tally) add(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count[what]++
}

func (w *world) newGate(seed uint64, faulty float64, last int) *gate {
	return &gate{number: w.gates.Add(1), rng: rand.New(rand.NewPCG(seed, 1)), faulty: faulty, last: last,
		died: make(chan struct{}), tally: w.tally, mood: w.mood}
}

// cross returns an error unless the process continues. It is called before and after each call, with the instance
// that the call concerns, if any.
func (g *gate) cross(crossing string, about croft.InstanceID) error {
	g.await()
	g.tally.meet(g, about)
	if err := g.pass(crossing); err != nil {
		return err
	}
	g.suspendAt(crossing, about)
	if g.isDead() {
		return errGate
	}
	return nil
}

// pass may let the process die or the call fail.
func (g *gate) pass(crossing string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dead {
		return errGate
	}
	if fatal := g.tally.note(crossing); fatal || g.last == 0 {
		g.end()
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

// mayBeLate lists writes that sometimes take effect late, with their answers lost, as in an etcd with a stalled
// disk.
var mayBeLate = []string{
	"scheduler Assign", "scheduler Reorder", "scheduler Discard", "scheduler Bury", "scheduler Claim",
	"operator SetMoving", "operator Relocate", "operator Reorder", "operator Reclaim", "operator Bury",
	"agent Release", "agent Discard", "agent Forget", "agent Drop",
	"placement Claim", "placement Release", "placement Move",
	"operator Carry", "operator Uncarry", "agent Arrived", "agent HandOver",
	"agent MadeVolume", "agent DetachedVolume", "agent ForgetVolume", "agent TookSnapshot", "agent RolledBack",
	"volumes Create", "volumes Enlarge", "volumes Settle", "volumes GiveUp", "volumes Attach", "volumes Detach",
	"volumes Condemn", "volumes CreateSnapshot", "volumes RollBack", "volumes Reclaim", "volumes Release",
	"resize BeginResize", "resize Resize", "resize EndResize", "resize Reclaim",
}

// delayed decides whether a write takes effect late, and by how much.
func (g *gate) delayed(point string) (by time.Duration, yes bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Contains(mayBeLate, point) || g.faulty == 0 || g.rng.Float64() >= g.mood.late {
		return 0, false
	}
	g.tally.add("late " + point)
	return time.Duration(g.rng.IntN(30)) * time.Millisecond, true
}

// die ends the process: it does nothing more.
func (g *gate) die() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.end()
}

// end requires that g.mu is held.
func (g *gate) end() {
	if !g.dead {
		g.dead = true
		close(g.died)
	}
}

func (g *gate) isDead() bool {
	select {
	case <-g.died:
		return true
	default:
		return false
	}
}

// calm ends the faults.
func (g *gate) calm() {
	g.mu.Lock()
	g.faulty, g.last = 0, -1
	g.mu.Unlock()
	g.resume()
}

// through makes a call that returns a value, between two crossings.
func through[T any](g *gate, point string, about croft.InstanceID, do func() (T, error)) (T, error) {
	return throughSlowly(g, point, about, do, func(by time.Duration, begun func()) error {
		begun()
		time.Sleep(by)
		_, err := do()
		return err
	})
}

// throughSlowly is through, with the way in which a call is late whose answer is lost. The caller goes on after begun.
func throughSlowly[T any](g *gate, point string, about croft.InstanceID, do func() (T, error),
	late func(by time.Duration, begun func()) error) (T, error) {
	var none T
	if err := g.cross("before "+point, about); err != nil {
		g.tally.tell(about, g, "%s: not done: %v", point, err)
		return none, err
	}
	if by, is := g.delayed(point); is {
		g.tally.tell(about, g, "%s: late by %s", point, by)
		begun := make(chan struct{})
		g.late.Go(func() {
			err := late(by, sync.OnceFunc(func() { close(begun) }))
			g.tally.tell(about, g, "%s: done late: %v", point, err)
		})
		<-begun
		return none, croft.Errorf(croft.Unavailable, "%w: the answer is lost", errGate)
	}
	g.tally.tell(about, g, "%s", point)
	v, err := do()
	g.tally.tell(about, g, "%s: done: %v", point, err)
	if gone := g.cross("after "+point, about); gone != nil {
		g.tally.tell(about, g, "%s: the answer is lost: %v", point, gone)
		return none, gone
	}
	return v, err
}

func (g *gate) do(point string, about croft.InstanceID, do func() error) error {
	_, err := through(g, point, about, func() (struct{}, error) { return struct{}{}, do() })
	return err
}

// release makes a call that asks a permit of its caller. The permit is part of the caller, so it never runs after the
// caller has gone on: of a late call, what follows the permit is late.
func (g *gate) release(point string, about croft.InstanceID, may croft.Permit, do func(croft.Permit) error) error {
	_, err := throughSlowly(g, point, about, func() (struct{}, error) { return struct{}{}, do(may) },
		func(by time.Duration, begun func()) error {
			defer begun()
			return do(func(ctx context.Context) ([]croft.HostID, error) {
				on, err := may(ctx)
				begun()
				time.Sleep(by)
				return on, err
			})
		})
	return err
}
