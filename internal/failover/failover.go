// Package failover chooses among equivalent servers. All requests of a client share the server in use, and move to
// the next one when it fails.
package failover

import (
	"slices"
	"strings"
	"sync/atomic"
)

// Endpoints are the equivalent servers of a client. Its methods may be called concurrently.
type Endpoints struct{ known atomic.Pointer[list] }

type list struct {
	all []string
	at  atomic.Uint32 // all[at%len(all)] is in use
}

// New returns endpoints, the first of them in use. all must not be empty.
func New(all []string) *Endpoints {
	e := &Endpoints{}
	e.known.Store(newList(all))
	return e
}

func newList(all []string) *list {
	l := &list{}
	for _, one := range all {
		l.all = append(l.all, strings.TrimRight(one, "/"))
	}
	return l
}

// Set replaces the endpoints. The endpoint in use stays in use if it is among the new ones, else the first one is used.
// all must not be empty.
func (e *Endpoints) Set(all []string) {
	now, _ := e.Current()
	next := newList(all)
	next.at.Store(uint32(max(0, slices.Index(next.all, now))))
	e.known.Store(next)
}

// Current returns the endpoint in use, without a trailing slash. next moves on to the one after it, unless
// another request did so meanwhile.
func (e *Endpoints) Current() (endpoint string, next func()) {
	l := e.known.Load()
	at := l.at.Load()
	return l.all[int(at)%len(l.all)], func() { l.at.CompareAndSwap(at, at+1) }
}

// Len returns the number of endpoints.
func (e *Endpoints) Len() int { return len(e.known.Load().all) }
