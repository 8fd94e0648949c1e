package compute

import (
	"context"
	"errors"
	"slices"
	"time"

	"croft"
)

// recall reads once what an agent before this one noted of the instance's way, so
// that a restart does not lose it.
func (a *Agent) recall(ctx context.Context, o croft.Order, m *memory) error {
	if m.recalled {
		return nil
	}
	before, err := a.Orders.Observed(ctx, a.Host.ID, o.Instance)
	if err != nil && !errors.Is(err, croft.NotFound) {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recalled, m.events = true, before.Events
	m.ended, m.endedAt = before.Ended, before.Generation
	if err != nil {
		m.events = []croft.Event{{Name: croft.EventClaimed, At: o.Issued}}
		a.metrics.delay.Observe(max(0, time.Since(o.Issued).Seconds()))
	}
	return nil
}

// measureArrival tells how long a guest took that was made for its first order: what
// comes later has no claim to begin with.
func (a *Agent) measureArrival(o croft.Order, m *memory) {
	if m.noted(croft.EventClaimed) && m.noted(croft.EventDefined) {
		a.metrics.arrival.Observe(max(0, time.Since(o.Issued).Seconds()))
	}
}

// note adds a step that was done just now. One that was done before begins a way
// of its own: the guest is started anew.
func (m *memory) note(name croft.EventName) {
	if m.noted(name) {
		m.begin()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(slices.Clip(m.events), croft.Event{Name: name, At: time.Now().UTC()})
}

// begin forgets the steps of the way before.
func (m *memory) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = nil
}

func (m *memory) noted(name croft.EventName) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.ContainsFunc(m.events, func(e croft.Event) bool { return e.Name == name })
}
