package schedule

import (
	"context"
	"sync/atomic"
)

// sharedRead reads what takes long to read, such as all providers, once for all who want to
// know at the same time, as where --count 100 finds no room. Nobody is given what was
// read before they asked.
type sharedRead[T any] struct {
	now     atomic.Int64  // counts who asked and what was read, as a clock would
	reading chan struct{} // holds one while somebody reads, or looks at what follows
	begun   int64         // when the last reading that succeeded was begun
	last    T
}

func newSharedRead[T any]() *sharedRead[T] { return &sharedRead[T]{reading: make(chan struct{}, 1)} }

// get reads, or takes what somebody else has begun to read since it was called.
// Nobody may change what it returns.
func (s *sharedRead[T]) get(ctx context.Context, read func(context.Context) (T, error)) (last T, err error) {
	asked := s.now.Add(1)
	select {
	case s.reading <- struct{}{}:
	case <-ctx.Done():
		return last, ctx.Err()
	}
	defer func() { <-s.reading }()
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
