package placement

import (
	"cmp"
	"context"
	"errors"
	"time"

	"croft"
)

// maxAttempts bounds how often a batch is tried again because another server was
// faster. Each time one of the two got on.
const maxAttempts = 200

// commitTimeout bounds one transaction, waiting for its news included.
const commitTimeout = 5 * time.Second

// write is a request to change the state.
type write struct {
	ctx context.Context
	// decide reads and changes t; it may run several times and only its last run
	// counts. An error changes nothing and is the answer.
	decide func(t *tx) error
	done   chan error
}

// change has decide run in the next batch and waits until what it did is stored and
// known to this server.
func (s *Server) change(ctx context.Context, decide func(t *tx) error) error {
	w := &write{ctx: ctx, decide: decide, done: make(chan error, 1)}
	select {
	case s.writes <- w:
	case <-ctx.Done():
		return unavailable(ctx.Err())
	case <-s.stopped:
		return unavailable(errStopped)
	}
	select {
	case err := <-w.done:
		return err
	case <-s.stopped:
		return unavailable(errStopped)
	}
}

var errStopped = errors.New("the server is stopping")

// commitAll does all writes, many at a time: those that come while one transaction
// is under way make up the next.
func (s *Server) commitAll(ctx context.Context) {
	var waiting []*write
	for {
		if len(waiting) == 0 {
			select {
			case w := <-s.writes:
				waiting = append(waiting, w)
			case <-ctx.Done():
				return
			}
		}
		waiting = s.drain(waiting)
		waiting = s.commit(ctx, waiting)
		if ctx.Err() != nil {
			return
		}
	}
}

// drain adds what waits in the queue, up to a number that one transaction can hold.
func (s *Server) drain(waiting []*write) []*write {
	for len(waiting) < s.store.Limit() {
		select {
		case w := <-s.writes:
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
	for range maxAttempts {
		batch, verdicts, rest := s.decide(writes)
		done, err := s.persist(ctx, batch)
		switch {
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
	ctx, cancel := context.WithTimeout(ctx, commitTimeout)
	defer cancel()
	out, err := s.store.Commit(ctx, batch)
	switch {
	case err != nil:
		return false, err
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
		err := w.decide(one)
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

// await returns once the state has that revision.
func (s *Server) await(ctx context.Context, revision int64) error {
	for {
		s.mu.RLock()
		reached, grown := s.state != nil && s.state.revision >= revision, s.grown
		s.mu.RUnlock()
		if reached {
			return nil
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// unavailable says that the store did not take or confirm a write.
func unavailable(err error) error {
	return &apiError{status: 503, detail: "The state could not be read or written: " + err.Error(), kind: croft.Unavailable}
}
