package usage

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"croft"
)

// gauges is a store of what the hosts offered, in memory.
type gauges struct {
	mu     sync.Mutex
	gauge  Gauge
	days   []Day
	writes int
}

func (g *gauges) Gauge(context.Context) (Gauge, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.gauge, nil
}

func (g *gauges) WriteGauge(_ context.Context, was Gauge, next Meter, over []Day) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if was.Generation != g.gauge.Generation {
		return croft.Errorf(croft.Conflict, "another write was first")
	}
	g.gauge, g.days = Gauge{next, was.Generation + 1}, append(g.days, over...)
	g.writes++
	return nil
}

func TestWhatTheHostsOfferIsMeasuredOnceByManyServers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(90 * time.Minute) // not at the begin of a day
		store, amount := &gauges{}, int64(8)
		var mu sync.Mutex
		survey := Surveyor{Store: store, Log: slog.New(slog.DiscardHandler)}
		survey.Offered = func(context.Context) (croft.Resources, error) {
			mu.Lock()
			defer mu.Unlock()
			if amount == 0 {
				return nil, errors.New("the hosts are unknown")
			}
			return croft.Resources{croft.VCPU: amount}, nil
		}
		offer := func(n int64) { mu.Lock(); amount = n; mu.Unlock() }
		start := func() (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			var work sync.WaitGroup
			for range 3 {
				time.Sleep(time.Minute)
				work.Go(func() { _ = survey.Run(ctx) })
			}
			return func() { cancel(); work.Wait() }
		}
		stop := start()
		look := func() Gauge { g, _ := store.Gauge(t.Context()); return g }
		time.Sleep(2 * time.Hour)
		offer(16)
		time.Sleep(2 * time.Hour)
		stop()
		vcpuHours := func(d Day) float64 { return float64(d.UnitSeconds["VCPU"]) / 3600 }
		today := store.gauge.Today
		if got := vcpuHours(today); got < 46.5 || got > 48 || today.Peak["VCPU"] != 16 || today.Estimated != 0 {
			t.Errorf("after four hours, 8 and then 16 for 2 hours each, it has %v VCPU-hours: %+v", got, today)
		}
		if store.writes < 48 || store.writes > 62 {
			t.Errorf("it wrote %d times", store.writes)
		}
		time.Sleep(6 * time.Hour) // no server runs
		stop = start()
		if d := look().Today; d.Estimated < 5*3600 || d.Estimated > 7*3600 {
			t.Errorf("%d seconds are estimated", d.Estimated)
		}
		offer(0)
		time.Sleep(10 * time.Minute) // shorter than what would be estimated
		offer(4)
		time.Sleep(48 * time.Hour)
		stop()
		if len(store.days) != 2 || vcpuHours(store.days[1]) != 4*24 || store.days[1].Peak["VCPU"] != 4 {
			t.Errorf("these days have ended: %+v", store.days)
		}
	})
}
