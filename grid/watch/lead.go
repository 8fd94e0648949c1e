package watch

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"croft"
)

// renewals are how often a leader renews its record in a term.
const renewals = 4

// takeover is how many terms a record stays before another controller takes over. A leader stops after one, on its own
// clock, so clocks may differ in speed by that factor.
const takeover = 2

// errReplaced means that another controller leads.
var errReplaced = errors.New("another controller leads now")

// A lead is the leadership of this controller, had or not. All records are made under its lock, so each is made of the
// one before.
type lead struct {
	repo  Repository
	store *Store
	name  string
	term  time.Duration

	turn      chan struct{} // has a value while somebody uses what follows; a wait for the upstream may be long
	m         *memory
	record    LeaderRecord
	renewedAt time.Duration
	unsettled bool // nobody knows what became of the last record
}

func (l *lead) next(old LeaderRecord) Term {
	return Term{Leader: l.name, Count: old.Count + 1, Seconds: int64(l.term / time.Second),
		Pending: old.Pending}
}

// ensure leads if that can be: it renews a record of this controller, takes one that is free, and takes over one that
// has not changed for two terms. leads: this controller leads, and nothing that it pushed earlier can take effect
// later. The record is the upstream's.
func (l *lead) ensure(ctx context.Context) (leads bool, _ LeaderRecord, _ error) {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	now := l.store.clock.Now()
	if l.record.Value != "" && now < l.m.Until && !l.unsettled && now-l.renewedAt < l.term/renewals {
		return true, l.record, nil
	}
	return l.renew(ctx)
}

// confirm makes a record before an act that cannot be undone, since a clock that stood still says nothing about who
// leads. errReplaced: another controller leads.
func (l *lead) confirm(ctx context.Context) error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	leads, _, err := l.renew(ctx)
	if err == nil && !leads {
		err = errReplaced
	}
	return err
}

// renew asks the upstream who leads, and makes a record if this controller does, or may. The caller has the turn.
func (l *lead) renew(ctx context.Context) (leads bool, _ LeaderRecord, _ error) {
	record, err := l.repo.Leader(ctx)
	if err != nil {
		return false, LeaderRecord{}, fmt.Errorf("ask the upstream who leads: %w", err)
	}
	if record.Value != l.m.Seen {
		l.m.Seen, l.m.SeenAt = record.Value, l.store.clock.Now()
	}
	mine := l.m.owns(record)
	stale := l.store.clock.Now()-l.m.SeenAt >= takeover*time.Duration(record.Seconds)*time.Second
	if record.Value != "" && !mine && !stale {
		return false, record, l.stop()
	}
	if !mine {
		l.m.Leader, l.m.Until = 0, 0
	}
	err = l.swap(ctx, record, l.next(record), func(next Term) (LeaderRecord, error) {
		return l.repo.Swap(ctx, record, next)
	})
	if errors.Is(err, croft.Conflict) {
		return false, record, l.stop()
	}
	return err == nil, l.record, err
}

// swap makes a record with a new key, and notes until when this controller leads by it. The key is remembered before
// the record is made, so that a record whose outcome is unknown is recognized later.
func (l *lead) swap(ctx context.Context, old LeaderRecord, next Term, do func(Term) (LeaderRecord, error)) error {
	mine := l.m.owns(old)
	if l.m.Next == "" {
		l.m.Next = rand.Text()
		if err := l.store.remember(l.m); err != nil {
			return err
		}
	}
	next.Key = l.m.Next
	begun := l.store.clock.Now()
	l.unsettled = true
	made, err := do(next)
	if errors.Is(err, croft.Conflict) {
		l.unsettled = false
		return err
	} else if err != nil {
		return fmt.Errorf("record upstream that this controller leads: %w", err)
	}
	l.unsettled, l.record, l.renewedAt = false, made, begun
	l.m.Key, l.m.Next, l.m.Renewed = next.Key, "", begun
	l.m.Seen, l.m.SeenAt = made.Value, l.store.clock.Now()
	l.m.Until = begun + l.term
	if !mine || l.m.Leader == 0 {
		l.m.Leader = l.store.clock.Now()
	}
	return l.store.remember(l.m)
}

// stop notes that another controller leads.
func (l *lead) stop() error {
	l.m.Leader, l.m.Until, l.record, l.unsettled = 0, 0, LeaderRecord{}, false
	return l.store.remember(l.m)
}

// push pushes a commit, if this controller still leads. errReplaced: it does not. Conflict: the branch has moved.
func (l *lead) push(ctx context.Context, base, revision string, nodes []string) error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	if l.record.Value == "" {
		return errReplaced
	}
	old := l.record
	next := l.next(old)
	if old.Pending != nil { // what was not applied yet is so together with this
		nodes = append(slices.Clone(nodes), old.Pending.Nodes...)
		slices.Sort(nodes)
	}
	next.Pending = &Pending{revision, slices.Compact(nodes)}
	err := l.swap(ctx, old, next, func(next Term) (LeaderRecord, error) {
		return l.repo.Push(ctx, base, revision, old,
			next)
	})
	if !errors.Is(err, croft.Conflict) {
		return err
	}
	now, failed := l.repo.Leader(ctx)
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
	if l.record.Value == "" {
		return errReplaced
	}
	old := l.record
	next := l.next(old)
	next.Pending = nil
	return l.swap(ctx, old, next, func(next Term) (LeaderRecord, error) { return l.repo.Swap(ctx, old, next) })
}

// during runs do while the record is renewed in time. do's context ends when another controller leads.
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
