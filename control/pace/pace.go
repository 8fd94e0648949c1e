// Package pace bounds how often each caller asks, and how often all callers of a project and of a tree of projects ask
// together.
package pace

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"croft"
)

// mostCallers is how many callers are remembered; those that have not asked for the longest time are forgotten.
const mostCallers = 10_000

// Limits bounds how often each caller asks.
type Limits struct {
	rate  rate.Limit
	burst int

	mu      sync.Mutex
	callers map[string]*limited
}

// Shared bounds the callers of a project together by a multiple of what each of them may ask, and all projects of a
// tree by a multiple of what one of them may.
type Shared struct {
	each, together, tree *Limits
}

const (
	// projectShare is how many callers of a project may ask as often as they can at the same time.
	projectShare = 4
	// treeShare is the same for the projects of a tree.
	treeShare = 4
)

// NewShared makes the limits of callers, of their projects, and of the trees of these.
func NewShared(each rate.Limit, burst int) *Shared {
	return &Shared{New(each, burst), New(projectShare*each, projectShare*burst),
		New(treeShare*projectShare*each, treeShare*projectShare*burst)}
}

// Allow reports whether a caller of a project may send a request now that costs as much as so many others, and
// otherwise how long to wait before the next one. An empty project bounds the caller alone. What a caller is refused
// does not count for the project.
func (s *Shared) Allow(project croft.Project, caller string, cost int) (ok bool, wait time.Duration) {
	if ok, wait := s.each.Allow(caller, cost); !ok || project == "" {
		return ok, wait
	}
	if ok, wait := s.together.Allow(string(project), cost); !ok {
		return ok, wait
	}
	return s.tree.Allow(string(project.Root()), cost)
}

type limited struct {
	bucket *rate.Limiter
	asked  time.Time
}

// New makes Limits of a rate in requests per second and a burst of requests, for each caller.
func New(each rate.Limit, burst int) *Limits {
	return &Limits{rate: each, burst: burst, callers: map[string]*limited{}}
}

// Allow reports whether a caller may send a request now that costs as much as so many others, and otherwise how long to
// wait before the next one. No request costs more than the burst.
func (l *Limits) Allow(caller string, cost int) (ok bool, wait time.Duration) {
	cost = min(cost, l.burst)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	one := l.callers[caller]
	if one == nil {
		if len(l.callers) >= mostCallers {
			l.forget(now)
		}
		one = &limited{bucket: rate.NewLimiter(l.rate, l.burst)}
		l.callers[caller] = one
	}
	one.asked = now
	if one.bucket.AllowN(now, cost) {
		return true, 0
	}
	missing := float64(cost) - one.bucket.TokensAt(now)
	return false, max(time.Second, time.Duration(missing/float64(l.rate)*float64(time.Second)))
}

// forget drops the callers whose buckets are full again: they lose nothing by it. If there are none, it drops the one
// that asked first.
func (l *Limits) forget(now time.Time) {
	var oldest string
	for caller, one := range l.callers {
		if one.bucket.TokensAt(now) >= float64(l.burst) {
			delete(l.callers, caller)
		} else if oldest == "" || one.asked.Before(l.callers[oldest].asked) {
			oldest = caller
		}
	}
	if len(l.callers) >= mostCallers {
		delete(l.callers, oldest)
	}
}
