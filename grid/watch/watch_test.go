package watch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"croft/grid/edit"
	"croft/grid/state"
)

// live runs a world second by second, with beats every ten seconds, and calls each every second.
func (w *world) live(seconds int, each func(second int)) {
	for s := range seconds {
		if s%10 == 0 {
			w.beats()
		}
		if each != nil {
			each(s)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if on := w.running(); len(on) > 1 {
			w.t.Errorf("at %s the exclusive job runs on %v", w.now(), on)
			return
		}
	}
}

// started creates controllers and starts their watches. stop ends them.
func (w *world) started(names ...string) (stop func()) {
	w.made(names...)
	return w.runs()
}

// made creates controllers.
func (w *world) made(names ...string) {
	for _, name := range names {
		w.ctls = append(w.ctls, newController(w.t, w, name))
	}
}

// runs starts the watches of the existing controllers. stop ends them.
func (w *world) runs() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, c := range w.ctls {
		watch := c.watch(w.t, nil)
		all.Go(func() {
			if err := watch.Run(ctx); err != nil {
				w.t.Error(err)
			}
		})
		synctest.Wait() // the first one leads
	}
	return func() {
		cancel()
		for _, c := range w.ctls {
			c.thaw()
		}
		all.Wait()
		w.delayed.Wait()
	}
}

func simulated(t *testing.T, do func(t *testing.T, w *world)) {
	f := cluster(t)
	synctest.Test(t, func(t *testing.T) { do(t, newWorld(t, f)) })
}

func TestWhatRanOnADeadNodeMoves(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		defer w.started("ctl1")()
		w.live(100, nil)
		had := w.running()
		if len(had) != 1 {
			t.Fatalf("the exclusive job runs on %v", had)
		}
		node := had[0]
		w.mu.Lock()
		w.nodes[node].dead = true
		w.mu.Unlock()
		w.live(45, nil)
		if s := w.stateOf(node); s != state.Up {
			t.Errorf("within the grace the state is %s", s)
		}
		w.live(70, nil)
		f, _ := w.o.head()
		if s := w.stateOf(node); s != state.Out || !strings.HasPrefix(f[fileOf(node)], "# node") ||
			!edit.Marked(f[fileOf(node)]) {
			t.Errorf("the state is %s: %q", s, f[fileOf(node)])
		}
		if now := w.running(); len(now) != 1 || now[0] == node || now[0] != f.slotsOf("db")[0] {
			t.Errorf("the exclusive job runs on %v, and its slot is on %v", now, f.slotsOf("db"))
		}
		said := w.o.log[len(w.o.log)-1]
		for _, want := range []string{"grid watch: " + node + " out\n\n", "Watch-Leader: ctl1\n", "Watch-State: " +
			node + " out\n",
			"Watch-Slot: db 0 " + node + " "} {
			if !strings.Contains(said, want) {
				t.Errorf("the commit lacks %q:\n%s", want, said)
			}
		}

		commits := len(w.o.log)
		w.boot(node)
		w.live(100, nil)
		if s := w.stateOf(node); s != state.Out || len(w.o.log) != commits {
			t.Errorf("the node is back: its state is %s, and there are %d commits, want out and %d", s, len(w.o.log),
				commits)
		}
		w.up(node)
		w.cleanup("ctl1", node)
		w.live(60, nil)
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.now() >= w.nodes[node].until {
			t.Error("the node is up again, and gets no lease")
		}
	})
}

func TestANodeThatIsCutOffEndsItsExclusiveJobFirst(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		defer w.started("ctl1")()
		w.live(60, nil)
		node := w.running()[0]
		w.set(node, true)
		gap := 0
		w.live(150, func(int) {
			if len(w.running()) == 0 {
				gap++
			}
		})
		now := w.running()
		if len(now) != 1 || now[0] == node || gap == 0 {
			t.Errorf("it runs on %v, and %d seconds nowhere", now, gap)
		}
		w.set(node, false) // its link is back: the old slot must stay stopped
		w.live(100, nil)
		if again := w.running(); !slices.Equal(again, now) {
			t.Errorf("it runs on %v, want %v", again, now)
		}
	})
}

func TestNothingMovesWhenTheControllerIsCutOff(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		defer w.started("ctl1")()
		w.live(60, nil)
		w.set("ctl1", true)
		w.live(900, nil)
		w.set("ctl1", false)
		w.live(60, nil)
		for _, node := range []string{"n0", "n1", "n2"} {
			w.set(node, true)
		}
		w.live(900, nil)
		if len(w.o.log) != 1 {
			t.Errorf("commits: %q", w.o.log)
		}
	})
}

func TestOthersPushMeanwhile(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		stop := w.started("ctl1")
		defer stop()
		w.live(30, nil)
		times := 0
		w.ctls[0].trouble = func(what string) int {
			if what == "push" && times < attempts-1 {
				times++
				w.o.edit(func(f tree) { f["policies/p.rule"] = fmt.Sprintf("# %d\ntake 1\n", times) })
			}
			return 0
		}
		w.set("n4", true)
		w.live(120, nil)
		f, _ := w.o.head()
		if w.stateOf("n4") != state.Out || !strings.Contains(f["policies/p.rule"], fmt.Sprint("# ", attempts-1)) {
			t.Errorf("n4 is %s, and the operator's file %q, after %d conflicts", w.stateOf("n4"), f["policies/p.rule"],
				times)
		}
		times = -1000 // never in time again
		w.set("n8", true)
		before := len(w.o.log)
		w.live(75, nil)
		if pushed := len(w.o.log) - before; w.stateOf("n8") != state.Up || pushed == 0 || pushed%attempts != 0 {
			t.Errorf("n8 is %s after %d pushes of others, want up after %d in each round", w.stateOf("n8"), pushed,
				attempts)
		}
		times = attempts
		w.live(30, nil)
		if w.stateOf("n8") != state.Out {
			t.Errorf("n8 is %s", w.stateOf("n8"))
		}
	})
}

func TestAFrozenLeaderDoesNothingAfterItWasReplaced(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		defer w.started("ctl1", "ctl2")()
		w.live(60, nil)
		leader := slices.IndexFunc(w.ctls, func(c *controller) bool { return c.name == w.o.record.Leader })
		a, b := w.ctls[leader], w.ctls[1-leader]
		a.trouble = func(what string) int { // it freezes just before it pushes its commit
			if what == "push" {
				a.freeze()
				a.trouble = nil
				a.step()
			}
			return 0
		}
		w.set("n4", true)
		w.live(400, nil)
		if w.o.record.Leader != b.name || w.stateOf("n4") != state.Out || !strings.Contains(w.o.log[1],
			"Watch-Leader: "+b.name) {
			t.Errorf("%s leads, n4 is %s: %q", w.o.record.Leader, w.stateOf("n4"), w.o.log)
		}
		w.up("n4")
		w.set("n4", false)
		w.live(30, nil)
		commits := len(w.o.log)
		a.thaw()
		w.live(120, nil)
		if len(w.o.log) != commits || w.o.record.Leader != b.name || w.stateOf("n4") != state.Up {
			t.Errorf("it was thawed: %s leads, n4 is %s: %q", w.o.record.Leader, w.stateOf("n4"), w.o.log[commits:])
		}
	})
}

// TestRandomHistories simulates two controllers, links that fail and recover, nodes that die and boot, watches that
// freeze, writes that are lost, late, or done without an answer, and operators who bring nodes back.
func TestRandomHistories(t *testing.T) {
	seeds := 3
	if testing.Short() {
		seeds = 1
	}
	first := uint64(time.Now().UnixNano())
	acted := 0
	for i := range seeds {
		seed := first + uint64(i)
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			simulated(t, func(t *testing.T, w *world) { acted += history(t, w, rand.New(rand.NewPCG(seed, 7))) })
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("watches have acted %d times", acted)
	if acted == 0 {
		t.Error("no watch has ever acted")
	}
}

// history simulates one hour and returns how often a watch has acted.
func history(t *testing.T, w *world, r *rand.Rand) (acted int) {
	w.made("ctl1", "ctl2")
	var mu sync.Mutex // protects r
	chance := func(n int) bool { mu.Lock(); defer mu.Unlock(); return r.IntN(n) == 0 }
	// the time of each node's last beat, by the controller's own clock, which pauses
	silent := map[string]map[string]time.Duration{}
	for _, c := range w.ctls {
		silent[c.name] = map[string]time.Duration{}
		c.trouble = func(string) int {
			mu.Lock()
			defer mu.Unlock()
			return max(0, r.IntN(20)-16)
		}
	}
	lostThen := map[string]string{} // why a controller must not act on its last dials, if it must not
	for _, c := range w.ctls {
		c.dialed = func() {
			f, _ := w.o.head()
			lost, all, now := 0, 0, c.now()
			for i := range 9 {
				name := fmt.Sprint("n", i)
				if strings.Contains(f[fileOf(name)], "state: out") {
					continue
				}
				all++
				mu.Lock()
				gone := now-silent[c.name][name] > 3*rules.Every+10*time.Second
				mu.Unlock()
				for j := range 9 { // a node that another node reaches is not lost
					via := fmt.Sprint("n", j)
					gone = gone && !(w.reaches(c.name, via) == Yes && w.reaches(via, name) == Yes)
				}
				if gone {
					lost++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			lostThen[c.name] = ""
			if 3*lost > all+2 { // nodes that were just made out count as watched too
				lostThen[c.name] = fmt.Sprintf("at %s %d of %d were lost", w.now(), lost, all)
			}
		}
	}
	w.o.pushed = func(leader string, _, _ tree) {
		acted++
		mu.Lock()
		defer mu.Unlock()
		if why := lostThen[leader]; why != "" {
			t.Errorf("at %s %s acts: %s", w.now(), leader, why)
		}
	}
	defer w.runs()()
	for minute := range 60 {
		for name := range w.nodes {
			switch {
			case chance(25):
				w.set(name, true)
			case chance(12):
				w.mu.Lock()
				w.nodes[name].dead = w.nodes[name].dead || chance(3)
				w.mu.Unlock()
			case chance(3):
				w.set(name, false)
				if w.nodes[name].dead {
					w.boot(name)
				}
			}
			if w.stateOf(name) != state.Up && w.reaches("op", name) == Yes && chance(3) {
				w.cleanup("op", name)
				w.up(name)
			}
		}
		for _, c := range w.ctls {
			w.set(c.name, chance(15) || c.paused())
			w.set(c.name+"|n"+fmt.Sprint(minute%9), chance(4))
			switch {
			case chance(12):
				c.freeze()
			case chance(20):
				c.pause()
			case chance(2):
				c.thaw()
			}
		}
		w.live(60, func(int) {
			for _, c := range w.ctls {
				now := c.now()
				for name := range w.nodes {
					if w.reaches(c.name, name) == Yes {
						mu.Lock()
						silent[c.name][name] = now
						mu.Unlock()
					}
				}
			}
		})
		if t.Failed() {
			return acted
		}
	}
	for _, c := range w.ctls { // all links work again: the job runs, on one node
		c.trouble = nil
		c.thaw()
		w.set(c.name, false)
		for i := range 9 {
			w.set(fmt.Sprintf("%s|n%d", c.name, i), false)
		}
	}
	for name := range w.nodes {
		w.set(name, false)
		if w.nodes[name].dead {
			w.boot(name)
		}
		w.cleanup("op", name)
		if w.stateOf(name) != state.Up {
			w.up(name)
		}
	}
	w.live(600, nil)
	for name := range w.nodes {
		w.cleanup("op", name)
	}
	w.live(120, nil)
	f, _ := w.o.head()
	if on := w.running(); !slices.Equal(on, f.slotsOf("db")) {
		t.Errorf("all is well, and the job runs on %v, want %v", on, f.slotsOf("db"))
	}
	return acted
}
