package clustertest

import (
	"context"

	"croft"
)

// follow is one caller of Follow.
type follow struct {
	waiting []croft.ClusterID
	wake    chan struct{} // buffered with capacity 1
}

// Follow implements cluster.Records.
func (s *Store) Follow(ctx context.Context, changed func(croft.ClusterID)) error {
	f := &follow{wake: make(chan struct{}, 1)}
	s.mu.Lock()
	s.follows[f] = true
	for id := range s.records {
		f.waiting = append(f.waiting, id)
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.follows, f)
	}()
	for {
		s.mu.Lock()
		now := f.waiting
		f.waiting = nil
		s.mu.Unlock()
		for _, id := range now {
			changed(id)
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tell reports a change to all followers. Callers hold mu.
func (s *memory) tell(id croft.ClusterID) {
	for f := range s.follows {
		f.waiting = append(f.waiting, id)
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}
