package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"croft"
	"croft/grid/edit"
	"croft/grid/place"
	"croft/grid/state"
	"croft/internal/durable"
	"croft/internal/wording"
)

// attempts is the number of times a change is decided, if others push meanwhile.
const attempts = 5

// A change is the state of the cluster and the answers of nodes, from which a round decides.
type change struct {
	dir     string
	s       *state.State
	answers answers
	begun   time.Duration
}

// change writes the new states of nodes, places, commits, pushes and applies. If others have pushed meanwhile, it
// decides again from what they pushed; it never merges.
func (w *Watch) change(ctx context.Context, c change, r *Report) error {
	for try := 1; ; try++ {
		in, err := w.input(c.s, c.answers)
		if err != nil {
			return err
		}
		d := Decide(in)
		r.Revision, r.Verdicts, r.Held = w.at, d.Verdicts, append([]string{}, d.Held...)
		if len(d.Actions) == 0 {
			return nil // others did it, or the node has come back
		}
		pending, err := w.commit(ctx, c, in, d.Actions)
		if err == nil {
			r.Actions, r.Revision = d.Actions, pending.Revision
			return w.apply(ctx, c.dir, pending)
		}
		if !errors.Is(err, croft.Conflict) || try == attempts {
			return fmt.Errorf("change the state of %s: %w", d.Actions[0].Node, err)
		}
		if c.dir, c.s, err = w.checkout(ctx); err != nil {
			return err
		}
		if err := w.leases(c.s); err != nil {
			return err
		}
	}
}

// commit writes, commits and pushes the actions. Conflict: others have pushed.
func (w *Watch) commit(ctx context.Context, c change, in Input, actions []Action) (*Pending, error) {
	base := w.at
	w.loaded, w.at = nil, "" // the cached state is no longer valid
	changes, err := w.write(ctx, c, in, actions)
	if err != nil {
		return nil, err
	}
	revision, err := w.Repository.Commit(ctx, Message(w.Name, actions, changes))
	if err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	if late := w.Store.clock.Now() - c.begun; late > w.Rules.Grace {
		return nil, fmt.Errorf("the round took %s: its observations may be outdated, and the next round repeats them",
			wording.Duration(late))
	}
	nodes := concerned(actions, changes)
	if err := w.lead.push(ctx, base, revision, nodes); err != nil {
		return nil, fmt.Errorf("push: %w", err)
	}
	for _, a := range actions {
		w.Log.Warn("changed the state of a node", "node", a.Node, "state", a.State, "reason", a.Reason, "revision",
			revision)
	}
	err = w.lead.remember(func(m *memory) {
		for _, a := range actions {
			m.of(a.Node).OutAt = w.Store.clock.Now()
		}
	})
	return &Pending{revision, nodes}, err
}

// write changes the working directory. It revokes the lease of a node that becomes out, and checks that the node has
// sent no beat since the decision; so the node's last lease is the one that the decision took into account.
func (w *Watch) write(ctx context.Context, c change, in Input, actions []Action) ([]place.Change, error) {
	why := edit.WatchMark + time.Now().UTC().Format(time.RFC3339)
	var stay []string // nodes whose exclusive slots stay
	for _, a := range actions {
		n := c.s.Node(a.Node)
		if a.State == state.Out {
			at := slices.IndexFunc(in.Nodes, func(n Node) bool { return n.Name == a.Node })
			if err := w.Store.revoke(a.Node, in.Nodes[at].Last); err != nil {
				return nil, errors.Join(errChanged, err)
			}
		} else {
			stay = append(stay, a.Node)
		}
		file := filepath.Join(c.dir, filepath.FromSlash(n.Path))
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read the node's file: %w", err)
		}
		changed, err := edit.StateText(n.Path, string(text), a.State, why)
		if err != nil {
			return nil, err
		}
		if err := durable.Write(file, []byte(changed), 0o644); err != nil {
			return nil, err
		}
	}
	return placed(ctx, c.dir, stay)
}

// errChanged is the error when a node has sent a beat since the decision.
var errChanged = errors.New("a node has come back")

// placed places all slots in a directory, but leaves the exclusive slots of the nodes in stay where they are.
func placed(ctx context.Context, dir string, stay []string) ([]place.Change, error) {
	s, err := state.Load(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("load the changed files: %w", err)
	}
	result, err := place.Decide(s, place.Options{Without: stay})
	if err != nil {
		return nil, fmt.Errorf("place: %w", err)
	}
	result.Changes = slices.DeleteFunc(result.Changes, func(c place.Change) bool {
		j := s.Job(c.Job)
		return j != nil && j.Exclusive && slices.Contains(stay, c.From)
	})
	if err := result.Write(dir); err != nil {
		return nil, err
	}
	return result.Changes, nil
}

// concerned returns the nodes to apply to: all that get or lose slots, except the nodes of the actions.
func concerned(actions []Action, changes []place.Change) []string {
	var nodes []string
	for _, c := range changes {
		for _, n := range []string{c.From, c.To} {
			if n != "" && !slices.ContainsFunc(actions, func(a Action) bool { return a.Node == n }) {
				nodes = append(nodes, n)
			}
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// apply applies a pushed revision, and records that it is no longer pending.
func (w *Watch) apply(ctx context.Context, dir string, p *Pending) error {
	if w.Applier != nil && len(p.Nodes) > 0 {
		gone, err := w.gone(ctx, dir)
		if err == nil {
			err = w.Applier.Apply(ctx, dir, p.Revision, p.Nodes, gone)
		}
		if err != nil {
			return &Unapplied{p.Revision, err}
		}
		w.Log.Info("applied", "revision", p.Revision, "nodes", p.Nodes)
	}
	return w.lead.applied(ctx)
}

// gone returns the silent nodes that a watch has made out. It did so when no exclusive job could run there any more,
// and they got no lease since.
func (w *Watch) gone(ctx context.Context, dir string) (list []string, err error) {
	s, err := state.Load(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("load the pushed revision: %w", err)
	}
	in, err := w.input(s, answers{})
	for _, n := range in.Nodes {
		if n.State == state.Out && n.Marked && in.Now-n.Last >= missed*in.Rules.Every {
			list = append(list, n.Name)
		}
	}
	return list, err
}

// Unapplied is the error when a change was pushed but not applied to all nodes. The next round tries again.
type Unapplied struct {
	Revision string
	Err      error
}

func (u *Unapplied) Error() string {
	return fmt.Sprintf("%s was pushed, and is not applied: %s", u.Revision, u.Err)
}

// Unwrap returns the cause.
func (u *Unapplied) Unwrap() error { return u.Err }
