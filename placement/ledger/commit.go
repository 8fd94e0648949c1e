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

// committer turns requests into transactions of the store. While one transaction is written, it decides the requests of
// the next one on top of it, and sends that one only after the store has confirmed the first.
type committer struct {
	store     Store
	memory    *memory
	patience  patience
	conflicts atomic.Int64 // retried transactions
}

// serve answers all requests, in batches: requests that arrive during a transaction share the next one. It returns when
// ctx ends, or when stop is closed and no request is in flight.
func (c *committer) serve(ctx context.Context, requests <-chan *request, stop <-chan struct{}) {
	now := c.decide(nil, c.store.Limit())
	for ctx.Err() == nil {
		if len(now.verdicts)+len(now.rest) == 0 {
			select {
			case r := <-requests:
				now.add(r)
			case <-stop:
				return
			case <-ctx.Done():
				return
			}
		}
		for more := true; more && now.open(); {
			select {
			case r := <-requests:
				now.add(r)
			default:
				more = false
			}
		}
		now = c.write(ctx, now, requests)
	}
}

// write writes a batch, and meanwhile decides the next one with the requests that arrive. It returns the next batch.
func (c *committer) write(ctx context.Context, now *batch, requests <-chan *request) (next *batch) {
	for range maxAttempts {
		if len(now.all()) == 0 {
			return now
		}
		txn := now.txn()
		var out Outcome
		var err error
		written := make(chan struct{})
		go func() {
			defer close(written)
			out, err = c.persist(ctx, txn)
		}()
		next = c.decideDuring(written, now, requests)
		left, most := next.all(), c.store.Limit()
		if len(out.Refused) > 0 && err == nil {
			now = c.decide(answerRefused(append(now.decided(), left...), out.Refused), now.most)
			continue
		}
		switch {
		case errors.Is(err, ErrTooLarge) && len(now.verdicts) > 1:
			most = len(now.verdicts) / 2
		case errors.Is(err, ErrTooLarge):
			answerAll(now.verdicts, func(error) error { return tooManyBytes(err) })
			return c.decide(left, most)
		case err != nil: // it may be stored or not: the next batch must not rely on it
			answerAll(now.verdicts, func(error) error { return unavailable(err) })
			return c.decide(left, most)
		case out.Done:
			answerAll(now.verdicts, func(err error) error { return err })
			if len(next.verdicts) == 0 { // decide later, from newer data
				return c.decide(left, most)
			}
			next.below = out.Revision
			return next
		}
		now = c.decide(append(now.decided(), left...), min(most, now.most))
	}
	all := now.all()
	answerAll([]verdict{{request: all[0]}}, func(error) error {
		return conflict(CodeConcurrentUpdate, "Another thread concurrently updated the data. Please retry your update")
	})
	return c.decide(all[1:], c.store.Limit())
}

// decideDuring decides, on top of a batch that is being written, the requests that did not fit in it and the ones that
// arrive until it is written. If the batch writes more than claims, it decides none, and leaves new ones in the
// channel.
func (c *committer) decideDuring(written <-chan struct{}, now *batch, requests <-chan *request) (next *batch) {
	next = &batch{committer: c, most: c.store.Limit()}
	if !now.tx.claimsOnly() {
		next.rest = now.rest
		<-written
		return next
	}
	next.tx = newTx(now.tx.providers.base, now.tx.promised(), time.Now().Unix())
	for _, r := range now.rest {
		next.add(r)
	}
	for {
		arriving := requests
		if !next.open() {
			arriving = nil
		}
		select {
		case r := <-arriving:
			next.add(r)
		case <-written:
			return next
		}
	}
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

// verdict is the outcome of a request, sent when the batch is stored.
type verdict struct {
	request *request
	err     error
}

// batch is the requests of one transaction.
type batch struct {
	committer *committer
	tx        *Tx
	below     int64 // the revision of the batch that tx is on top of
	riders    riders
	most      int // the maximum number of requests
	full      bool
	verdicts  []verdict
	rest      []*request // they wait for the next batch
}

// decide starts a batch of at most most requests on top of the state.
func (c *committer) decide(requests []*request, most int) *batch {
	b := &batch{committer: c, most: most}
	c.memory.read(func(s *State) { b.tx = newTx(s, nil, time.Now().Unix()) })
	for _, r := range requests {
		b.add(r)
	}
	return b
}

// add decides a request on top of the changes of the requests before it. If it does not fit, it waits for the next
// batch.
func (b *batch) add(r *request) {
	if b.full || len(b.verdicts) >= b.most || b.riders.exclude(r.rider) {
		b.rest = append(b.rest, r)
		return
	}
	if r.ctx.Err() != nil {
		b.verdicts = append(b.verdicts, verdict{r, unavailable(r.ctx.Err())})
		return
	}
	b.committer.memory.read(func(s *State) {
		one, limit := newTx(s, b.tx, b.tx.basis.now), b.committer.store.Limit()
		err := r.run(one)
		size := b.tx.sizeWith(one) + b.riders.sizeWith(r.rider)
		switch {
		case one.basis.early:
			b.rest = append(b.rest, r)
			return
		case size > limit && len(b.verdicts) > 0: // it may fit in the next transaction
			b.full, b.rest = true, append(b.rest, r)
			return
		case size > limit:
			err = tooManyEntries(size, limit)
		case err != nil:
			b.tx.keep(one)
		default:
			b.tx.merge(one)
			b.riders.add(r.rider)
		}
		b.verdicts = append(b.verdicts, verdict{r, err})
	})
}

// open reports whether the batch takes further requests.
func (b *batch) open() bool { return !b.full && len(b.verdicts)+len(b.rest) < b.most }

// decided returns the requests that the batch answers.
func (b *batch) decided() (list []*request) {
	for _, v := range b.verdicts {
		list = append(list, v.request)
	}
	return list
}

// all returns all requests of the batch.
func (b *batch) all() []*request { return append(b.decided(), b.rest...) }

// txn returns the transaction. The batch below it must be stored.
func (b *batch) txn() (txn Txn) {
	b.committer.memory.read(func(*State) { txn = b.tx.txn() })
	for i := range txn.If {
		if txn.If[i].Revision == promisedRevision {
			txn.If[i].Revision = b.below
		}
	}
	txn.Riders = b.riders.all
	return txn
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
