package watch

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"croft"
	"croft/grid/edit"
)

// world is the machines of a simulation: which reach each other, and what runs on each.
type world struct {
	t     *testing.T
	o     *origin
	begun time.Time

	mu sync.Mutex
	// cut contains the machines that reach no other, and "a|b" for two machines that do not reach each other.
	cut     map[string]bool
	nodes   map[string]*machineOf
	ctls    []*controller
	delayed sync.WaitGroup
}

// machineOf is a node: the applied state, and the end of its lease.
type machineOf struct {
	dead     bool
	revision int
	db       bool
	until    time.Duration
	count    uint64
	boot     int
}

const leaseOf = 30 * time.Second

func newWorld(t *testing.T, f tree) *world {
	w := &world{t: t, o: &origin{commits: []tree{f}, log: []string{"begin"}}, begun: time.Now(), cut: map[string]bool{},
		nodes: map[string]*machineOf{}}
	for i := range 9 {
		name := "n" + string(rune('0'+i))
		w.nodes[name] = &machineOf{db: slices.Contains(f.slotsOf("db"), name)}
	}
	return w
}

func (w *world) now() time.Duration { return time.Since(w.begun) }

func (w *world) later(d time.Duration, do func()) {
	w.delayed.Go(func() {
		time.Sleep(d)
		do()
	})
}

func (w *world) set(name string, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut[name] = cut
}

func (w *world) connected(a, b string) bool {
	for _, name := range []string{a, b} {
		if w.cut[name] || w.nodes[name] != nil && w.nodes[name].dead {
			return false
		}
	}
	return !w.cut[a+"|"+b] && !w.cut[b+"|"+a]
}

func (w *world) reaches(a, b string) Answer {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.connected(a, b) {
		return Yes
	}
	return No
}

// running returns the nodes on which the exclusive job runs now.
func (w *world) running() (list []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name, n := range w.nodes {
		if n.db && !n.dead && w.now() < n.until {
			list = append(list, name)
		}
	}
	slices.Sort(list)
	return list
}

// beats sends a beat of every node to every controller that it reaches.
func (w *world) beats() {
	for name, n := range w.nodes {
		for _, c := range w.ctls {
			if w.reaches(name, c.name) != Yes {
				continue
			}
			w.mu.Lock()
			sent := w.now()
			n.count = max(n.count+1, uint64(sent/tick)) // its uptime, as in node.sh
			b := Beat{Boot: string(rune('a' + n.boot)), Count: n.count, Lease: leaseOf}
			w.mu.Unlock()
			reply, err := c.store.Receive(name, b.String(), rules.MaxLease())
			if err != nil {
				w.t.Error(err)
			}
			w.mu.Lock()
			if reply == Granted(leaseOf) {
				n.until = max(n.until, sent+leaseOf)
			}
			w.mu.Unlock()
		}
	}
}

// boot boots a dead node. It keeps the applied state, and has no lease.
func (w *world) boot(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.nodes[name]
	n.dead, n.until, n.boot, n.count = false, 0, n.boot+1, 0
}

// apply stops units before it starts any.
func (w *world) apply(from string, f tree, revision int, nodes []string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	want := f.slotsOf("db")
	for _, name := range nodes {
		if !w.connected(from, name) {
			return croft.Errorf(croft.Unavailable, "%s is not reached", name)
		}
		if w.nodes[name].revision > revision {
			return croft.Errorf(croft.Conflict, "%s has a newer revision", name)
		}
	}
	for _, name := range nodes {
		if n := w.nodes[name]; !slices.Contains(want, name) {
			n.db = false
		}
	}
	for _, name := range nodes {
		n := w.nodes[name]
		n.db, n.revision = slices.Contains(want, name), revision
	}
	return nil
}

// stateOf returns the state of a node in the upstream.
func (w *world) stateOf(node string) string {
	f, _ := w.o.head()
	for line := range strings.Lines(f[fileOf(node)]) {
		if s, ok := strings.CutPrefix(line, "state: "); ok {
			return strings.Fields(s)[0]
		}
	}
	return "up"
}

// up does what an operator does with a node that is back: it sets the state up and applies.
func (w *world) up(node string) {
	w.o.edit(func(f tree) {
		text, err := edit.StateText(fileOf(node), f[fileOf(node)], "up", "")
		if err != nil {
			w.t.Error(err)
		}
		f[fileOf(node)] = text
	})
}

// cleanup is the first apply to a node that is back, which removes units that no longer belong there.
func (w *world) cleanup(from, node string) {
	f, at := w.o.head()
	_ = w.apply(from, f, at, []string{node}) // it may be cut off again
}
