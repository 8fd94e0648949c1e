// Package turns runs the work for one key sequentially, in the order in which it was requested. Different keys do not
// wait for each other.
package turns

import (
	"context"
	"sync"
)

// Turns grants turns by key. The zero value is ready to use.
type Turns[K comparable] struct {
	mu    sync.Mutex
	lines map[K]*line
}

// line is the queue for one key's turn.
type line struct {
	turn  chan struct{} // full while the turn is taken; Go serves waiters in order
	users int           // guarded by Turns.mu; the line is removed with its last user
}

// Take waits for the turn of a key and returns the function that ends it, to be called once, by any
// goroutine. If ctx ends first, it returns ctx's cause.
func (t *Turns[K]) Take(ctx context.Context, key K) (end func(), err error) {
	l := t.join(key)
	select {
	case l.turn <- struct{}{}:
		return func() {
			<-l.turn
			t.leave(key, l)
		}, nil
	case <-ctx.Done():
		t.leave(key, l)
		return nil, context.Cause(ctx)
	}
}

func (t *Turns[K]) join(key K) *line {
	t.mu.Lock()
	defer t.mu.Unlock()
	l, ok := t.lines[key]
	if !ok {
		l = &line{turn: make(chan struct{}, 1)}
		if t.lines == nil {
			t.lines = map[K]*line{}
		}
		t.lines[key] = l
	}
	l.users++
	return l
}

func (t *Turns[K]) leave(key K, l *line) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(t.lines, key)
	}
}
