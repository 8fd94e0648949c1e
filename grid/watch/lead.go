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

// renewals is the number of times that a leader renews its record in a term.
const renewals = 4

// takeover is the number of terms after which another controller replaces an unchanged record. A leader stops after one
// term on its own clock, so the speeds of clocks may differ by this factor.
const takeover = 2

// errReplaced is the error when another controller leads.
var errReplaced = errors.New("another controller leads now")

// A lead manages the leadership of this controller. It makes all records while it has the turn, so that each record
// follows the one before.
type lead struct {
	repo  Repository
	store *Store
	name  string
	term  time.Duration

	// a semaphore for the fields below, with a context, since waiting for the upstream may take long
	turn      chan struct{}
	m         *memory
	record    LeaderRecord
	renewedAt time.Duration
	unsettled bool // the outcome of writing the last record is not known
}

func (l *lead) next(old LeaderRecord) Term {
	return Term{Leader: l.name, Count: old.Count + 1, Seconds: int64(l.term / time.Second),
		Pending: old.Pending}
}

// ensure makes this controller the leader if possible: it renews its own record, or replaces one that is missing or has
// not changed for two terms. leads: this controller leads, and no earlier push of it can take effect later. The
// returned record is the one in the upstream.
func (l *lead) ensure(ctx context.Context) (leads bool, _ LeaderRecord, _ error) {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	now := l.store.clock.Now()
	if l.record.Value != "" && now < l.m.Until && !l.unsettled && now-l.renewedAt < l.term/renewals {
		return true, l.record, nil
	}
	return l.renew(ctx)
}

// confirm renews the record before an act that cannot be undone, because the local clock may have stopped and cannot
// prove who leads. errReplaced: another controller leads.
func (l *lead) confirm(ctx context.Context) error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	leads, _, err := l.renew(ctx)
	if err == nil && !leads {
		err = errReplaced
	}
	return err
}

// renew reads the record in the upstream, and replaces it if this controller leads or may take over. The caller has the
// turn.
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

// swap makes a record with a new key, and stores until when this controller leads by it. The key is stored first, so
// that a record whose outcome is unknown is recognized later.
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

// stop records that another controller leads.
func (l *lead) stop() error {
	l.m.Leader, l.m.Until, l.record, l.unsettled = 0, 0, LeaderRecord{}, false
	return l.store.remember(l.m)
}

// push pushes a commit if this controller still leads. errReplaced: it does not. Conflict: the branch has moved.
func (l *lead) push(ctx context.Context, base, revision string, nodes []string) error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	if l.record.Value == "" {
		return errReplaced
	}
	old := l.record
	next := l.next(old)
	if old.Pending != nil { // nodes that are still pending are applied together with these
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

// applied records upstream that nothing is pending.
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

// during calls do and renews the record meanwhile. The context of do ends when another controller leads.
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

// remember changes the memory and stores it.
func (l *lead) remember(change func(*memory)) error {
	l.turn <- struct{}{}
	defer func() { <-l.turn }()
	change(l.m)
	return l.store.remember(l.m)
}
