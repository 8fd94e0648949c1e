package ledger

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"croft"
	"croft/internal/wording"
)

// patience is how long the store may take to answer.
type patience time.Duration

// bound returns a context that ends when patience runs out. lacks names the operation that the store did not do in
// time.
func (p patience) bound(ctx context.Context, lacks string) (context.Context, context.CancelFunc) {
	d := time.Duration(p)
	return context.WithTimeoutCause(ctx, d, croft.Errorf(croft.Unavailable, "the store %s for %s", lacks,
		wording.Duration(d)))
}

// memory holds the state and its lock. Only its methods take the lock.
type memory struct {
	mu    sync.RWMutex
	state *State        // nil until loaded
	grown chan struct{} // closed and replaced at each new revision of state

	newest atomic.Int64 // newest revision that the store is known to have had
}

func newMemory() *memory { return &memory{grown: make(chan struct{})} }

// read calls use with the state; nil: it is not loaded. use must not keep it.
func (m *memory) read(use func(*State)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	use(m.state)
}

// write calls change, which may change the state or return another one, and wakes waiters for a revision.
func (m *memory) write(change func(*State) *State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state = change(m.state)
	close(m.grown)
	m.grown = make(chan struct{})
}

// reached reports whether the state has reached a revision, and returns a channel that is closed at the next change of
// the state.
func (m *memory) reached(revision int64) (bool, <-chan struct{}) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.state.revision >= revision, m.grown
}

// learn records that the store has reached a revision.
func (m *memory) learn(revision int64) {
	for known := m.newest.Load(); known < revision; known = m.newest.Load() {
		if m.newest.CompareAndSwap(known, revision) {
			return
		}
	}
}

// await returns once the state has reached a revision.
func (m *memory) await(ctx context.Context, revision int64) error {
	m.learn(revision)
	for {
		reached, grown := m.reached(revision)
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
