// Package mailbox passes keys from callbacks that must not block to one reader. A key that is put several times before
// the reader takes it is delivered once.
package mailbox

import (
	"context"
	"sync"
)

// Box holds keys until Run takes them. The zero value is not usable; see New.
type Box[K comparable] struct {
	mu      sync.Mutex
	pending map[K]struct{}
	signal  chan struct{} // holds one token while pending may be non-empty
}

// New returns an empty box.
func New[K comparable]() *Box[K] {
	return &Box[K]{pending: map[K]struct{}{}, signal: make(chan struct{}, 1)}
}

// Put adds keys; it never blocks.
func (b *Box[K]) Put(keys ...K) {
	if len(keys) == 0 {
		return
	}
	b.mu.Lock()
	for _, k := range keys {
		b.pending[k] = struct{}{}
	}
	b.mu.Unlock()
	select {
	case b.signal <- struct{}{}:
	default:
	}
}

// Ready returns a channel that receives when there may be keys to Take.
func (b *Box[K]) Ready() <-chan struct{} { return b.signal }

// Take removes and returns all keys.
func (b *Box[K]) Take() []K {
	b.mu.Lock()
	defer b.mu.Unlock()
	keys := make([]K, 0, len(b.pending))
	for k := range b.pending {
		keys = append(keys, k)
	}
	clear(b.pending)
	return keys
}

// Run calls each with every key that is put, until ctx ends, and returns ctx's error.
func (b *Box[K]) Run(ctx context.Context, each func(K)) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-b.signal:
		}
		for _, k := range b.Take() {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			each(k)
		}
	}
}

// Boxes is a set of boxes that all receive every key.
type Boxes[K comparable] struct {
	mu    sync.Mutex
	boxes map[*Box[K]]struct{}
}

// Join adds a box to the set and returns it with the function that removes it.
func (g *Boxes[K]) Join() (box *Box[K], leave func()) {
	box = New[K]()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.boxes == nil {
		g.boxes = map[*Box[K]]struct{}{}
	}
	g.boxes[box] = struct{}{}
	return box, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.boxes, box)
	}
}

// Put puts the keys into every box of the set; it never blocks.
func (g *Boxes[K]) Put(keys ...K) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for b := range g.boxes {
		b.Put(keys...)
	}
}
