// Package once runs a function until it has succeeded once. Concurrent callers wait for it, bounded by their own
// contexts.
package once

import "context"

// Once is an action to be done once. Create it with New.
type Once struct {
	turn chan struct{} // full while a caller tries
	done chan struct{} // closed after success
}

// New creates a Once that is not done yet.
func New() *Once {
	return &Once{turn: make(chan struct{}, 1), done: make(chan struct{})}
}

// Do returns nil once any do has returned nil. One do runs at a time; an error is returned to its own caller only, and
// the next caller tries again.
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
