package system

import (
	"slices"
	"strings"
	"time"

	"croft"
)

// mayStop lists the calls around which a process is sometimes suspended, as by SIGSTOP or a busy machine, with
// probabilities. Its lease may expire meanwhile. Between these calls a part relies on data that it has read before.
var mayStop = map[string]float64{
	"scheduler Assign": 0.1, "scheduler Claim": 0.02, "scheduler Release": 0.02, "scheduler Discard": 0.02,
	"scheduler Reorder": 0.02, "scheduler Bury": 0.05,
	"operator SetMoving": 0.05, "operator Reclaim": 0.05, "operator Relocate": 0.05, "operator Reorder": 0.05,
	"operator Bury": 0.05, "operator Release": 0.05,
	"agent Instance": 0.02, "agent Release": 0.05, "agent Forget": 0.02, "agent Fence": 0.05, "agent Discard": 0.05,
	"agent Drop": 0.05, "agent Remains": 0.02,
	"hypervisor Define": 0.01, "hypervisor Start": 0.01, "hypervisor Remove": 0.02,
}

// The longest suspension, and how long a process waits when it meets one that resumes.
const (
	longestStop = 2 * time.Second
	stepBack    = 20 * time.Millisecond
)

// suspension is a process stopped just before or after a call concerning an instance. It resumes after a number of
// other processes' crossings concerning the same instance, or after a while.
type suspension struct {
	by    *gate
	about croft.InstanceID
	left  int // crossings of other processes until it resumes
	over  chan struct{}
}

// await returns when the process is not suspended, or dead.
func (g *gate) await() {
	g.mu.Lock()
	held := g.held
	g.mu.Unlock()
	if held == nil {
		return
	}
	select {
	case <-held:
	case <-g.died:
	}
}

// suspend stops the process; false: it is already stopped.
func (g *gate) suspend() bool {
	g.turning.Lock()
	defer g.turning.Unlock()
	g.mu.Lock()
	if g.held != nil || g.dead {
		g.mu.Unlock()
		return false
	}
	g.held = make(chan struct{})
	stop := g.stop
	g.mu.Unlock()
	if stop != nil {
		stop(true)
	}
	return true
}

// resume ends a suspension, if any.
func (g *gate) resume() {
	g.turning.Lock()
	defer g.turning.Unlock()
	g.mu.Lock()
	held, stop := g.held, g.stop
	g.held = nil
	g.mu.Unlock()
	if held == nil {
		return
	}
	if stop != nil {
		stop(false)
	}
	close(held)
}

// suspendAt sometimes suspends the process at a crossing.
func (g *gate) suspendAt(crossing string, about croft.InstanceID) {
	_, point, _ := strings.Cut(crossing, " ")
	g.mu.Lock()
	if g.faulty == 0 || g.rng.Float64() >= mayStop[point]*g.mood.stops {
		g.mu.Unlock()
		return
	}
	s := &suspension{by: g, about: about, left: 1 + g.rng.IntN(16), over: make(chan struct{})}
	most, expires := time.Duration(g.rng.Int64N(int64(longestStop))), g.rng.IntN(3) != 0
	expire := g.expire
	if expires {
		most = longestStop // other processes notice late
	}
	g.mu.Unlock()
	if !g.suspend() {
		return
	}
	g.tally.add("suspended " + crossing)
	g.tally.suspend(s)
	if expires && expire != nil {
		expire()
	}
	timer := time.NewTimer(most)
	defer timer.Stop()
	g.mu.Lock()
	held := g.held
	g.mu.Unlock()
	if held != nil {
		select {
		case <-s.over:
			g.tally.add("met " + crossing)
		case <-timer.C:
		case <-held: // resumed by other processes
		case <-g.died:
		}
	}
	g.tally.forget(s)
	g.resume()
}

func (t *tally) suspend(s *suspension) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.suspended = append(t.suspended, s)
}

func (t *tally) forget(s *suspension) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.suspended = slices.DeleteFunc(t.suspended, func(other *suspension) bool { return other == s })
}

// contested returns an instance that a suspended process's call concerns.
func (t *tally) contested() (about croft.InstanceID, yes bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.suspended {
		if s.about != "" {
			about = s.about // of the latest
		}
	}
	return about, about != ""
}

// meet counts a crossing for processes suspended in a call concerning the same instance. A process that resumes
// continues first.
func (t *tally) meet(g *gate, about croft.InstanceID) {
	if about == "" {
		return
	}
	met := false
	t.mu.Lock()
	for _, s := range t.suspended {
		if s.by == g || s.about != about {
			continue
		}
		if s.left--; s.left == 0 {
			close(s.over)
			met = true
		}
	}
	t.mu.Unlock()
	if !met {
		return
	}
	select {
	case <-time.After(stepBack):
	case <-g.died:
	}
}
