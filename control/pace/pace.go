// Package pace limits the request rate of each caller, of all callers of a project together, and of all projects of a
// tree together.
package pace

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"croft"
)

// mostCallers is the number of callers that are remembered. The callers idle for longest are forgotten.
const mostCallers = 10_000

// Limits limits the request rate of each caller.
type Limits struct {
	rate  rate.Limit
	burst int

	mu      sync.Mutex
	callers map[string]*limited
}

// Shared limits the callers of a project together to a multiple of one caller's rate, and all projects of a tree to a
// multiple of one project's rate.
type Shared struct {
	each, together, tree *Limits
}

const (
	// projectShare is the number of callers of a project that can use their full rate at the same time.
	projectShare = 4
	// treeShare is the number of projects of a tree that can use their full rate at the same time.
	treeShare = 4
)

// NewShared returns the limits of callers, of their projects, and of the trees of projects.
func NewShared(each rate.Limit, burst int) *Shared {
	return &Shared{New(each, burst), New(projectShare*each, projectShare*burst),
		New(treeShare*projectShare*each, treeShare*projectShare*burst)}
}

// Allow reports whether a caller of a project may now send a request that costs as much as cost requests, and otherwise
// how long to wait. Without a project, only the caller's limit applies. A request refused for its caller does not count
// for the project.
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

// New returns Limits with a rate in requests per second and a burst, both per caller.
func New(each rate.Limit, burst int) *Limits {
	return &Limits{rate: each, burst: burst, callers: map[string]*limited{}}
}

// Allow reports whether a caller may now send a request that costs as much as cost requests, and otherwise how long to
// wait. The cost of a request is at most the burst.
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

// forget drops the callers whose buckets are full again, because that changes nothing for them. If there are none, it
// drops the caller whose request is oldest.
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
