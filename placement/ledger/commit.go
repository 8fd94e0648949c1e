package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"
)

// maxAttempts bounds the retries of a batch whose transaction failed because another ledger wrote first. In each
// attempt one of the two ledgers made progress.
const maxAttempts = 200

// request is one call of Change.
type request struct {
	ctx   context.Context
	rider Rider // nil: none
	// decide reads and changes t. It may run several times; only the last run has effect. If it returns an error
	// nothing changes, and the error is the answer.
	decide func(t *Tx) error
	done   chan error
}

// run runs decide. A panic becomes the answer to this request only.
func (r *request) run(t *Tx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return r.decide(t)
}

// committer turns requests into transactions of the store.
type committer struct {
	store     Store
	memory    *memory
	patience  patience
	conflicts atomic.Int64 // retried transactions
}

// serve answers all requests, in batches: requests that arrive during a transaction share the next one. It returns when
// ctx ends, or when stop is closed and no request is in flight.
func (c *committer) serve(ctx context.Context, requests <-chan *request, stop <-chan struct{}) {
	var waiting []*request
	for ctx.Err() == nil {
		if len(waiting) == 0 {
			select {
			case r := <-requests:
				waiting = append(waiting, r)
			case <-stop:
				return
			case <-ctx.Done():
				return
			}
		}
		waiting = c.drain(waiting, requests)
		waiting = c.commit(ctx, waiting)
	}
}

// drain adds the waiting requests, up to the number of entries that one transaction can hold.
func (c *committer) drain(waiting []*request, requests <-chan *request) []*request {
	for len(waiting) < c.store.Limit() {
		select {
		case r := <-requests:
			waiting = append(waiting, r)
		default:
			return waiting
		}
	}
	return waiting
}

// verdict is the outcome of a request, sent when the batch is stored.
type verdict struct {
	request *request
	err     error
}

// commit serves as many of the requests as fit in one transaction, and returns the others.
func (c *committer) commit(ctx context.Context, requests []*request) []*request {
	most := len(requests)
	for range maxAttempts {
		if most = min(most, len(requests)); most == 0 {
			return requests
		}
		batch, verdicts, rest := c.decide(requests[:most])
		out, err := c.persist(ctx, batch)
		if rest = slices.Concat(rest, requests[most:]); len(out.Refused) > 0 && err == nil {
			requests = answerRefused(requests, out.Refused)
			continue
		}
		switch {
		case errors.Is(err, ErrTooLarge) && len(verdicts) > 1:
			most = len(verdicts) / 2
		case errors.Is(err, ErrTooLarge):
			answerAll(verdicts, func(error) error { return tooManyBytes(err) })
			return rest
		case err != nil:
			answerAll(verdicts, func(error) error { return unavailable(err) })
			return rest
		case out.Done:
			answerAll(verdicts, func(err error) error { return err })
			return rest
		}
	}
	answerAll([]verdict{{request: requests[0]}}, func(error) error {
		return conflict(CodeConcurrentUpdate, "Another thread concurrently updated the data. Please retry your update")
	})
	return requests[1:]
}

// answerRefused answers the requests of refused riders, and returns the others.
func answerRefused(requests []*request, refused map[Rider]error) []*request {
	var others []*request
	for _, r := range requests {
		if answer, no := refused[r.rider]; no && r.rider != nil {
			r.done <- answer
			continue
		}
		others = append(others, r)
	}
	return others
}

// persist commits one batch and updates the state. Not done: another ledger wrote first, and the state now has its
// changes, or riders were refused.
func (c *committer) persist(ctx context.Context, batch Txn) (Outcome, error) {
	if len(batch.If)+len(batch.Then)+len(batch.Riders) == 0 {
		return Outcome{Done: true}, nil
	}
	ctx, cancel := c.patience.bound(ctx, "has not confirmed a write")
	defer cancel()
	out, err := c.store.Commit(ctx, batch)
	switch {
	case err != nil:
		return out, cmp.Or(context.Cause(ctx), err)
	case !out.Done && len(out.Refused) == 0:
		c.conflicts.Add(1)
	case out.Done && (len(batch.Then) == 0 || c.advance(out, batch)):
		return out, nil
	}
	return out, c.memory.await(ctx, out.Revision)
}

// advance applies a stored batch if nothing else was stored since the state's revision. Otherwise the watch must report
// the other changes first.
func (c *committer) advance(out Outcome, batch Txn) (applied bool) {
	c.memory.write(func(s *State) *State {
		if s.revision < out.Before || s.revision >= out.Revision {
			return s
		}
		entries := make([]Entry, len(batch.Then))
		for i, w := range batch.Then {
			entries[i] = Entry{Key: w.Key, Value: w.Value, Deleted: w.Delete, Modified: out.Revision,
				Created: cmp.Or(s.createdAt(w.Key), out.Revision)}
		}
		applied = s.apply(out.Revision, entries) == nil // on failure the watch fails too, and the state is loaded again
		return s
	})
	return applied
}

func answerAll(verdicts []verdict, answer func(error) error) {
	for _, v := range verdicts {
		v.request.done <- answer(v.err)
	}
}

// decide runs the requests in order, each on top of the changes of the requests before it, until one transaction is
// full.
func (c *committer) decide(requests []*request) (txn Txn, verdicts []verdict, rest []*request) {
	c.memory.read(func(s *State) {
		batch, limit := newTx(s, nil, time.Now().Unix()), c.store.Limit()
		var aboard riders
		for i, r := range requests {
			if r.ctx.Err() != nil {
				verdicts = append(verdicts, verdict{r, unavailable(r.ctx.Err())})
				continue
			}
			if aboard.exclude(r.rider) {
				rest = append(rest, r)
				continue
			}
			one := newTx(s, batch, batch.basis.now)
			err := r.run(one)
			size := batch.sizeWith(one) + aboard.sizeWith(r.rider)
			switch {
			case size > limit && i > 0: // it may fit in the next transaction
				txn, rest = batch.txn(), append(rest, requests[i:]...)
				txn.Riders = aboard.all
				return
			case size > limit:
				err = tooManyEntries(size, limit)
			case err != nil:
				batch.keep(one)
			default:
				batch.merge(one)
				aboard.add(r.rider)
			}
			verdicts = append(verdicts, verdict{r, err})
		}
		txn = batch.txn()
		txn.Riders = aboard.all
	})
	return txn, verdicts, rest
}

// riders are the riders of one transaction.
type riders struct {
	all   []Rider
	size  int
	alone map[string]bool
}

// exclude reports whether a rider, which may be nil, must wait for the next transaction.
func (r *riders) exclude(one Rider) bool {
	return one != nil && slices.ContainsFunc(one.Alone(), func(name string) bool { return r.alone[name] })
}

func (r *riders) sizeWith(one Rider) int {
	if one == nil {
		return r.size
	}
	return r.size + one.Size()
}

func (r *riders) add(one Rider) {
	if one == nil {
		return
	}
	r.all, r.size = append(r.all, one), r.sizeWith(one)
	for _, name := range one.Alone() {
		if r.alone == nil {
			r.alone = map[string]bool{}
		}
		r.alone[name] = true
	}
}
