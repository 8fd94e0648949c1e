package placement

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"croft"
)

// session is a stretch of time through which the server follows the store. Whoever
// needs the store hands it work; what has no answer when it has ended, gets none.
type session struct {
	writes chan *write
	asks   chan chan error
	ended  chan struct{} // closed when nothing of the session runs any more
	err    error         // why it ended; valid once ended is closed
}

// Run loads the state and follows it until ctx ends; it may be called once. When it
// returns, every write that was under way has been answered.
func (s *Server) Run(ctx context.Context) error {
	defer close(s.stopped)
	tidying, end := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { s.tidy(tidying) })
	defer work.Wait()
	defer end()
	for {
		err := s.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		s.log.Warn("placement answers 503 until the store does", "op", "follow", "err", err)
		select {
		case <-time.After(s.config.Retry):
		case <-ctx.Done():
			return nil
		}
	}
}

// follow loads the state and keeps it up to date until that fails or ctx ends.
func (s *Server) follow(ctx context.Context) error {
	revision, err := s.load(ctx)
	if err != nil {
		s.failing.Store(&err)
		return err
	}
	ses := &session{writes: make(chan *write), asks: make(chan chan error), ended: make(chan struct{})}
	s.begin(ses)
	ses.err = s.serve(ctx, ses, revision)
	s.failing.Store(&ses.err)
	s.session.Store(nil)
	close(ses.ended)
	return ses.err
}

// begin has requests served.
func (s *Server) begin(ses *session) {
	s.session.Store(ses)
	s.failing.Store(nil)
	select {
	case <-s.loaded:
		s.log.Info("placement follows the store again", "op", "follow")
	default:
		close(s.loaded)
	}
}

// serve does a session's work until the store is lost, or until ctx ends and the
// write that is under way is done.
func (s *Server) serve(ctx context.Context, ses *session, revision int64) error {
	following, end := context.WithCancelCause(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	work.Go(func() { end(s.store.Watch(following, revision, s.takeIn)) })
	work.Go(func() { end(s.askAll(following, ses.asks)) })
	s.commitAll(following, ses.writes, ctx.Done())
	end(errStopped)
	work.Wait()
	return context.Cause(following)
}

var errStopped = errors.New("the server is stopping")

func (s *Server) load(ctx context.Context) (int64, error) {
	snapshot, err := s.store.Load(ctx)
	if err != nil {
		return 0, fmt.Errorf("load the state: %w", err)
	}
	fresh := newState(time.Now())
	if err := fresh.apply(max(snapshot.Revision, 1), snapshot.Entries); err != nil {
		return 0, fmt.Errorf("load the state: %w", err)
	}
	snapshot.Entries = nil
	debug.FreeOSMemory() // the entries took several times what the state does
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != nil && s.state.revision > fresh.revision {
		s.log.Warn("the store is older than what it was: has it been restored?", "op", "load",
			"revision", fresh.revision, "known", s.state.revision)
		s.newest.Store(0)
	}
	s.state = fresh
	s.learn(fresh.revision)
	s.announce()
	return fresh.revision, nil
}

// takeIn applies what the watch tells.
func (s *Server) takeIn(revision int64, entries []Entry) {
	s.learn(revision)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.state.apply(revision, entries); err != nil {
		s.log.Error("an entry cannot be read; the rest is served", "op", "follow", "err", err)
		s.state.revision = revision
	}
	s.announce()
}

// announce wakes those who wait for a revision. The caller holds mu.
func (s *Server) announce() {
	close(s.grown)
	s.grown = make(chan struct{})
}

// learn notes that the store has reached a revision.
func (s *Server) learn(revision int64) {
	for known := s.newest.Load(); known < revision; known = s.newest.Load() {
		if s.newest.CompareAndSwap(known, revision) {
			return
		}
	}
}

// await returns once the state has that revision.
func (s *Server) await(ctx context.Context, revision int64) error {
	s.learn(revision)
	for {
		s.mu.RLock()
		reached, grown := s.state.revision >= revision, s.grown
		s.mu.RUnlock()
		if reached {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// catchUp waits until the state has all that any server had stored when it was called.
func (s *Server) catchUp(ctx context.Context) error {
	ses := s.session.Load()
	if ses == nil {
		return s.Ready()
	}
	done := make(chan error, 1)
	select {
	case ses.asks <- done:
	case <-ses.ended:
		return ses.err
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case err := <-done:
		return err
	case <-ses.ended:
		return ses.err
	}
}

// askAll brings the state up to date for those who ask, many at a time: those that
// come while one question is under way share the next. Where nobody asks it does so
// at each beat, to notice a store that went silent. It returns when the store does
// not answer, or ctx ends.
func (s *Server) askAll(ctx context.Context, asks <-chan chan error) error {
	beat := time.NewTicker(s.config.Beat)
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
		err := s.ask(ctx)
		for _, done := range waiting {
			done <- err
		}
		if err != nil {
			return err
		}
	}
}

// ask waits until the state has what the store has now.
func (s *Server) ask(ctx context.Context) error {
	ctx, cancel := s.patient(ctx, "has not told its revision")
	defer cancel()
	out, err := s.store.Commit(ctx, Txn{})
	if err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	return s.await(ctx, out.Revision)
}

// patient bounds how long the store may take.
func (s *Server) patient(ctx context.Context, lacks string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, s.config.Patience,
		croft.Errorf(croft.Unavailable, "the store %s for %s", lacks, s.config.Patience))
}

// Ready returns nil when the server has the state and follows it, else the reason.
func (s *Server) Ready() error {
	if err := s.failing.Load(); err != nil {
		return croft.Errorf(croft.Unavailable, "placement: %w", *err)
	}
	return nil
}

// WaitReady returns when the state has been loaded. Unavailable: it has not been
// before ctx ended, or never will be.
func (s *Server) WaitReady(ctx context.Context) error {
	select {
	case <-s.loaded:
		return nil
	case <-s.stopped:
		return croft.Errorf(croft.Unavailable, "placement: %w", errStopped)
	case <-ctx.Done():
		return croft.Errorf(croft.Unavailable, "placement: the state could not be loaded in time: %w", cmp.Or(s.Ready(), ctx.Err()))
	}
}
