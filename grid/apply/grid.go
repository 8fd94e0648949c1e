package apply

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"croft"
	"croft/grid/machine"
	"croft/grid/plan"
	"croft/grid/revlock"
	"croft/grid/unit"
)

// Config configures a Grid.
type Config struct {
	Dialer Dialer
	Locker Locker
	VCS    revlock.VCS
	// Runtimes returns the runtime of a name for a node; the runtime keeps the node's units below the node's state
	// directory. Errors: NotFound.
	Runtimes func(name string, n unit.Node) (Runtime, error)
	Here     machine.Machine // the operator's machine, on which checks with Here run; nil: machine.Local

	FirewallConfirm time.Duration // time until a node reverts an unconfirmed firewall; 0: 60 s

	Parallel int                // number of nodes to work on concurrently; 0: 8
	Say      func(words string) // one line of progress; nil: no reports

	lockWait time.Duration // time limit of one lock; 0: 2 s
	pause    time.Duration // mean pause between attempts to acquire all locks; 0: 2 s
	jitter   func(below time.Duration) time.Duration
}

// A Grid observes and changes the nodes of a cluster. Close closes its connections.
type Grid struct {
	Config
	mu    sync.Mutex
	conns map[string]Connection
}

// New returns a Grid. It opens no connections. Errors: Invalid if a required field of c is missing.
func New(c Config) (*Grid, error) {
	if c.Dialer == nil || c.Locker == nil || c.Runtimes == nil {
		return nil, croft.Errorf(croft.Invalid, "apply: Dialer, Locker and Runtimes are required")
	}
	if c.Here == nil {
		c.Here = machine.Local{}
	}
	if c.Say == nil {
		c.Say = func(string) {}
	}
	c.Parallel = cmp.Or(max(0, c.Parallel), 8)
	c.FirewallConfirm = cmp.Or(max(0, c.FirewallConfirm), time.Minute)
	c.lockWait = cmp.Or(c.lockWait, 2*time.Second)
	c.pause = cmp.Or(c.pause, 2*time.Second)
	if c.jitter == nil {
		c.jitter = func(below time.Duration) time.Duration { return time.Duration(rand.Int64N(int64(below))) }
	}
	return &Grid{Config: c, conns: map[string]Connection{}}, nil
}

// Close closes all connections.
func (g *Grid) Close() {
	g.mu.Lock()
	conns := g.conns
	g.conns = map[string]Connection{}
	g.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
}

// each calls f for all nodes, at most Parallel at a time, and returns when all calls have returned.
func (g *Grid) each(nodes []unit.Node, f func(n unit.Node)) {
	var group errgroup.Group
	group.SetLimit(g.Parallel)
	for _, n := range nodes {
		group.Go(func() error {
			f(n)
			return nil
		})
	}
	_ = group.Wait()
}

// connection returns the connection to a node. It opens the connection on the first call.
func (g *Grid) connection(ctx context.Context, n unit.Node) (Connection, error) {
	g.mu.Lock()
	c := g.conns[n.Name]
	g.mu.Unlock()
	if c != nil {
		return c, nil
	}
	c, err := g.Dialer.Dial(ctx, n)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conns[n.Name] = c
	return c, nil
}

// Table returns the name of a cluster's nftables table, of family inet.
func Table(cluster string) string { return fmt.Sprintf("fission_%.8s", cluster) }

// outTime limits the observation of a node that is out or whose file was removed.
const outTime = 3 * time.Second

// Observe observes nodes. If a node cannot be observed, its Error says why. The result is sorted by node name.
func (g *Grid) Observe(ctx context.Context, want plan.Desired, nodes []unit.Node) []plan.Observed {
	var mu sync.Mutex
	var all []plan.Observed
	runtimes := runtimesOf(want)
	g.each(nodes, func(n unit.Node) {
		ctx := ctx
		if n.State == "out" || n.State == "left" { // the node is probably off, and other nodes must not wait for it
			limited, cancel := context.WithTimeout(ctx, outTime)
			defer cancel()
			ctx = limited
		}
		o, err := g.observe(ctx, want, n, runtimes)
		if err != nil {
			o = plan.Observed{Node: n.Name, Error: strings.ReplaceAll(err.Error(), "\n", " ")}
		}
		mu.Lock()
		defer mu.Unlock()
		all = append(all, o)
	})
	slices.SortFunc(all, func(a, b plan.Observed) int { return cmp.Compare(a.Node, b.Node) })
	return all
}

// runtimesOf lists the runtimes of the cluster's units.
func runtimesOf(want plan.Desired) []string {
	var names []string
	for _, n := range want.Nodes {
		for _, u := range n.Units {
			names = append(names, u.Runtime)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (g *Grid) observe(ctx context.Context, want plan.Desired, n unit.Node, runtimes []string) (plan.Observed, error) {
	c, err := g.connection(ctx, n)
	if err != nil {
		return plan.Observed{}, err
	}
	table := ""
	if n.Firewall != "" || tableOf(n.Firewall) != "" {
		table = cmp.Or(tableOf(n.Firewall), Table(want.Cluster))
	}
	v, err := g.Locker.Look(ctx, c, n, table)
	if err != nil {
		return plan.Observed{}, err
	}
	o := plan.Observed{Node: n.Name, Revision: v.Revision, Epoch: v.Epoch, Phase: string(v.Phase), Firewall: v.Firewall,
		Holders: v.Holders, Boot: v.BootNow, Unwatched: v.Unwatched}
	if v.Phase != revlock.Done {
		o.With = v.With
	}
	if v.Applied != nil {
		o.Applied = &unit.Node{}
		if err := json.Unmarshal(v.Applied, o.Applied); err != nil {
			o.Applied = nil // the listed units show what is running
		}
	}
	if o.Applied != nil {
		if was := tableOf(o.Applied.Firewall); was != "" && table == "" {
			if v, err = g.Locker.Look(ctx, c, n, was); err != nil {
				return plan.Observed{}, err
			}
			o.Firewall = v.Firewall
		}
		for _, u := range o.Applied.Units {
			runtimes = append(slices.Clone(runtimes), u.Runtime)
		}
	}
	runtimes = slices.Clone(runtimes)
	slices.Sort(runtimes)
	for _, name := range slices.Compact(runtimes) {
		units, err := g.list(ctx, c, n, want.Cluster, name)
		if err != nil {
			return plan.Observed{}, err
		}
		o.Units = append(o.Units, units...)
	}
	slices.SortFunc(o.Units, func(a, b plan.Actual) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Runtime, b.Runtime))
	})
	return o, nil
}

func (g *Grid) list(ctx context.Context, m machine.Machine, n unit.Node, cluster, runtime string) ([]plan.Actual,
	error) {
	r, err := g.Runtimes(runtime, n)
	if err != nil {
		if errors.Is(err, croft.NotFound) {
			err = croft.Errorf(croft.NotFound, "the runtime %s, which has units there, is no longer defined: %w", runtime, err)
		}
		return nil, err
	}
	units, err := r.List(ctx, m, cluster)
	if err != nil {
		return nil, fmt.Errorf("list the units of %s: %w", runtime, err)
	}
	for i := range units {
		units[i].Runtime = runtime
	}
	return units, nil
}

// tableOf returns the name of the table of family inet that a firewall's text defines, or "".
func tableOf(text string) string {
	fields := strings.Fields(text)
	for i := 0; i+2 < len(fields); i++ {
		if fields[i] == "table" && fields[i+1] == "inet" {
			return strings.TrimRight(fields[i+2], ";{")
		}
	}
	return ""
}

// Plan observes all nodes except the fenced ones, and computes a plan.
func (g *Grid) Plan(ctx context.Context, want plan.Desired, o plan.Options) (plan.Plan, []plan.Observed, error) {
	var ask []unit.Node
	for _, n := range want.Nodes {
		if !slices.Contains(o.Fenced, n.Name) {
			ask = append(ask, n)
		}
	}
	found := g.Observe(ctx, want, ask)
	p, err := plan.Compute(want, found, o)
	return p, found, err
}
