package apply

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
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

// desired returns the random desired state of a revision: units of web, of which one must always run, and of db, which
// is exclusive.
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

// A plot returns the desired state of each revision, and the revisions that the clients apply.
type plot func(r *rand.Rand, jobs map[string]plan.Job) (wants map[string]plan.Desired, clients []string)

// anything is a plot with 2 or 3 clients that apply random revisions.
func anything(r *rand.Rand, jobs map[string]plan.Job) (map[string]plan.Desired, []string) {
	wants := map[string]plan.Desired{}
	for _, name := range []string{"0", "a", "b", "c"} {
		wants[name] = desired(r, name, jobs)
	}
	var clients []string
	for range 2 + r.IntN(2) {
		clients = append(clients, []string{"a", "b", "b", "c"}[r.IntN(4)])
	}
	return wants, clients
}

// units returns a desired state with units of web: commands are their commands, by node.
func units(name string, jobs map[string]plan.Job, commands ...string) plan.Desired {
	d := plan.Desired{Cluster: clusterID, Revision: rev(name), Jobs: jobs}
	for i, c := range commands {
		n := unit.Node{Name: fmt.Sprintf("s%d", i+1), ID: i, State: "up"}
		if c != "" {
			n.Units = []unit.Unit{{Cluster: clusterID, Job: "web", Slot: i, Runtime: "world", Command: []string{c}}}
		}
		d.Nodes = append(d.Nodes, n)
	}
	return d
}

// skewed is a plot with two clients that each stop one of two units and depend on the other unit.
func skewed(_ *rand.Rand, jobs map[string]plan.Job) (map[string]plan.Desired, []string) {
	return map[string]plan.Desired{"0": units("0", jobs, "x", "x", ""), "a": units("a", jobs, "x", "", ""),
		"b": units("b", jobs, "", "x", ""), "c": units("c", jobs, "x", "x", "")}, []string{"a", "b"}
}

// overtaken is a plot with two clients that replace the same unit.
func overtaken(_ *rand.Rand, jobs map[string]plan.Job) (map[string]plan.Desired, []string) {
	return map[string]plan.Desired{"0": units("0", jobs, "x", "x", ""), "a": units("a", jobs, "y", "x", ""),
		"c": units("c", jobs, "z", "x", "")}, []string{"a", "c"}
}

// interleave runs one interleaving, and returns the violated invariants.
func interleave(t *testing.T, seed uint64, made plot, change func(w *world)) (wrong []string) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(seed, 1))
		jobs := map[string]plan.Job{"web": {Want: 2, Min: 1}, "db": {Want: 1}}
		w := &world{rand: r, nodes: map[string]*worldNode{}, jobs: jobs}
		wants, clients := made(r, jobs)
		first := wants["0"]
		for _, n := range first.Nodes {
			node := &worldNode{name: n.Name, units: map[string]*plan.Actual{}, applied: plan.Document(n),
				state: revlock.State{Revision: rev("0"), Epoch: 1, Phase: revlock.Done}, newest: 1}
			for _, u := range n.Units {
				node.units[u.Name()] = &plan.Actual{Name: u.Name(), Job: u.Job, Slot: u.Slot, Hash: u.Hash(),
					Runtime: "world",
					Running: true}
			}
			w.nodes[n.Name] = node
		}
		w.breakFirst = r.IntN(3) == 0
		change(w)
		for i, name := range clients {
			w.start(&client{world: w, name: fmt.Sprintf("client%d", i)}, wants[name])
		}
		w.run(true)
		for _, n := range w.nodes { // connections of dead clients have ended
			n.holders = nil
		}
		w.clients = nil
		last := &client{world: w, name: "last"}
		for range 3 { // a lost connection may interrupt an apply
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
		time.Sleep(time.Hour) // waiting goroutines end
	})
	return wrong
}

// converged checks that the last apply reached the same state as an undisturbed one.
func (w *world) converged(err error, want plan.Desired) {
	if _, partly := errors.AsType[*Partly](err); partly || errors.Is(err, croft.Conflict) {
		return // the floor of a job may forbid the change, or three connections broke
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

// TestTheLockProtocol lets 2 or 3 clients of related and unrelated revisions change 3 nodes concurrently. Faults at any
// step: a client is killed or frozen, a connection is lost, a lock is broken.
func TestTheLockProtocol(t *testing.T) {
	t.Parallel()
	first, number := seedOf(), *interleavings
	if os.Getenv("CROFT_SOAK") != "" {
		number = max(number, 100_000)
	}
	t.Logf("%d interleavings from -seed %d", number, first)
	for i := range uint64(number) {
		if wrong := interleave(t, first+i, anything, func(*world) {}); len(wrong) > 0 {
			t.Fatalf("-seed %d: %q", first+i, wrong)
		}
	}
}

// TestTheModelNoticesWhatIsTakenOut removes one protection at a time and expects violations, and no violations in the
// same plots with the protection: so the model's check is effective.
func TestTheModelNoticesWhatIsTakenOut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		made   plot
		change func(w *world, without bool)
	}{
		{"the locks of what is only read", skewed, func(w *world, without bool) { w.noShared = without }},
		{"the comparison of the epoch", overtaken, func(w *world, without bool) {
			w.noEpoch, w.breakFirst = without,
				true
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			first := seedOf()
			for i := range uint64(500) {
				if wrong := interleave(t, first+i, c.made, func(w *world) { c.change(w, false) }); len(wrong) > 0 {
					t.Fatalf("with it, from -seed %d: %q", first+i, wrong)
				}
			}
			for i := range uint64(20_000) {
				if wrong := interleave(t, first+i, c.made, func(w *world) { c.change(w, true) }); len(wrong) > 0 {
					t.Logf("without it, after %d interleavings: %s", i+1, wrong[0])
					return
				}
			}
			t.Errorf("nothing is noticed from -seed %d on", first)
		})
	}
}
