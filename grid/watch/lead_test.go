package watch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"croft"
	"croft/grid/place"
	"croft/grid/state"
)

// exclusive returns the node of the exclusive job in the upstream.
func (w *world) exclusive() string {
	f, _ := w.o.head()
	return f.slotsOf("db")[0]
}

// leaves cuts a node off from everything but one controller.
func (w *world) leaves(node, controller string) {
	for _, c := range w.ctls {
		w.set(c.name+"|"+node, c.name != controller)
	}
	for name := range w.nodes {
		w.set(name+"|"+node, name != node)
	}
}

func TestALeaderWhoseMachineWasPausedGrantsNoLease(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		w.made("ctl1", "ctl2")
		a := w.ctls[0]
		defer w.runs()()
		w.live(80, nil)
		node := w.exclusive()
		a.pause()
		w.leaves(node, "ctl1")
		w.live(600, nil)
		if w.o.record.Leader != "ctl2" || w.exclusive() == node {
			t.Fatalf("%s leads, and the job is on %s", w.o.record.Leader, w.exclusive())
		}
		a.resume()
		if m, err := a.store.memory(); err != nil || a.now() >= m.Until {
			t.Fatalf("its clock does not say that it leads: %+v, %v", m, err)
		}
		w.beats() // they arrive before its watch asks the upstream
		if on := w.running(); len(on) != 1 || on[0] == node {
			t.Errorf("the exclusive job runs on %v, want %s alone", on, w.exclusive())
		}
		a.thaw()
		w.live(300, nil)
	})
}

// A suspended machine receives no beats, so it must not count nodes as silent for that time.
func TestNobodyWasSilentWhileTheControllerSlept(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		w.made("ctl1")
		c := w.ctls[0]
		var slept time.Duration
		c.store.clock.Now = w.now // continues while the machine is suspended
		c.store.clock.Slept = func() time.Duration { return slept }
		defer w.runs()()
		w.live(60, nil)
		c.freeze()
		w.set("ctl1", true)
		w.live(600, nil)
		slept = 600 * time.Second
		w.set("ctl1", false)
		w.set("n4", true) // and it answers no dial
		c.thaw()
		w.live(45, nil)
		if s := w.stateOf("n4"); s != state.Up {
			t.Errorf("n4 is %s within a grace after the controller went on", s)
		}
		w.live(60, nil)
		if s := w.stateOf("n4"); s != state.Out {
			t.Errorf("n4 is %s after a grace", s)
		}
	})
}

func TestOneOfTwoCopiesOfAControllerLeads(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		w.made("ctl1", "ctl2")
		for _, c := range w.ctls {
			if err := c.store.remember(&memory{Key: "of the machine that was copied",
				ClockBoot: "of the machine that was copied"}); err != nil {
				t.Fatal(err)
			}
		}
		defer w.runs()()
		w.live(80, nil)
		var leads []string
		for _, c := range w.ctls {
			m, err := c.store.memory()
			if err != nil {
				t.Fatal(err)
			}
			if c.now() < m.Until {
				leads = append(leads, c.name)
			}
		}
		if !slices.Equal(leads, []string{w.o.record.Leader}) {
			t.Errorf("%v grant leases, and %s leads", leads, w.o.record.Leader)
		}
		node := w.exclusive()
		w.leaves(node, "ctl2")
		w.live(300, nil)
		if on := w.running(); len(on) != 1 || on[0] == node || on[0] != w.exclusive() {
			t.Errorf("the job runs on %v, want %s alone, and not %s", on, w.exclusive(), node)
		}
	})
}

// A copy on the same machine has the boot and the times of the original.
func TestACopiedDirectoryDoesNotLead(t *testing.T) {
	store, copied := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	clock := Clock{Boot: "boot", Now: func() time.Duration { return time.Hour }}
	s, err := OpenStore(store, clock)
	if err != nil {
		t.Fatal(err)
	}
	m, err := s.memory()
	if err != nil {
		t.Fatal(err)
	}
	m.Key, m.Leader, m.Renewed, m.Until = "key", time.Minute, time.Hour, 2*time.Hour
	if err := s.remember(m); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(copied, os.DirFS(store)); err != nil {
		t.Fatal(err)
	}
	if m, err := s.memory(); err != nil || m.Until == 0 || m.Leader == 0 {
		t.Errorf("the original: %+v, %v", m, err)
	}
	c, err := OpenStore(copied, clock)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := c.memory(); err != nil || m.Until != 0 || m.Leader != 0 || m.Since != time.Hour || m.Key != "key" {
		t.Errorf("the copy: %+v, %v", m, err)
	}
}

// leading returns the lead of one controller, outside of a watch.
func (w *world) leading(t *testing.T) (*lead, *controller) {
	t.Helper()
	w.made("ctl1")
	c := w.ctls[0]
	l := c.watch(t, nil).lead
	var err error
	if l.m, err = c.store.memory(); err != nil {
		t.Fatal(err)
	}
	if leads, _, err := l.ensure(t.Context()); err != nil || !leads {
		t.Fatalf("it leads: %v, %v", leads, err)
	}
	return l, c
}

// TestARecordIsTakenOverAfterTwoTerms: during the first term its leader may still act, if its clock is slower.
func TestARecordIsTakenOverAfterTwoTerms(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		first, _ := w.leading(t)
		w.made("ctl2")
		c := w.ctls[len(w.ctls)-1]
		second := c.watch(t, nil).lead
		var err error
		if second.m, err = c.store.memory(); err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			wait  time.Duration
			leads bool
		}{{0, false}, {first.term, false}, {first.term - time.Second, false}, {time.Second, true}} {
			time.Sleep(step.wait)
			if leads, _, err := second.ensure(t.Context()); err != nil || leads != step.leads {
				t.Errorf("after %s more, the second leads %t, %v; want %t", step.wait, leads, err, step.leads)
			}
		}
	})
}

func TestALeaderSettlesAnUnknownOutcomeWithAWrite(t *testing.T) {
	for name, how := range map[string]int{"it was lost": 1, "its answer was lost": 2} {
		t.Run(name, func(t *testing.T) {
			simulated(t, func(t *testing.T, w *world) {
				l, c := w.leading(t)
				c.trouble = func(string) int { return how }
				if err := l.applied(t.Context()); !errors.Is(err, croft.Unavailable) {
					t.Fatal(err)
				}
				c.trouble = nil
				records := w.o.records
				since := l.m.Leader
				leads, record, err := l.ensure(t.Context())
				if err != nil || !leads || w.o.records != records+1 || record.Value != w.o.record.Value {
					t.Errorf("it leads %v, %v, after %d records, want %d: %+v", leads, err, w.o.records, records+1,
						record)
				}
				if l.m.Leader != since {
					t.Errorf("it leads since %s, want %s", l.m.Leader, since)
				}
			})
		})
	}
}

func TestAPushKeepsWhatIsStillToBeApplied(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		l, c := w.leading(t)
		c.made = w.o.commits[0]
		if err := l.push(t.Context(), "git:0", "git:1", []string{"n3", "n1"}); err != nil {
			t.Fatal(err)
		}
		c.made = w.o.commits[0]
		if err := l.push(t.Context(), "git:1", "git:2", []string{"n2", "n3"}); err != nil {
			t.Fatal(err)
		}
		p := w.o.record.Pending
		if p == nil || p.Revision != "git:2" || !slices.Equal(p.Nodes, []string{"n1", "n2", "n3"}) {
			t.Errorf("to be applied is %+v", p)
		}
	})
}

func TestAReplacedLeaderFencesNobody(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		w.made("ctl1")
		c, fence := w.ctls[0], &fenceOf{}
		watch := c.watch(t, fence)
		var err error
		if watch.lead.m, err = c.store.memory(); err != nil {
			t.Fatal(err)
		}
		if leads, _, err := watch.lead.ensure(t.Context()); err != nil || !leads {
			t.Fatalf("it leads: %v, %v", leads, err)
		}
		_, s, err := watch.checkout(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		watch.fence(t.Context(), s, []string{"n1"}, answers{})
		if _, err := w.o.swap(w.o.record, Term{Leader: "ctl2", Key: "of ctl2", Seconds: 120}); err != nil {
			t.Fatal(err)
		}
		watch.fence(t.Context(), s, []string{"n2"}, answers{})
		if !slices.Equal(fence.asked, []string{"n1"}) {
			t.Errorf("it fenced %v, want n1 alone, while it led", fence.asked)
		}
	})
}

// fenceOf records the nodes that it is asked to fence.
type fenceOf struct{ asked []string }

func (f *fenceOf) Fence(_ context.Context, n *state.Node) (Answer, error) {
	f.asked = append(f.asked, n.Name)
	return Yes, nil
}

func TestANodeThatSomebodyElsePutOutGetsNoLease(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		defer w.started("ctl1")()
		w.live(80, nil)
		node := w.exclusive()
		w.o.edit(func(f tree) { f[fileOf(node)] += "state: out\n" })
		w.live(60, nil)
		if on := w.running(); len(on) != 0 {
			t.Errorf("the operator put %s out, and it has leases after 60 s: %v", node, on)
		}
	})
}

// TestOnlyNodesThatAWatchPutOutAreTakenForGone: if a person made a node out, its lease may not have ended.
func TestOnlyNodesThatAWatchPutOutAreTakenForGone(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		w.made("ctl1")
		defer w.runs()()
		w.live(80, nil)
		byWatch, byPerson := w.exclusive(), "n5"
		if byWatch == byPerson {
			byPerson = "n4"
		}
		w.o.edit(func(f tree) { f[fileOf(byPerson)] += "state: out\n" })
		w.set(byPerson, true)
		w.live(90, nil)
		w.set(byWatch, true)
		w.live(200, nil)
		w.mu.Lock()
		defer w.mu.Unlock()
		if gone := w.ctls[0].gone; !slices.Contains(gone, byWatch) || slices.Contains(gone, byPerson) {
			t.Errorf("taken for gone are %q; the watch put out %s, and a person %s", gone, byWatch, byPerson)
		}
	})
}

func TestNodesThatAreLostAreNotAppliedTo(t *testing.T) {
	got := concerned(
		[]Action{{Node: "n1", State: state.Out}},
		[]place.Change{{From: "n1", To: "n3"}, {From: "n2", To: "n3"},
			{To: "n4"}},
	)
	if want := []string{"n2", "n3", "n4"}; !slices.Equal(got, want) {
		t.Errorf("applied to are %q, want %q", got, want)
	}
}

// TestOnlyExclusiveSlotsStayOnANodeThatKeepsThem: all its other slots move elsewhere.
func TestOnlyExclusiveSlotsStayOnANodeThatKeepsThem(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("cluster.yaml", "id: '0123456789abcdef0123456789abcdef'\nruntime: process\n")
	write("nodes/_.yaml", "id: -1\n")
	write("nodes/n1.yaml", "id: 0\n")
	write("jobs/web.yaml", "command: [a]\n")
	write("jobs/db.yaml", "command: [a]\nexclusive: true\n")
	if _, err := placed(t.Context(), dir, nil); err != nil {
		t.Fatal(err)
	}
	write("nodes/n2.yaml", "id: 1\n")
	write("nodes/n1.yaml", "id: 0\nstate: maintenance\n")
	changes, err := placed(t.Context(), dir, []string{"n1"})
	if err != nil {
		t.Fatal(err)
	}
	if len(changes) != 1 || changes[0].Job != "web" || changes[0].From != "n1" || changes[0].To != "n2" {
		t.Errorf("changes: %+v", changes)
	}
}

// A round that took longer than a grace relies on observations that may be outdated.
func TestARoundThatTookLongerThanAGraceChangesNothing(t *testing.T) {
	simulated(t, func(t *testing.T, w *world) {
		w.made("ctl1")
		c := w.ctls[0]
		slow := true
		c.dialed = func() {
			if slow {
				time.Sleep(rules.Grace + time.Second)
			}
		}
		defer w.runs()()
		w.live(80, nil)
		w.set("n4", true)
		w.live(300, nil)
		if s := w.stateOf("n4"); s != state.Up || len(w.o.log) != 1 {
			t.Errorf("n4 is %s: %q", s, w.o.log)
		}
		slow = false
		w.live(120, nil)
		if s := w.stateOf("n4"); s != state.Out {
			t.Errorf("n4 is %s, with rounds that are quick", s)
		}
	})
}
