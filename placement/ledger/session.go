package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"
)

// session is a period in which the ledger follows the store. Requests that are in flight at its end are Unavailable.
type session struct {
	requests chan *request
	asks     chan chan error
	ended    chan struct{} // closed once the session's goroutines have ended
	err      error         // why it ended; valid after ended is closed
}

// Run loads the state and follows the store until ctx ends. It may be called once. It returns only when every request
// has been answered.
func (l *Ledger) Run(ctx context.Context) error {
	defer close(l.stopped)
	tidying, end := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { l.tidy(tidying) })
	defer work.Wait()
	defer end()
	for {
		err := l.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		l.config.Log.Warn("placement answers 503 until the store does", "op", "follow", "err", err)
		select {
		case <-time.After(l.config.Retry):
		case <-ctx.Done():
			return nil
		}
	}
}

// follow loads the state and keeps it up to date until the store fails or ctx ends.
func (l *Ledger) follow(ctx context.Context) error {
	revision, err := l.load(ctx)
	if err != nil {
		l.failing.Store(&err)
		return err
	}
	ses := &session{requests: make(chan *request), asks: make(chan chan error), ended: make(chan struct{})}
	l.begin(ses)
	ses.err = l.serve(ctx, ses, revision)
	l.failing.Store(&ses.err)
	l.session.Store(nil)
	close(ses.ended)
	return ses.err
}

// begin admits requests.
func (l *Ledger) begin(ses *session) {
	l.session.Store(ses)
	l.failing.Store(nil)
	select {
	case <-l.loaded:
		l.config.Log.Info("placement follows the store again", "op", "follow")
	default:
		close(l.loaded)
	}
}

// serve runs a session until the store is lost, or until ctx ends and the current transaction is complete.
func (l *Ledger) serve(ctx context.Context, ses *session, revision int64) error {
	following, end := context.WithCancelCause(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	work.Go(func() { end(l.config.Store.Watch(following, revision, l.update)) })
	work.Go(func() { end(l.askAll(following, ses.asks)) })
	l.commits.serve(following, ses.requests, ctx.Done())
	end(errStopped)
	work.Wait()
	return context.Cause(following)
}

var errStopped = errors.New("the server is stopping")

func (l *Ledger) load(ctx context.Context) (int64, error) {
	snapshot, err := l.config.Store.Load(ctx)
	if err != nil {
		return 0, fmt.Errorf("load the state: %w", err)
	}
	fresh := newState(time.Now())
	if err := fresh.apply(max(snapshot.Revision, 1), snapshot.Entries); err != nil {
		return 0, fmt.Errorf("load the state: %w", err)
	}
	snapshot.Entries = nil
	debug.FreeOSMemory() // the loaded entries took several times the memory of the state
	l.memory.write(func(old *State) *State {
		if old != nil && old.revision > fresh.revision {
			l.config.Log.Warn("the store is older than what it was: has it been restored?", "op", "load",
				"revision", fresh.revision, "known", old.revision)
			l.memory.newest.Store(0)
		}
		l.memory.learn(fresh.revision)
		return fresh
	})
	return fresh.revision, nil
}

// update applies changes that the watch reports.
func (l *Ledger) update(revision int64, entries []Entry) {
	l.memory.learn(revision)
	l.memory.write(func(s *State) *State {
		if err := s.apply(revision, entries); err != nil {
			l.config.Log.Error("an entry cannot be read; the rest is served", "op", "follow", "err", err)
			s.revision = revision
		}
		return s
	})
}

// Change runs decide in the next batch, and returns once its changes are stored and visible in the state. decide may
// run several times; it must read and change only t, and its error is returned. Unavailable: the store does not answer,
// or it is unknown whether the changes were stored.
func (l *Ledger) Change(ctx context.Context, decide func(t *Tx) error) error {
	return l.ChangeWith(ctx, nil, decide)
}

// ChangeWith is like Change, in one transaction with a rider, which may be nil. If the store refuses the rider, its
// error is returned unchanged, and nothing is changed. The rider is not used after ChangeWith has returned.
func (l *Ledger) ChangeWith(ctx context.Context, rider Rider, decide func(t *Tx) error) error {
	ses := l.session.Load()
	if ses == nil {
		return unavailable(l.Ready())
	}
	r := &request{ctx: ctx, rider: rider, decide: decide, done: make(chan error, 1)}
	select {
	case ses.requests <- r:
	case <-ctx.Done():
		return unavailable(ctx.Err())
	case <-ses.ended:
		return unavailable(ses.err)
	}
	select {
	case err := <-r.done:
		return err
	case <-ses.ended:
	}
	select {
	case err := <-r.done: // both happened
		return err
	default:
		return unavailable(ses.err)
	}
}

// CatchUp waits until the state includes everything that any ledger had stored when it was called. Unavailable.
func (l *Ledger) CatchUp(ctx context.Context) error {
	ses := l.session.Load()
	if ses == nil {
		return unavailable(l.Ready())
	}
	done := make(chan error, 1)
	select {
	case ses.asks <- done:
	case <-ses.ended:
		return unavailable(ses.err)
	case <-ctx.Done():
		return unavailable(ctx.Err())
	}
	select {
	case err := <-done:
		if err != nil {
			return unavailable(err)
		}
		return nil
	case <-ses.ended:
		return unavailable(ses.err)
	}
}

// askAll brings the state up to date for all callers, in batches: callers that arrive while the store is asked share
// the next answer. Without callers it asks at each beat, to notice a silent store. It returns when the store does not
// answer, or ctx ends.
func (l *Ledger) askAll(ctx context.Context, asks <-chan chan error) error {
	beat := time.NewTicker(l.config.Beat)
	defer beat.Stop()
	for {
		var waiting []chan error
		select {
		case done := <-asks:
			waiting = append(waiting, done)
		case <-beat.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		for more := true; more; {
			select {
			case done := <-asks:
				waiting = append(waiting, done)
			default:
				more = false
			}
		}
		err := l.ask(ctx)
		for _, done := range waiting {
			done <- err
		}
		if err != nil {
			return err
		}
	}
}

// ask waits until the state has the store's current revision.
func (l *Ledger) ask(ctx context.Context) error {
	ctx, cancel := l.commits.patience.bound(ctx, "has not told its revision")
	defer cancel()
	out, err := l.config.Store.Commit(ctx, Txn{})
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	return l.memory.await(ctx, out.Revision)
}
