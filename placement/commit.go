package placement

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"croft"
)

// maxAttempts bounds how often a batch is tried again because another server was
// faster. Each time one of the two got on.
const maxAttempts = 200

// write is a request to change the state.
type write struct {
	ctx context.Context
	// decide reads and changes t; it may run several times and only its last run
	// counts. An error changes nothing and is the answer.
	decide func(t *tx) error
	done   chan error
}

// run decides. A mistake of ours that panics is the answer to this write alone.
func (w *write) run(t *tx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return w.decide(t)
}

// change has decide run in the next batch and waits until what it did is stored and
// known to this server.
func (s *Server) change(ctx context.Context, decide func(t *tx) error) error {
	ses := s.session.Load()
	if ses == nil {
		return unavailable(s.Ready())
	}
	w := &write{ctx: ctx, decide: decide, done: make(chan error, 1)}
	select {
	case ses.writes <- w:
	case <-ctx.Done():
		return unavailable(ctx.Err())
	case <-ses.ended:
		return unavailable(ses.err)
	}
	select {
	case err := <-w.done:
		return err
	case <-ses.ended:
	}
	select {
	case err := <-w.done: // both have happened
		return err
	default:
		return unavailable(ses.err)
	}
}

// commitAll does all writes, many at a time: those that come while one transaction
// is under way make up the next. It returns when ctx ends, or when stop is closed
// and no write is under way.
func (s *Server) commitAll(ctx context.Context, writes <-chan *write, stop <-chan struct{}) {
	var waiting []*write
	for ctx.Err() == nil {
		if len(waiting) == 0 {
			select {
			case w := <-writes:
				waiting = append(waiting, w)
			case <-stop:
				return
			case <-ctx.Done():
				return
			}
		}
		waiting = s.drain(waiting, writes)
		waiting = s.commit(ctx, waiting)
	}
}

// drain adds what waits in the queue, up to a number that one transaction can hold.
func (s *Server) drain(waiting []*write, writes <-chan *write) []*write {
	for len(waiting) < s.store.Limit() {
		select {
		case w := <-writes:
			waiting = append(waiting, w)
		default:
			return waiting
		}
	}
	return waiting
}

// verdict is what deciding a write came to; it is told once the batch is stored.
type verdict struct {
	write *write
	err   error
}

// commit does as many of the writes as fit one transaction and returns the others.
func (s *Server) commit(ctx context.Context, writes []*write) []*write {
	most := len(writes)
	for range maxAttempts {
		batch, verdicts, rest := s.decide(writes[:most])
		rest = writes[most-len(rest):]
		done, err := s.persist(ctx, batch)
		switch {
		case errors.Is(err, ErrTooLarge) && len(verdicts) > 1:
			most = len(verdicts) / 2
		case errors.Is(err, ErrTooLarge):
			tell(verdicts, func(error) error { return tooLong(err) })
			return rest
		case err != nil:
			tell(verdicts, func(error) error { return unavailable(err) })
			return rest
		case done:
			tell(verdicts, func(err error) error { return err })
			return rest
		}
	}
	tell([]verdict{{write: writes[0]}}, func(error) error {
		return conflict(codeConcurrentUpdate, "Another thread concurrently updated the data. Please retry your update")
	})
	return writes[1:]
}

// persist commits one batch and has the state follow. False: another server was
// faster, and the state now has what it did.
func (s *Server) persist(ctx context.Context, batch Txn) (bool, error) {
	if len(batch.If)+len(batch.Then) == 0 {
		return true, nil
	}
	ctx, cancel := s.patient(ctx, "has not confirmed a write")
	defer cancel()
	out, err := s.store.Commit(ctx, batch)
	switch {
	case err != nil:
		return false, cmp.Or(context.Cause(ctx), err)
	case !out.Done:
		s.metrics.conflicts.Inc()
	case len(batch.Then) == 0 || s.advance(out, batch):
		return true, nil
	}
	return out.Done, s.await(ctx, out.Revision)
}

// advance applies a batch that has been stored, where nothing was stored since the
// state's revision but that; else the watch has to tell first what came between.
func (s *Server) advance(out Outcome, batch Txn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.revision < out.Before || s.state.revision >= out.Revision {
		return false
	}
	entries := make([]Entry, len(batch.Then))
	for i, w := range batch.Then {
		entries[i] = Entry{Key: w.Key, Value: w.Value, Deleted: w.Delete, Modified: out.Revision,
			Created: cmp.Or(s.state.createdAt(w.Key), out.Revision)}
	}
	if err := s.state.apply(out.Revision, entries); err != nil {
		return false // the watch will stumble over it too, and load again
	}
	s.announce()
	return true
}

func tell(verdicts []verdict, answer func(error) error) {
	for _, v := range verdicts {
		v.write.done <- answer(v.err)
	}
}

// decide runs the writes one after the other, each on what those before it did, as
// far as one transaction can hold them.
func (s *Server) decide(writes []*write) (Txn, []verdict, []*write) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	batch := newTx(s.state, nil, time.Now().Unix())
	var verdicts []verdict
	limit := s.store.Limit()
	for i, w := range writes {
		if w.ctx.Err() != nil {
			verdicts = append(verdicts, verdict{w, unavailable(w.ctx.Err())})
			continue
		}
		one := newTx(s.state, batch, batch.now)
		err := w.run(one)
		if size := batch.sizeWith(one); size > limit {
			if i > 0 { // it may fit the next transaction
				return batch.txn(), verdicts, writes[i:]
			}
			verdicts = append(verdicts, verdict{w, tooLarge(size, limit)})
			continue
		}
		if err != nil {
			batch.keep(one)
		} else {
			batch.merge(one)
		}
		verdicts = append(verdicts, verdict{w, err})
	}
	return batch.txn(), verdicts, nil
}

// unavailable says that the store did not take or confirm a write.
func unavailable(err error) error {
	return &apiError{status: 503, detail: "The state could not be read or written: " + err.Error(), kind: croft.Unavailable}
}
