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

// attempts are how often a change is made anew because others pushed meanwhile.
const attempts = 5

// A change is what a round found, and the revision that it was found at.
type change struct {
	dir     string
	s       *state.State
	answers answers
	begun   time.Duration
}

// change writes the states of nodes, places, commits, pushes and applies. When others have pushed, everything is
// decided anew at what they pushed; nothing is merged.
func (w *Watch) change(ctx context.Context, c change, r *Report) error {
	for try := 1; ; try++ {
		in, err := w.input(c.s, c.answers)
		if err != nil {
			return err
		}
		d := Decide(in)
		r.Revision, r.Verdicts, r.Held = w.at, d.Verdicts, append([]string{}, d.Held...)
		if len(d.Actions) == 0 {
			return nil // others have done it, or the node is back
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

// commit writes, commits and pushes. Conflict: others have pushed.
func (w *Watch) commit(ctx context.Context, c change, in Input, actions []Action) (*Pending, error) {
	base := w.at
	w.loaded, w.at = nil, "" // the directory changes now
	changes, err := w.write(ctx, c, in, actions)
	if err != nil {
		return nil, err
	}
	revision, err := w.Repository.Commit(ctx, Message(w.Name, actions, changes))
	if err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	if late := w.Store.clock.Now() - c.begun; late > w.Rules.Grace {
		return nil, fmt.Errorf("the round took %s: what it saw may no longer be so, and the next one looks anew",
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

// write changes the working directory. A node that is put out gets no lease from then on, and has sent no beat since
// the decision, so the lease that it had last is the one that was decided by.
func (w *Watch) write(ctx context.Context, c change, in Input, actions []Action) ([]place.Change, error) {
	why := edit.WatchMark + time.Now().UTC().Format(time.RFC3339)
	var stay []string // nodes that keep their exclusive slots
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

// errChanged means that what a change was decided by is no longer so.
var errChanged = errors.New("a node has come back")

// placed places everything in a directory, except exclusive slots of the nodes that keep them.
func placed(ctx context.Context, dir string, stay []string) ([]place.Change, error) {
	s, err := state.Load(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("load what was changed: %w", err)
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

// concerned lists the nodes that are to be applied to: those that get slots or lose them, and are not lost.
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

// apply applies a revision that was pushed, and notes that it was.
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

// gone lists the nodes that a watch has put out and that are silent: it did so when no exclusive job could run there
// any more, and they have had no lease since.
func (w *Watch) gone(ctx context.Context, dir string) (list []string, err error) {
	s, err := state.Load(ctx, dir)
	if err != nil {
		return nil, fmt.Errorf("load what was pushed: %w", err)
	}
	in, err := w.input(s, answers{})
	for _, n := range in.Nodes {
		if n.State == state.Out && n.Marked && in.Now-n.Last >= missed*in.Rules.Every {
			list = append(list, n.Name)
		}
	}
	return list, err
}

// Unapplied means that a change was pushed, and not applied to all nodes; the next round tries again.
type Unapplied struct {
	Revision string
	Err      error
}

func (u *Unapplied) Error() string {
	return fmt.Sprintf("%s was pushed, and is not applied: %s", u.Revision, u.Err)
}

// Unwrap returns the cause.
func (u *Unapplied) Unwrap() error { return u.Err }
