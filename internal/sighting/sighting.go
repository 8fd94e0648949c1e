// Package sighting measures how long this process has seen objects, with its own monotonic clock. It does not use
// creation times that other machines wrote, because their clocks may differ.
package sighting

import (
	"maps"
	"sync"
	"time"
)

// forgotten: an object is forgotten after this many times its patience without a call for it.
const forgotten = 100

// First records when each object was first seen. Keys must distinguish an object from a later one in its place. The
// zero value has seen no objects.
type First[K comparable] struct {
	mu    sync.Mutex
	first map[K]time.Time
}

// Longer reports whether an object was first seen more than patience ago. The first call for an object returns false.
func (f *First[K]) Longer(thing K, patience time.Duration) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.first, func(_ K, at time.Time) bool { return time.Since(at) > forgotten*patience })
	if f.first == nil {
		f.first = map[K]time.Time{}
	}
	at, seen := f.first[thing]
	if !seen {
		f.first[thing] = time.Now()
		return false
	}
	return time.Since(at) > patience
}
