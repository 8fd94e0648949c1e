package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"croft"
	"croft/grid/plan"
	"croft/grid/revlock"
	"croft/grid/unit"
)

// Refused is the error of a plan that a lock or the revision of a node forbids. No step was started. Its Kind is
// Conflict.
type Refused struct{ Err error }

func (e *Refused) Error() string { return e.Err.Error() }

// Unwrap returns the reason and the Kind.
func (e *Refused) Unwrap() []error { return []error{e.Err, croft.Conflict} }

// lockTries is the maximum number of attempts to acquire all locks.
const lockTries = 5

// locked is a node whose lock this process holds.
type locked struct {
	unit.Node
	conn   Connection
	holder Holder
	shared bool
}

// locks maps the names of the nodes that one apply has locked to the nodes.
type locks map[string]*locked

// close releases all locks concurrently.
func (l locks) close() {
	var work sync.WaitGroup
	for _, n := range l {
		work.Go(func() { _ = n.holder.Close() })
	}
	work.Wait()
}

// lock acquires the locks of all nodes that a plan changes or depends on, in the order of node ids. If another process
// holds one of them, lock releases all, pauses, and tries again. Errors: Refused, which names the holder.
func (g *Grid) lock(ctx context.Context, want plan.Desired, p plan.Plan) (locks, error) {
	writes := p.Writes()
	var nodes []unit.Node
	for _, n := range want.Nodes {
		if slices.Contains(writes, n.Name) || slices.Contains(p.Reads, n.Name) {
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, func(a, b unit.Node) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Name, b.Name))
	})
	for try := 1; ; try++ {
		had, err := g.lockOnce(ctx, nodes, writes, p.ID())
		if err == nil {
			return had, nil
		}
		had.close()
		if _, busy := errors.AsType[*revlock.Busy](err); !busy {
			return nil, err
		}
		if try == lockTries || ctx.Err() != nil {
			return nil, &Refused{err}
		}
		g.Say(fmt.Sprintf("%v; trying again", err))
		pause := g.pause/2 + g.jitter(g.pause) // random, so that two processes do not collide repeatedly
		select {
		case <-ctx.Done():
			return nil, &Refused{err}
		case <-time.After(pause):
		}
	}
}

func (g *Grid) lockOnce(ctx context.Context, nodes []unit.Node, writes []string, id string) (locks, error) {
	had := locks{}
	for _, n := range nodes {
		conn, err := g.connection(ctx, n)
		if err != nil {
			return had, fmt.Errorf("lock %s: %w", n.Name, err)
		}
		shared := !slices.Contains(writes, n.Name)
		h, err := g.Locker.Open(ctx, conn, n, shared, id, g.lockWait)
		if err != nil {
			return had, fmt.Errorf("lock %s: %w", n.Name, err)
		}
		had[n.Name] = &locked{n, conn, h, shared}
	}
	return had, nil
}

// Choice contains the operator's options for an apply.
type Choice struct {
	plan.Options
	Adopt bool // accept nodes that store no revision
	Force bool // replace a revision that the new one does not contain
	// Head is the upstream's head as returned by revlock.Clean; "": no upstream exists.
	Head string
}

// permitted checks for every locked node whether the node's revision allows the change. Errors: Refused.
func (g *Grid) permitted(ctx context.Context, want plan.Desired, c Choice, had locks, found []plan.Observed) error {
	var all []error
	for _, o := range found {
		n := had[o.Node]
		if n == nil {
			continue
		}
		rights := revlock.Rights{Head: c.Head, Adopt: c.Adopt, Force: c.Force}
		err := revlock.Check(ctx, g.VCS, n.holder.State(), want.Revision, rights, len(o.Units) == 0)
		if err == nil {
			continue
		}
		err = fmt.Errorf("%s: %w", o.Node, err)
		if errors.Is(err, croft.Conflict) {
			err = &Refused{err}
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}

// again observes the locked nodes a second time and computes the plan from that. Errors: Refused if the plan differs
// from the one that was shown.
func (g *Grid) again(ctx context.Context, want plan.Desired, c Choice, shown plan.Plan, had locks,
	before []plan.Observed) (plan.Plan, []plan.Observed, error) {
	var nodes []unit.Node
	for _, n := range had {
		nodes = append(nodes, n.Node)
	}
	now := g.Observe(ctx, want, nodes)
	for _, o := range before {
		if had[o.Node] == nil {
			now = append(now, o)
		}
	}
	p, err := plan.Compute(want, now, c.Options)
	if err != nil {
		return plan.Plan{}, nil, err
	}
	if p.ID() != shown.ID() {
		return plan.Plan{}, nil, &Refused{croft.Errorf(croft.Conflict,
			"the nodes have changed since this plan was shown "+
				"(%s): plan again", Changed(shown, p))}
	}
	return p, now, nil
}

// Changed describes how two plans differ.
func Changed(a, b plan.Plan) string {
	var names []string
	for name, digest := range a.Observed {
		if b.Observed[name] != digest {
			names = append(names, name)
		}
	}
	for name := range b.Observed {
		if a.Observed[name] == "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	switch {
	case a.Revision != b.Revision:
		return "it was for " + revlock.Short(a.Revision)
	case len(names) == 0:
		return "other steps"
	case len(names) > 3:
		return fmt.Sprintf("%s and %d more", names[0], len(names)-1)
	}
	return fmt.Sprint(names)
}
