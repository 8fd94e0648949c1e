package apply

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	"croft"
	"croft/grid/machine"
	"croft/grid/plan"
	"croft/grid/revlock"
	"croft/grid/unit"
)

// A world simulates nodes in memory, with clients that run the real Apply. Every request of a client to a node blocks
// until the world schedules it, so that one seed determines one interleaving. The simulated nodes behave like the shell
// code in grid/revlock, whose own tests cover the real holder.
type world struct {
	rand    *rand.Rand
	nodes   map[string]*worldNode
	mu      sync.Mutex // guards the fields that clients and the world use while neither waits for the other
	pending []*access
	clients []*client
	jobs    map[string]plan.Job
	wrong   []string // violated invariants
	trace   []string // the log of events

	noShared, noEpoch bool // disabled protections
	breakFirst        bool // break the lock of the first node that begins, as if its client were frozen
}

type worldNode struct {
	name    string
	state   revlock.State
	applied []byte
	units   map[string]*plan.Actual
	holders []*worldHolder
	newest  int64 // the epoch of the newest order
}

// A client is one process with its connections.
type client struct {
	world        *world
	name         string
	dead, frozen bool
	done         bool
	err          error
}

// An access is a request of a client that waits to be scheduled.
type access struct {
	client *client
	what   string
	run    func()
	turn   chan struct{}
}

var errDead = &machine.Lost{Err: errors.New("this client is dead")}

// do waits until the request is scheduled and then runs f, unless the client has died.
func (c *client) do(what string, f func()) error {
	a := &access{client: c, what: what, run: f, turn: make(chan struct{})}
	if !c.world.arrive(a) {
		return errDead
	}
	<-a.turn
	if c.dead {
		return errDead
	}
	return nil
}

func (w *world) arrive(a *access) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if a.client.dead {
		return false
	}
	w.pending = append(w.pending, a)
	return true
}

func (w *world) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf(format, args...))
}

func (w *world) violate(format string, args ...any) {
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// Dial implements Dialer.
func (c *client) Dial(_ context.Context, n unit.Node) (Connection, error) {
	return &worldConn{c, c.world.nodes[n.Name]}, nil
}

type worldConn struct {
	*client
	node *worldNode
}

func (w *worldConn) Close() error { return nil }

// Start implements machine.Machine for programs that need no lock, such as listing.
func (w *worldConn) Start(_ context.Context, c machine.Command) (machine.Process, error) {
	var err error
	if lost := w.do("list "+w.node.name, func() { err = w.node.run(c) }); lost != nil {
		return nil, lost
	}
	return ended{err}, nil
}

type ended struct{ err error }

func (e ended) Wait() error { return e.err }

// run simulates a program on a node.
func (n *worldNode) run(c machine.Command) error {
	verb, name := c.Argv[0], ""
	if len(c.Argv) > 1 {
		name = c.Argv[1]
	}
	switch verb {
	case "list":
		var all []plan.Actual
		for _, u := range n.units {
			all = append(all, *u)
		}
		return json.NewEncoder(c.Stdout).Encode(all)
	case "create":
		u := &plan.Actual{}
		if err := json.NewDecoder(c.Stdin).Decode(u); err != nil {
			return err
		}
		if had := n.units[u.Name]; had != nil && had.Hash != u.Hash {
			return &machine.Exit{Code: 9}
		} else if had == nil {
			n.units[u.Name] = u
		}
	case "start", "stop":
		if u := n.units[name]; u != nil {
			u.Running = verb == "start"
		}
	case "remove":
		delete(n.units, name)
	}
	return nil
}

// worldRuntime is a Runtime that uses the programs of worldNode.
type worldRuntime struct{}

func call(ctx context.Context, m machine.Machine, stdin string, argv ...string) (string, error) {
	return machine.Output(ctx, m, strings.NewReader(stdin), argv...)
}

func (worldRuntime) Prepare(context.Context, machine.Machine, unit.Unit) error { return nil }

func (worldRuntime) Create(ctx context.Context, m machine.Machine, u unit.Unit) error {
	text, _ := json.Marshal(plan.Actual{Name: u.Name(), Job: u.Job, Slot: u.Slot, Hash: u.Hash(), Runtime: u.Runtime})
	_, err := call(ctx, m, string(text), "create", u.Name())
	return err
}

func (worldRuntime) Start(ctx context.Context, m machine.Machine, u unit.Unit) error {
	_, err := call(ctx, m, "", "start", u.Name())
	return err
}

func (worldRuntime) Stop(ctx context.Context, m machine.Machine, u unit.Unit) error {
	_, err := call(ctx, m, "", "stop", u.Name())
	return err
}

func (worldRuntime) Remove(ctx context.Context, m machine.Machine, u unit.Unit) error {
	_, err := call(ctx, m, "", "remove", u.Name())
	return err
}

func (worldRuntime) List(ctx context.Context, m machine.Machine, _ string) ([]plan.Actual, error) {
	text, err := call(ctx, m, "", "list")
	if err != nil {
		return nil, err
	}
	var all []plan.Actual
	return all, json.Unmarshal([]byte(text), &all)
}

func (worldRuntime) Ready(context.Context, machine.Machine, unit.Unit) (string, error) {
	return "", nil
}

func (worldRuntime) Logs(context.Context, machine.Machine, unit.Unit, int, io.Writer) error {
	return nil
}

func (worldRuntime) Undo(_, _ *unit.Unit) (keep, undo string, err error) { return "", "true", nil }

// Look implements Locker.
func (c *client) Look(_ context.Context, m machine.Machine, n unit.Node, _ string) (revlock.View, error) {
	node := c.world.nodes[n.Name]
	var v revlock.View
	err := c.do("look "+n.Name, func() { v = revlock.View{State: node.state, Applied: node.applied} })
	return v, err
}

// worldHolder is a holder on its node, together with the client's knowledge of it.
type worldHolder struct {
	client *client
	node   *worldNode
	shared bool
	ended  bool // the holder's shell on the node has ended
	lost   bool // the client knows that the shell has ended
	epoch  int64
	plan   string
	state  revlock.State
}

// Open implements Locker.
func (c *client) Open(_ context.Context, _ machine.Machine, n unit.Node, shared bool, plan string,
	_ time.Duration) (Holder, error) {
	node := c.world.nodes[n.Name]
	var h *worldHolder
	err := c.do("lock "+n.Name, func() {
		if shared && c.world.noShared {
			h = &worldHolder{client: c, node: node, shared: true, state: node.state}
			return
		}
		for _, other := range node.holders {
			if !other.ended && (!other.shared || !shared) {
				return
			}
		}
		h = &worldHolder{client: c, node: node, shared: shared, plan: plan, state: node.state, epoch: node.state.Epoch}
		node.holders = append(node.holders, h)
	})
	if err != nil {
		return nil, err
	}
	if h == nil {
		return nil, &revlock.Busy{Holder: "somebody"}
	}
	return h, nil
}

func (h *worldHolder) State() revlock.State { return h.state }

// order runs f on the node if the holder is still there and its epoch is the node's.
func (h *worldHolder) order(what string, f func() error) error {
	w := h.client.world
	if h.lost {
		w.violate("%s orders %s on %s after it lost the connection", h.client.name, what, h.node.name)
		return &machine.Lost{Err: errors.New("lost before")}
	}
	var err error
	lost := h.client.do(what+" "+h.node.name, func() {
		luck := w.rand.IntN(100)
		if h.ended || luck == 0 { // the connection broke before the order arrived
			h.ended, h.lost = true, true
			w.note("... the connection is lost before")
			return
		}
		if h.epoch != h.node.state.Epoch && !w.noEpoch {
			err = &revlock.Stale{Mine: h.epoch, Theirs: h.node.state.Epoch}
			h.ended, h.lost = true, true
			return
		}
		if h.shared {
			w.violate("%s orders %s on %s, which it only reads", h.client.name, what, h.node.name)
		}
		if h.epoch < h.node.newest {
			w.violate("%s orders %s on %s under epoch %d, and epoch %d had orders", h.client.name, what, h.node.name,
				h.epoch, h.node.newest)
		}
		h.node.newest = max(h.node.newest, h.epoch)
		err = f()
		w.check(h.client.name + " " + what + " " + h.node.name)
		if luck == 1 { // the answer is lost
			h.ended, h.lost = true, true
		}
	})
	switch {
	case lost != nil:
		return lost
	case err != nil:
		return err
	case h.lost:
		return &machine.Lost{Err: errors.New("connection lost")}
	}
	return nil
}

func (h *worldHolder) Start(_ context.Context, c machine.Command) (machine.Process, error) {
	var result error
	err := h.order(strings.Join(c.Argv, " "), func() error {
		result = h.node.run(c)
		return nil
	})
	if _, lost := errors.AsType[*machine.Lost](err); lost || err != nil {
		return ended{err}, nil //nolint:nilerr // it may have been started
	}
	return ended{result}, nil
}

func (h *worldHolder) Begin(_ context.Context, revision string, with []string) error {
	return h.order("begin", func() error {
		s := &h.node.state
		if h.epoch == s.Epoch || h.client.world.noEpoch {
			h.epoch = s.Epoch + 1
		}
		if h.client.world.breakFirst {
			h.client.world.breakFirst = false
			defer h.client.world.breakLock(h.node, true)
		}
		*s = revlock.State{Revision: revision, Previous: s.Revision, Epoch: h.epoch, Phase: revlock.Applying,
			Plan: h.plan,
			With: with}
		return nil
	})
}

func (h *worldHolder) Commit(_ context.Context, applied []byte) error {
	return h.order("commit", func() error {
		h.node.state.Phase, h.node.applied = revlock.Done, applied
		return nil
	})
}

func (h *worldHolder) Arm(context.Context, revlock.Change) error { return nil }

func (h *worldHolder) Close() error {
	_ = h.client.do("unlock "+h.node.name, func() { h.ended = true })
	return nil
}

func (c *client) Confirm(context.Context, machine.Machine, unit.Node, string) (revlock.Verdict, error) {
	return revlock.None, nil
}

func (c *client) GiveBack(context.Context, machine.Machine, unit.Node) ([]revlock.GivenBack, error) {
	return nil, nil
}

// Recall implements Locker.
func (c *client) Recall(context.Context, machine.Machine, unit.Node, string) (revlock.Verdict, bool, error) {
	return revlock.None, false, nil
}

// check verifies the invariants after an order.
func (w *world) check(after string) {
	running := map[string]int{}
	once := map[string][]string{}
	for _, n := range w.nodes {
		for _, u := range n.units {
			if u.Running {
				running[u.Job]++
				once[u.Name] = append(once[u.Name], n.name)
			}
		}
	}
	for name, nodes := range once {
		if strings.Contains(name, "-db-") && len(nodes) > 1 {
			slices.Sort(nodes)
			w.violate("after %s, %s runs on %v", after, name, nodes)
		}
	}
	if running["web"] < w.jobs["web"].Floor() {
		w.violate("after %s, %d units of web run", after, running["web"])
	}
}

// start starts an apply of a client.
func (w *world) start(c *client, want plan.Desired) {
	w.clients = append(w.clients, c)
	go func() {
		defer func() { c.done = true }()
		g, err := New(Config{Dialer: c, Locker: c, VCS: history{}, lockWait: 1,
			Runtimes: func(string, unit.Node) (Runtime, error) { return worldRuntime{}, nil },
			jitter:   func(below time.Duration) time.Duration { return below / time.Duration(1+len(c.name)) }})
		if err != nil {
			c.err = err
			return
		}
		defer g.Close()
		p, found, err := g.Plan(context.Background(), want, plan.Options{})
		if err == nil {
			_, err = g.Apply(context.Background(), want, p, found, Choice{})
		}
		c.err = err
	}()
}

// run schedules requests until all clients are done. With faults, some clients die, freeze or lose their locks.
func (w *world) run(faults bool) {
	for {
		synctest.Wait()
		w.mu.Lock()
		slices.SortStableFunc(w.pending, func(a, b *access) int {
			return cmp.Or(cmp.Compare(a.client.name, b.client.name), cmp.Compare(a.what, b.what))
		})
		w.mu.Unlock()
		if !slices.ContainsFunc(w.clients, func(c *client) bool { return !c.done }) {
			return
		}
		w.mu.Lock()
		if faults {
			w.fault()
		}
		ready := slices.DeleteFunc(slices.Clone(w.pending), func(a *access) bool {
			return a.client.frozen &&
				!a.client.dead
		})
		if len(ready) == 0 {
			w.mu.Unlock()
			for _, c := range w.clients {
				c.frozen = false
			}
			time.Sleep(500 * time.Millisecond) // lets pausing clients continue
			continue
		}
		a := ready[w.rand.IntN(len(ready))]
		w.pending = slices.DeleteFunc(w.pending, func(b *access) bool { return a == b })
		w.mu.Unlock()
		if !a.client.dead {
			w.note("%s: %s", a.client.name, a.what)
			a.run()
		}
		close(a.turn)
	}
}

// fault injects a random fault with some probability.
func (w *world) fault() {
	c := w.clients[w.rand.IntN(len(w.clients))]
	switch w.rand.IntN(120) {
	case 0: // the client is killed: its connections and its holders end
		c.dead = true
		w.note("%s dies", c.name)
		w.endHolders(c)
	case 1:
		c.frozen = true
	case 2: // the client is frozen for long: its holders get no heartbeat and end
		c.frozen = true
		w.note("%s freezes, and its holders end", c.name)
		w.endHolders(c)
	case 3:
		c.frozen = false
	case 4: // an operator breaks a lock, and the kill does not reach the holder
		names := []string{"s1", "s2", "s3"}
		n := w.nodes[names[w.rand.IntN(len(names))]]
		w.breakLock(n, w.rand.IntN(4) > 0)
	}
}

// breakLock frees the lock of a node. Its holder still accepts orders, because the kill does not reach it.
func (w *world) breakLock(n *worldNode, freeze bool) {
	for _, h := range n.holders {
		if !h.ended {
			w.note("somebody breaks the lock of %s, which %s has", n.name, h.client.name)
			n.state.Epoch++
			n.state.Phase = revlock.Applying
			h.client.frozen = freeze // the reason for breaking the lock
			n.holders = nil
			return
		}
	}
}

func (w *world) endHolders(c *client) {
	for _, n := range w.nodes {
		for _, h := range n.holders {
			if h.client == c {
				h.ended = true
			}
		}
	}
}

// history is a VCS with the revisions 0, a, b and c: 0 precedes all, and c merges a and b.
type history struct{}

func rev(name string) string { return "git:" + strings.Repeat(name, 40) }

var parents = map[string]string{"0": "0", "a": "0a", "b": "0b", "c": "0abc"}

func (history) Revision(context.Context) (string, error)      { return "", croft.NotFound }
func (history) Uncommitted(context.Context) ([]string, error) { return nil, nil }
func (history) Upstream(context.Context) (string, error)      { return "", nil }
func (history) Ancestor(_ context.Context, old, new string) (revlock.Answer, error) {
	if strings.Contains(parents[new[4:5]], old[4:5]) {
		return revlock.Yes, nil
	}
	return revlock.No, nil
}

var _ io.Closer = (*worldConn)(nil)
