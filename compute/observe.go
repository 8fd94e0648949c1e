package compute

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	"croft"
	"croft/internal/meter"
)

// settle writes what a pass came to. An error that repeating cannot help is final
// for this order: what was half built is removed.
func (a *Agent) settle(ctx context.Context, o croft.Order, m *memory, failure error) {
	if ctx.Err() != nil {
		return // interrupted: the next pass knows better
	}
	if errors.Is(failure, errNotArrived) {
		a.await(o.Instance, true)
		return
	}
	if failure != nil {
		m.arrive(failure)
		a.metrics.failures.WithLabelValues(meter.Result(failure)).Inc()
		a.Log.Warn("the order is not carried out", "instance", o.Instance, "host", a.Host.ID, "op", string(o.Want),
			"err", failure)
		if isFinal(failure) && o.Want != croft.WantGone {
			m.failed, m.failedAt, m.unbuilt = failure, o.Generation, false
			a.giveUp(ctx, o, m)
			return
		}
		a.observeFailure(ctx, o, m, failure)
		return
	}
	domain, err := a.Hypervisor.Get(ctx, o.Instance)
	if errors.Is(err, croft.NotFound) {
		return // it is gone, and so is its order
	}
	if err != nil {
		a.await(o.Instance, true)
		a.logUnless(ctx, err, "look at the domain")
		return
	}
	seen := croft.Observation{State: stateOf(domain), Addresses: domain.Addresses}
	a.await(o.Instance, seen.State == croft.StateBooting)
	switch seen.State {
	case croft.StateStopped:
		seen.Ended = m.ended
	case croft.StateBooting:
		seen.Addresses = domain.Reserved
	case croft.StateRunning:
		if !m.noted(croft.EventAddress) {
			m.note(croft.EventAddress)
			a.measureArrival(o, m)
		}
	}
	if seen.State != croft.StateBooting {
		m.arrive(nil)
	}
	a.observe(ctx, o, m, seen)
}

// giveUp leaves an order that failed for good: nothing half built, and everybody told.
// What of that does not succeed, or is interrupted, the next pass does.
func (a *Agent) giveUp(ctx context.Context, o croft.Order, m *memory) {
	if !m.unbuilt {
		if err := a.unbuild(ctx, o.Instance, m); err != nil {
			a.await(o.Instance, true)
			a.logUnless(ctx, err, "remove what was half built")
		} else {
			m.unbuilt = true
		}
	}
	a.observeFailure(ctx, o, m, m.failed)
}

func (a *Agent) observeFailure(ctx context.Context, o croft.Order, m *memory, failure error) {
	a.observe(ctx, o, m, croft.Observation{State: croft.StateFailed, Error: failure.Error(),
		ErrorKind: croft.KindOf(failure)})
}

// isFinal tells an error that no further pass can cure.
func isFinal(err error) bool {
	return errors.Is(err, croft.Invalid) || errors.Is(err, croft.NotFound)
}

// unbuild removes a domain that has never run, and its files.
func (a *Agent) unbuild(ctx context.Context, id croft.InstanceID, m *memory) error {
	if m.noted(croft.EventRunning) {
		return nil // its disk may hold what nobody has elsewhere
	}
	domain, err := a.Hypervisor.Get(ctx, id)
	if err == nil && domain.Power != PowerOff {
		return nil // a guest that runs is worth more than order in the cupboard
	}
	if err == nil {
		err = a.Hypervisor.Remove(ctx, id)
	}
	if err != nil && !errors.Is(err, croft.NotFound) {
		return fmt.Errorf("remove the domain: %w", err)
	}
	return a.clean(id)
}

// stateOf names what a domain is doing.
func stateOf(d Domain) croft.State {
	switch {
	case d.Power == PowerOff:
		return croft.StateStopped
	case len(d.Addresses) == 0:
		return croft.StateBooting
	}
	return croft.StateRunning
}

// observe writes an observation of the order's instance, if it differs from the
// last one. That the order is gone meanwhile is no error.
func (a *Agent) observe(ctx context.Context, o croft.Order, m *memory, seen croft.Observation) {
	m.mu.Lock() // progress may be told by another goroutine than the worker's
	defer m.mu.Unlock()
	m.passing = nil
	a.write(ctx, o, m, seen)
}

// passingTime is how long a state has to last that another follows by itself before
// anybody is told of it.
const passingTime = 100 * time.Millisecond

// observePassing observes a state that a pass goes through, if it lasts. Most do not,
// and each that is written costs etcd, and everybody who watches, as much as the last
// one, which counts.
func (a *Agent) observePassing(ctx context.Context, o croft.Order, m *memory, seen croft.Observation) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.passing == nil {
		m.timer = time.AfterFunc(passingTime, m.tellPassing)
	}
	m.passing = func() { a.write(ctx, o, m, seen) }
}

// tellPassing writes the state that has lasted.
func (m *memory) tellPassing() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.passing != nil {
		m.passing()
		m.passing = nil
	}
}

// endPassing ends what observePassing began, with its pass.
func (m *memory) endPassing() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.passing = nil
	if m.timer != nil {
		m.timer.Stop()
	}
}

// write wants m.mu held.
func (a *Agent) write(ctx context.Context, o croft.Order, m *memory, seen croft.Observation) {
	seen.Host, seen.Instance, seen.Generation = a.Host.ID, o.Instance, o.Generation
	seen.MAC = o.Instance.MAC(0).String()
	told := a.Reports().read(o.Instance)
	seen.CloudInit, seen.Password = told.CloudInit, told.Password
	seen.Events = m.events
	m.state.Store(seen.State)
	last := m.observed
	last.Updated = time.Time{}
	if m.known && reflect.DeepEqual(last, seen) {
		return
	}
	seen.Updated = time.Now().UTC()
	err := a.Orders.Observe(ctx, seen)
	switch {
	case err == nil:
		if m.observed.State != seen.State {
			log := a.Log.With("instance", o.Instance, "host", a.Host.ID, "state", string(seen.State))
			if seen.Ended != "" {
				log = log.With("ended", seen.Ended.String())
			}
			log.Info("observed")
		}
		m.observed, m.known = seen, true
	case !errors.Is(err, croft.Conflict):
		m.known = false
		a.await(o.Instance, true)
		a.logUnless(ctx, err, "observe")
	}
}

// await keeps the set of instances that are looked at again soon: guests without
// an address yet, and those of which something could not be read or written.
func (a *Agent) await(id croft.InstanceID, soon bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if soon {
		a.awaited[id] = true
	} else {
		delete(a.awaited, id)
	}
}

// lookAgain wakes the awaited: not every network tells an event when a guest gets
// an address, and nothing tells when etcd or libvirt answer again.
func (a *Agent) lookAgain(ctx context.Context) {
	a.mu.Lock()
	ids := slices.Collect(maps.Keys(a.awaited))
	a.mu.Unlock()
	for _, id := range ids {
		a.workers.Wake(ctx, id)
	}
}
