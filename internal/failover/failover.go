// Package failover chooses among equivalent servers. All requests of a client share the server in use, and move to
// the next one when it fails.
package failover

import (
	"slices"
	"strings"
	"sync/atomic"
)

// Endpoints are the servers that a client knows. Its methods may be called at once.
type Endpoints struct{ known atomic.Pointer[list] }

type list struct {
	all []string
	at  atomic.Uint32 // all[at%len(all)] is in use
}

// New returns endpoints, of which the first is in use. There has to be one.
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

// Set replaces the endpoints. The one in use stays that where it is among them, else it
// is the first. There has to be one.
func (e *Endpoints) Set(all []string) {
	now, _ := e.Current()
	next := newList(all)
	next.at.Store(uint32(max(0, slices.Index(next.all, now))))
	e.known.Store(next)
}

// Current returns the endpoint in use, without a slash at its end. Next moves on to the
// one after it, unless another request did so meanwhile.
func (e *Endpoints) Current() (endpoint string, next func()) {
	l := e.known.Load()
	at := l.at.Load()
	return l.all[int(at)%len(l.all)], func() { l.at.CompareAndSwap(at, at+1) }
}

// Len is how many endpoints there are.
func (e *Endpoints) Len() int { return len(e.known.Load().all) }
