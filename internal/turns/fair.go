package turns

import (
	"context"
	"slices"
	"sync"
)

// Fair grants a number of turns at once, and only some of them to one key, so that one key cannot make all others wait.
// Turns are granted in the order of the requests, except that a key with all of its turns is passed over.
type Fair[K comparable] struct {
	Total  int // turns at once
	PerKey int // of them, of one key

	mu      sync.Mutex
	sum     int
	used    map[K]int
	waiting []*waiter[K]
}

type waiter[K comparable] struct {
	key     K
	granted chan struct{} // closed with Fair.mu held
}

// Take waits for a turn of a key and returns the function that ends it, to be called once, by any
// goroutine. If ctx ends before a turn is free, it returns ctx's cause.
func (f *Fair[K]) Take(ctx context.Context, key K) (end func(), err error) {
	w := &waiter[K]{key, make(chan struct{})}
	f.mu.Lock()
	f.waiting = append(f.waiting, w)
	f.grant()
	f.mu.Unlock()
	select {
	case <-w.granted:
		return func() { f.end(key) }, nil
	case <-ctx.Done():
	}
	f.mu.Lock()
	i := slices.Index(f.waiting, w)
	if i >= 0 {
		f.waiting = slices.Delete(f.waiting, i, i+1)
	}
	f.mu.Unlock()
	if i < 0 { // it was granted meanwhile, or before
		return func() { f.end(key) }, nil
	}
	return nil, context.Cause(ctx)
}

// grant grants the turns that are free. The caller has f.mu.
func (f *Fair[K]) grant() {
	if f.used == nil {
		f.used = map[K]int{}
	}
	f.waiting = slices.DeleteFunc(f.waiting, func(w *waiter[K]) bool {
		if f.sum == f.Total || f.used[w.key] == f.PerKey {
			return false
		}
		f.sum++
		f.used[w.key]++
		close(w.granted)
		return true
	})
}

func (f *Fair[K]) end(key K) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sum--
	if f.used[key]--; f.used[key] == 0 {
		delete(f.used, key)
	}
	f.grant()
}
