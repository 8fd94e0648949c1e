// Package sighting measures how long this process has seen things, by its own monotonic clock. What another machine
// wrote about when a thing was made does not count, because its clock may differ.
package sighting

import (
	"maps"
	"sync"
	"time"
)

// forgotten is after how many of its patiences a thing is forgotten that was not asked for since.
const forgotten = 100

// First remembers when each thing was first seen. A thing has to be told from a later one in its place. The zero value
// has seen nothing.
type First[K comparable] struct {
	mu    sync.Mutex
	first map[K]time.Time
}

// Longer reports whether a thing was first seen more than a patience ago. The first call for it returns false.
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
