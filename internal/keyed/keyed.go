// Package keyed runs at most one function at a time per key, many keys concurrently, and remembers at most one further
// request per key.
package keyed

import (
	"context"
	"sync"
)

// Workers runs Do for keys that are woken. A wake carries no data: Do reads the state that it needs, so one run serves
// all wakes before its start.
type Workers[K comparable] struct {
	// Do is called with a context that ends with the waker's context or with Interrupt.
	Do func(ctx context.Context, key K)

	mu   sync.Mutex
	busy map[K]*run
	idle *sync.Cond // signalled when busy becomes empty; nil: there is no waiter
}

// run is one key's worker: a key in busy is owned by a goroutine.
type run struct {
	again  bool // woken during the run: run once more
	cancel context.CancelFunc
}

// Wake runs Do for the key now, or once more after the running call.
func (g *Workers[K]) Wake(ctx context.Context, key K) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r, running := g.busy[key]; running {
		r.again = true
		return
	}
	if ctx.Err() != nil {
		return
	}
	if g.busy == nil {
		g.busy = map[K]*run{}
	}
	r := &run{again: true}
	g.busy[key] = r
	go g.loop(ctx, key, r)
}

// Interrupt ends the context of the key's running call, if any, and wakes the key.
func (g *Workers[K]) Interrupt(ctx context.Context, key K) {
	g.mu.Lock()
	if r, running := g.busy[key]; running && r.cancel != nil {
		r.cancel()
	}
	g.mu.Unlock()
	g.Wake(ctx, key)
}

// Wait returns when no call runs. Wakes with a live context may delay it without limit.
func (g *Workers[K]) Wait() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.idle == nil {
		g.idle = sync.NewCond(&g.mu)
	}
	for len(g.busy) > 0 {
		g.idle.Wait()
	}
}

func (g *Workers[K]) loop(ctx context.Context, key K, r *run) {
	for {
		one, cancel := context.WithCancel(ctx)
		g.mu.Lock()
		if !r.again || ctx.Err() != nil {
			delete(g.busy, key)
			if len(g.busy) == 0 && g.idle != nil {
				g.idle.Broadcast()
			}
			g.mu.Unlock()
			cancel()
			return
		}
		r.again, r.cancel = false, cancel
		g.mu.Unlock()
		g.Do(one, key)
		cancel()
	}
}
