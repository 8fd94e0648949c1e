package apply

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/grid/plan"
	"croft/grid/revlock"
	"croft/grid/unit"
)

var (
	interleavings = flag.Int("interleavings", 3000, "how many interleavings TestTheLockProtocol tries")
	firstSeed     = flag.Uint64("seed", 0, "the first seed; 0: by the time")
)

const clusterID = "0123456789abcdef0123456789abcdef"

// desired makes what a revision says: units of web, of which one has to run always, and of db, which may run once.
func desired(r *rand.Rand, name string, jobs map[string]plan.Job) plan.Desired {
	d := plan.Desired{Cluster: clusterID, Revision: rev(name), Jobs: jobs}
	for i := range 3 {
		d.Nodes = append(d.Nodes, unit.Node{Name: fmt.Sprintf("s%d", i+1), ID: i, State: "up"})
	}
	put := func(job string, slot int, command string) {
		n := &d.Nodes[r.IntN(3)]
		n.Units = append(n.Units, unit.Unit{Cluster: clusterID, Job: job, Slot: slot, Runtime: "world",
			Command: []string{command}, Exclusive: job == "db"})
	}
	command := []string{"x", "x", "y"}[r.IntN(3)]
	switch r.IntN(3) {
	case 0:
		put("web", 0, command)
	case 1:
		put("web", 1, command)
	default:
		put("web", 0, command)
		put("web", 1, command)
	}
	put("db", 0, command)
	return d
}

// interleave runs one interleaving, and returns what was violated.
func interleave(t *testing.T, seed uint64, change func(w *world)) (wrong []string) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 1))
		jobs := map[string]plan.Job{"web": {Want: 2, Min: 1}, "db": {Want: 1}}
		w := &world{rand: r, nodes: map[string]*worldNode{}, jobs: jobs}
		first := desired(r, "0", jobs)
		for _, n := range first.Nodes {
			node := &worldNode{name: n.Name, units: map[string]*plan.Actual{}, applied: plan.Document(n),
				state: revlock.State{Revision: rev("0"), Epoch: 1, Phase: revlock.Done}, newest: 1}
			for _, u := range n.Units {
				node.units[u.Name()] = &plan.Actual{Name: u.Name(), Job: u.Job, Slot: u.Slot, Hash: u.Hash(), Runtime: "world",
					Running: true}
			}
			w.nodes[n.Name] = node
		}
		change(w)
		wants := map[string]plan.Desired{}
		for _, name := range []string{"a", "b", "c"} {
			wants[name] = desired(r, name, jobs)
		}
		for i := range 2 + r.IntN(2) {
			w.start(&client{world: w, name: fmt.Sprintf("client%d", i)}, wants[[]string{"a", "b", "b", "c"}[r.IntN(4)]])
		}
		w.run(true)
		for _, n := range w.nodes { // connections of the dead have ended
			n.holders = nil
		}
		w.clients = nil
		last := &client{world: w, name: "last"}
		for range 3 { // a lost connection may interrupt it
			last = &client{world: w, name: "last"}
			w.clients = nil
			w.start(last, wants["c"])
			w.run(false)
			if last.err == nil {
				break
			}
		}
		w.converged(last.err, wants["c"])
		if wrong = w.wrong; len(wrong) > 0 {
			t.Logf("-seed %d:\n%s", seed, strings.Join(w.trace, "\n"))
		}
		time.Sleep(time.Hour) // whatever still waits ends
	})
	return wrong
}

// converged checks that the last apply reached what an undisturbed one reaches.
func (w *world) converged(err error, want plan.Desired) {
	if _, partly := errors.AsType[*Partly](err); partly || errors.Is(err, croft.Conflict) {
		return // the floor of a job may forbid it, or three connections broke
	}
	if err != nil {
		w.violate("the last apply: %v", err)
		return
	}
	for _, n := range want.Nodes {
		node := w.nodes[n.Name]
		if node.state.Phase != revlock.Done && node.state.Phase != revlock.Never {
			w.violate("in the end, %s is %s", n.Name, node.state.Phase)
		}
		if len(node.units) != len(n.Units) {
			w.violate("in the end, %s has %d units, and %d are wanted", n.Name, len(node.units), len(n.Units))
		}
		for _, u := range n.Units {
			if got := node.units[u.Name()]; got == nil || !got.Running || got.Hash != u.Hash() {
				w.violate("in the end, %s has %+v for %s", n.Name, got, u.Name())
			}
		}
	}
}

func seedOf() uint64 {
	if *firstSeed != 0 {
		return *firstSeed
	}
	return uint64(time.Now().UnixNano())
}

// TestTheLockProtocol lets 2 or 3 clients of related and unrelated revisions change 3 nodes at once, while they are
// killed, frozen, cut off and broken at any step.
func TestTheLockProtocol(t *testing.T) {
	first := seedOf()
	t.Logf("%d interleavings from -seed %d", *interleavings, first)
	for i := range uint64(*interleavings) {
		if wrong := interleave(t, first+i, func(*world) {}); len(wrong) > 0 {
			t.Fatalf("-seed %d: %q", first+i, wrong)
		}
	}
}

// TestTheModelNoticesWhatIsTakenOut shows that the check is worth something.
func TestTheModelNoticesWhatIsTakenOut(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"the locks of what is only read": func(w *world) { w.noShared = true },
		"the comparison of the epoch":    func(w *world) { w.noEpoch = true },
	} {
		t.Run(name, func(t *testing.T) {
			first := seedOf()
			for i := range uint64(20_000) {
				if wrong := interleave(t, first+i, change); len(wrong) > 0 {
					t.Logf("noticed after %d interleavings: %s", i+1, wrong[0])
					return
				}
			}
			t.Errorf("nothing is noticed from -seed %d on", first)
		})
	}
}
