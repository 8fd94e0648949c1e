package server

import (
	"sync"

	"golang.org/x/time/rate"

	"croft"
	"croft/pool"
)

// DefaultQuota applies to clients without a quota in the file of tokens or the settings.
var DefaultQuota = Quota{Open: 1000, Rate: 10}

// quotas limits the rate at which clients open tickets.
type quotas struct {
	mu   sync.Mutex
	rate map[string]*rate.Limiter // by the name of the token
}

// errTooFast is answered with 429.
var errTooFast = croft.Errorf(croft.Unavailable, "this token opens tickets too fast; ask again in a moment")

// bound sets the limit of open tickets in an opening, and refuses one that exceeds the
// sender's rate. Admins have no limits, nor has anybody where there are no tokens.
func (s *Server) bound(c caller, o *pool.Opening) error {
	if c.may(RoleAdmin) {
		return nil
	}
	q := c.quota.or(s.Quota).or(DefaultQuota)
	o.MostOpen = q.Open
	s.quotas.mu.Lock()
	defer s.quotas.mu.Unlock()
	l := s.quotas.rate[c.name]
	switch {
	case l == nil:
		l = rate.NewLimiter(rate.Limit(q.Rate), q.Open)
		s.quotas.rate[c.name] = l
	case l.Limit() != rate.Limit(q.Rate) || l.Burst() != q.Open:
		l.SetLimit(rate.Limit(q.Rate))
		l.SetBurst(q.Open)
	}
	if !l.Allow() {
		return errTooFast
	}
	return nil
}
