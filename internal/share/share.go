// Package share lets callers that arrive during a slow read share the next read.
package share

import (
	"context"
	"sync/atomic"
)

// Read does a slow read, such as of all providers, once for all concurrent callers, for example when --count 100 finds
// no room. No caller gets data that was read before its call.
type Read[T any] struct {
	now     atomic.Int64  // logical clock: counts callers and reads
	reading chan struct{} // a mutex that supports contexts: full while a caller reads
	waiting atomic.Int64  // callers that are reading, or wait to
	begun   int64         // when the last successful read started
	last    T             // kept only while others wait for it
}

// NewRead makes a Read.
func NewRead[T any]() *Read[T] { return &Read[T]{reading: make(chan struct{}, 1)} }

// Get reads, or returns the result of a read that another caller started after this call. Callers must not change the
// result.
func (s *Read[T]) Get(ctx context.Context, read func(context.Context) (T, error)) (last T, err error) {
	s.waiting.Add(1)
	asked := s.now.Add(1)
	select {
	case s.reading <- struct{}{}:
	case <-ctx.Done():
		s.waiting.Add(-1)
		return last, ctx.Err()
	}
	defer func() {
		if s.waiting.Add(-1) == 0 {
			var none T
			s.begun, s.last = 0, none
		}
		<-s.reading
	}()
	if s.begun > asked {
		return s.last, nil
	}
	begun := s.now.Add(1)
	all, err := read(ctx)
	if err == nil {
		s.begun, s.last = begun, all
	}
	return all, err
}
