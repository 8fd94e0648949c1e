package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"croft"
)

// renewals are how often a leader renews its mark in a term.
const renewals = 4

// takeover is how many terms a mark stays before another controller takes over. A leader stops after one, on its own
// clock, so clocks may differ in speed by that factor.
const takeover = 2

// errReplaced means that another controller leads.
var errReplaced = errors.New("another controller leads now")

// A lead is the leadership of this controller, had or not. All marks are made under its lock, so each is made of the one
// before.
type lead struct {
	repo  Repository
	store *Store
	name  string
	term  time.Duration

	turn      chan struct{} // has a value while somebody uses what follows; a wait for the upstream may be long
	m         *memory
	mark      Mark
	renewedAt time.Duration
	unsettled bool // nobody knows what became of the last mark
}

func (l *lead) next(old Mark) Term {
	return Term{Leader: l.name, Key: l.m.Key, Count: old.Count + 1, Seconds: int64(l.term / time.Second),
		Pending: old.Pending}
}

// ensure leads if that can be: it renews a mark of this controller, takes one that is free, and takes over one that has
// not changed for two terms. leads: this controller leads, and nothing that it pushed earlier can take effect later.
// The mark is the upstream's.
func (l *lead) ensure(ctx context.Context) (leads bool, _ Mark, _ error) {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	now := l.store.clock.Now()
	if l.mark.Value != "" && now < l.m.Until && !l.unsettled && now-l.renewedAt < l.term/renewals {
		return true, l.mark, nil
	}
	mark, err := l.repo.Mark(ctx)
	if err != nil {
		return false, Mark{}, fmt.Errorf("ask the upstream who leads: %w", err)
	}
	if mark.Value != l.m.Seen {
		l.m.Seen, l.m.SeenAt = mark.Value, l.store.clock.Now()
	}
	mine := mark.Value != "" && mark.Key == l.m.Key
	stale := l.store.clock.Now()-l.m.SeenAt >= takeover*time.Duration(mark.Seconds)*time.Second
	if mark.Value != "" && !mine && !stale {
		return false, mark, l.stop()
	}
	if !mine {
		l.m.Leader, l.m.Until = 0, 0
	}
	err = l.swap(ctx, mark, l.next(mark), func(next Term) (Mark, error) { return l.repo.Swap(ctx, mark, next) })
	if errors.Is(err, croft.Conflict) {
		return false, mark, l.stop()
	}
	return err == nil, l.mark, err
}

// swap makes a mark, and notes until when this controller leads by it.
func (l *lead) swap(ctx context.Context, old Mark, next Term, do func(Term) (Mark, error)) error {
	begun := l.store.clock.Now()
	l.unsettled = true
	made, err := do(next)
	if errors.Is(err, croft.Conflict) {
		l.unsettled = false
		return err
	} else if err != nil {
		return fmt.Errorf("mark upstream that this controller leads: %w", err)
	}
	l.unsettled, l.mark, l.renewedAt = false, made, begun
	l.m.Seen, l.m.SeenAt = made.Value, l.store.clock.Now()
	l.m.Until = begun + l.term
	if old.Value == "" || old.Key != l.m.Key || l.m.Leader == 0 {
		l.m.Leader = l.store.clock.Now()
	}
	return l.store.remember(l.m)
}

// stop notes that another controller leads.
func (l *lead) stop() error {
	l.m.Leader, l.m.Until, l.mark, l.unsettled = 0, 0, Mark{}, false
	return l.store.remember(l.m)
}

// push pushes a commit, if this controller still leads. errReplaced: it does not. Conflict: the branch has moved.
func (l *lead) push(ctx context.Context, base, revision string, nodes []string) error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	if l.mark.Value == "" {
		return errReplaced
	}
	old := l.mark
	next := l.next(old)
	if old.Pending != nil { // what was not applied yet is so together with this
		nodes = append(slices.Clone(nodes), old.Pending.Nodes...)
		slices.Sort(nodes)
	}
	next.Pending = &Pending{revision, slices.Compact(nodes)}
	err := l.swap(ctx, old, next, func(next Term) (Mark, error) { return l.repo.Push(ctx, base, revision, old, next) })
	if !errors.Is(err, croft.Conflict) {
		return err
	}
	now, failed := l.repo.Mark(ctx)
	if failed != nil {
		return fmt.Errorf("ask the upstream who leads: %w", failed)
	}
	if now.Value != old.Value {
		return errors.Join(errReplaced, l.stop())
	}
	return err
}

// applied notes upstream that nothing is pending.
func (l *lead) applied(ctx context.Context) error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	if l.mark.Value == "" {
		return errReplaced
	}
	old := l.mark
	next := l.next(old)
	next.Pending = nil
	return l.swap(ctx, old, next, func(next Term) (Mark, error) { return l.repo.Swap(ctx, old, next) })
}

// during runs do while the mark is renewed in time. do's context ends when another controller leads.
func (l *lead) during(ctx context.Context, do func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var renewing sync.WaitGroup
	defer renewing.Wait()
	done := make(chan struct{})
	defer close(done)
	renewing.Go(func() {
		tick := time.NewTicker(l.term / renewals)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if leads, _, err := l.ensure(ctx); err == nil && !leads {
				cancel(errReplaced)
				return
			}
		}
	})
	err := do(ctx)
	if errors.Is(context.Cause(ctx), errReplaced) {
		return errReplaced
	}
	return err
}

// remember changes the memory.
func (l *lead) remember(change func(*memory)) error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	change(l.m)
	return l.store.remember(l.m)
}
