package hvtest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"croft"
	"croft/compute"
)

func (s Suite) watch(t *testing.T) {
	b := s.bench(t)
	m := s.machine(b)
	b.must(b.hv.Define(b.ctx, m))
	wakes := b.watch(m.ID)
	is := func(p compute.Power) func(compute.Domain) bool {
		return func(d compute.Domain) bool { return d.Power == p }
	}
	b.until(wakes, "it was there already", m.ID, is(compute.PowerOff))
	b.must(b.hv.Start(b.ctx, m.ID))
	b.until(wakes, "it started", m.ID, is(compute.PowerOn))
	s.Kill(t, b.hv, m.ID)
	b.until(wakes, "it died", m.ID, is(compute.PowerOff))
	b.must(b.hv.Start(b.ctx, m.ID))
	b.until(wakes, "it started again", m.ID, is(compute.PowerOn))
	b.must(b.hv.Stop(b.ctx, m.ID))
	b.until(wakes, "it was stopped", m.ID, is(compute.PowerOff))
}

func (s Suite) watchEnds(t *testing.T) {
	b := s.bench(t)
	ctx, cancel := context.WithCancel(b.ctx)
	ended := make(chan error, 1)
	go func() { ended <- b.hv.Watch(ctx, func(croft.InstanceID) {}) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
}

func (s Suite) many(t *testing.T) {
	b := s.bench(t)
	var wg sync.WaitGroup
	for range 4 {
		m := s.machine(b)
		wg.Go(func() {
			for _, do := range []func() error{
				func() error { return b.hv.Define(b.ctx, m) },
				func() error { return b.hv.Start(b.ctx, m.ID) },
				func() error { _, err := b.hv.List(b.ctx); return err },
				func() error { return b.hv.Stop(b.ctx, m.ID) },
				func() error { return b.hv.Remove(b.ctx, m.ID) },
			} {
				if err := do(); err != nil {
					t.Errorf("instance %s: %v", m.ID, err)
				}
			}
		})
	}
	wg.Wait()
}

// contended checks concurrent operations: the agent runs one operation per instance at a time, but an operator may
// interfere. Some calls may be refused, but the final state must be one of the requested ones. A start that a stop
// interrupts may be reported as a crash: the guest did not come up.
func (s Suite) contended(t *testing.T) {
	b := s.bench(t)
	m := s.machine(b)
	b.must(b.hv.Define(b.ctx, m))
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { _ = b.hv.Start(b.ctx, m.ID) })
		wg.Go(func() { _ = b.hv.Stop(b.ctx, m.ID) })
		wg.Go(func() { _ = b.hv.Define(b.ctx, m) })
	}
	wg.Wait()
	if d := b.get(m.ID); d.Power == compute.PowerPaused {
		t.Errorf("it ended as %+v", d)
	}
	b.must(b.hv.Remove(b.ctx, m.ID))
	b.gone(m.ID)
}
