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

// errTooFast has status 429.
var errTooFast = croft.Errorf(croft.Unavailable, "this token opens tickets too fast; ask again in a moment")

// bound sets the limit of open tickets in an opening, and refuses one that exceeds the sender's rate. standard is
// for senders without their own quota. Admins have no limits, nor has anyone if the server has no tokens.
func (q *quotas) bound(c caller, standard Quota, o *pool.Opening) error {
	if c.may(RoleAdmin) {
		return nil
	}
	of := c.quota.or(standard).or(DefaultQuota)
	o.MostOpen = of.Open
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.rate[c.name]
	switch {
	case l == nil:
		l = rate.NewLimiter(rate.Limit(of.Rate), of.Open)
		q.rate[c.name] = l
	case l.Limit() != rate.Limit(of.Rate) || l.Burst() != of.Open:
		l.SetLimit(rate.Limit(of.Rate))
		l.SetBurst(of.Open)
	}
	if !l.Allow() {
		return errTooFast
	}
	return nil
}
