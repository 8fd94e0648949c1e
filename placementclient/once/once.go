// Package once does something until it has succeeded, and then never again. Those who
// come meanwhile wait for it no longer than their own contexts.
package once

import "context"

// Once is something to be done once. Make it with New.
type Once struct {
	turn chan struct{} // holds one while somebody tries
	done chan struct{} // closed after the success
}

// New makes a Once of which nothing is done yet.
func New() *Once {
	return &Once{turn: make(chan struct{}, 1), done: make(chan struct{})}
}

// Do returns nil once a do has returned nil. One runs at a time; after a failure, which
// is its caller's alone, the next one tries.
func (o *Once) Do(ctx context.Context, do func(context.Context) error) error {
	select {
	case <-o.done:
		return nil
	case o.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-o.turn }()
	select {
	case <-o.done:
		return nil
	default:
	}
	if err := do(ctx); err != nil {
		return err
	}
	close(o.done)
	return nil
}
