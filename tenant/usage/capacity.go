package usage

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"time"

	"croft"
	"croft/internal/delay"
	"croft/tenant"
)

// Gauge is the meter of what the hosts offer, as stored.
type Gauge struct {
	Meter
	Generation int64 `json:"-"` // revision of this value; 0: it does not exist
}

// CapacityStore stores what the hosts offered, by day.
type CapacityStore interface {
	// Gauge returns the meter; the zero Gauge: nothing was ever measured.
	Gauge(ctx context.Context) (Gauge, error)
	// WriteGauge replaces the meter, stores the days that ended since, and removes days beyond Kept. Conflict: the
	// meter is not the one in was. Unavailable: the clock of this machine is wrong.
	WriteGauge(ctx context.Context, was Gauge, next Meter, over []Day) error
}

const (
	measureEvery = 5 * time.Minute  // between two measurements of one server
	measuredOnce = 4 * time.Minute  // how long a measurement of another server is enough
	unmeasured   = 30 * time.Minute // from then on, the amounts between two measurements are estimated
)

// Surveyor measures what the hosts offer, by day. Any number may run: each write compares the one before it, so an
// interval of time is counted once.
type Surveyor struct {
	Store CapacityStore
	// Offered returns what the hosts that take instances offer together.
	Offered func(context.Context) (croft.Resources, error)
	Every   time.Duration // between two measurements; 5 min by default
	Log     *slog.Logger
}

// Run measures until ctx ends.
func (s Surveyor) Run(ctx context.Context) error {
	every := cmp.Or(s.Every, measureEvery)
	enough := min(measuredOnce, every*4/5)
	var warned time.Time
	for {
		err := s.measure(ctx, time.Now(), enough)
		if err != nil && ctx.Err() == nil && !errors.Is(err, croft.Conflict) && time.Since(warned) >= time.Hour {
			warned = time.Now()
			s.Log.Warn("what the hosts offer is not recorded for the moment", "err", err)
		}
		if err := delay.For(ctx, every); err != nil {
			return err
		}
	}
}

// measure measures once, unless another server just did.
func (s Surveyor) measure(ctx context.Context, now time.Time, enough time.Duration) error {
	was, err := s.Store.Gauge(ctx)
	if err != nil || was.Generation != 0 && now.Sub(was.At) < enough {
		return err
	}
	resources, err := s.Offered(ctx)
	if err != nil {
		return err
	}
	offered := tenant.Amounts{}
	for class, n := range resources {
		offered[tenant.Measure(class)] = n
	}
	next, over := NewMeter(now).Set(offered, 0), []Day(nil)
	switch {
	case was.Generation == 0:
	case now.Sub(was.At) > unmeasured:
		next, over = was.Between(was.At, now, offered, 0)
	default:
		next, over = was.Until(now)
		next = next.Set(offered, 0)
	}
	return s.Store.WriteGauge(ctx, was, next, over)
}
