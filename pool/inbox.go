package pool

import (
	"sync"
	"time"
)

// request changes the ledger within a round. done, if not nil, gets the request's error once the round is written, or
// the round's own error.
type request struct {
	do   func(*Ledger, time.Time) error
	done chan error
	err  error
}

func (r *request) finish(err error) {
	if r.done == nil {
		return
	}
	if err == nil {
		err = r.err
	}
	r.done <- err
}

// inbox holds requests until the next round.
type inbox struct {
	mu      sync.Mutex
	waiting []*request
	closed  error
	signal  chan struct{} // holds one token while there may be requests
}

// put adds a request. If the inbox is closed, the request's done channel gets the reason.
func (b *inbox) put(r *request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed != nil {
		r.finish(b.closed)
		return
	}
	b.waiting = append(b.waiting, r)
	select {
	case b.signal <- struct{}{}:
	default:
	}
}

func (b *inbox) take() []*request {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.waiting
	b.waiting = nil
	return all
}

// close refuses all requests from now on.
func (b *inbox) close(reason error) {
	b.mu.Lock()
	b.closed = reason
	b.mu.Unlock()
	for _, r := range b.take() {
		r.finish(reason)
	}
}
