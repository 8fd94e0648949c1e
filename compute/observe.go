package compute

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"croft"
	"croft/internal/meter"
	"croft/internal/span"
)

// settle writes the result of a pass. A permanent error is final for this order: the partly built domain is removed.
func (p *pass) settle(ctx context.Context, failure error) {
	if ctx.Err() != nil {
		return // interrupted: the next pass has newer information
	}
	if errors.Is(failure, errNotArrived) || errors.Is(failure, errChanged) ||
		errors.Is(failure, errNoAccess) {
		p.agent.instances.await(p.id, true)
		return
	}
	if failure != nil {
		p.memory.arrive(failure)
		p.agent.metrics.failures.WithLabelValues(meter.Result(failure)).Inc()
		p.agent.Log.Warn("the order is not carried out", "instance", p.id, "host", p.agent.Host.ID, "op",
			string(p.want.Want), "err", failure)
		if isFinal(failure) && !p.want.Want.Withdrawn() && !p.want.Want.Carries() {
			p.memory.failed, p.memory.failedAt, p.memory.unbuilt = failure, p.want.Generation, false
			p.giveUp(ctx)
			return
		}
		p.observeFailure(ctx, failure)
		return
	}
	if d := p.memory.departure.Load(); d != nil {
		p.memory.arrive(nil)
		p.endDeparture(ctx, d)
		p.observe(ctx, croft.Observation{State: croft.StateMoving, Progress: d.progress()})
		return
	}
	domain, err := p.agent.Hypervisor.Get(ctx, p.id)
	if errors.Is(err, croft.NotFound) {
		return // the instance is gone, and so is its order
	}
	if err != nil {
		p.agent.instances.await(p.id, true)
		p.agent.logUnless(ctx, err, "look at the domain")
		return
	}
	if domain.Power == PowerOn && panicked(p.agent.ConsoleLog(p.id), p.memory.started) {
		p.memory.arrive(nil)
		p.observeFailure(ctx, croft.Errorf(croft.Unavailable,
			"the guest crashed: its kernel panicked and stopped (`schedule logs` shows why; `schedule reboot` "+
				"starts it again)"))
		return
	}
	seen := croft.Observation{State: stateOf(domain), Addresses: domain.Addresses}
	p.agent.instances.await(p.id, seen.State == croft.StateBooting)
	switch seen.State {
	case croft.StateStopped: // it may have ended since the pass read it
		p.have.Domain = &domain
		p.memory.ended, p.memory.endedAt = leftOff(p.want, p.have), p.want.Generation
		seen.Ended = p.memory.ended
	case croft.StateBooting:
		seen.Addresses = domain.Reserved
	case croft.StateRunning:
		if !p.memory.hasEvent(croft.EventAddress) {
			p.memory.note(croft.EventAddress)
			p.measureArrival()
		}
	}
	if seen.State != croft.StateBooting {
		p.memory.arrive(nil)
	}
	p.observe(ctx, seen)
}

// giveUp removes the partly built domain of an order that failed permanently, and writes the failure. If a removal
// failed or was interrupted, the next pass retries it.
func (p *pass) giveUp(ctx context.Context) {
	if !p.memory.unbuilt {
		if err := p.unbuild(ctx); err != nil {
			p.agent.instances.await(p.id, true)
			p.agent.logUnless(ctx, err, "remove what was half built")
		} else {
			p.memory.unbuilt = true
		}
	}
	p.observeFailure(ctx, p.memory.failed)
}

func (p *pass) observeFailure(ctx context.Context, failure error) {
	p.observe(ctx, croft.Observation{State: croft.StateFailed, Error: failure.Error(),
		ErrorKind: croft.KindOf(failure)})
}

// isFinal reports whether an error is permanent, so that a retry is useless.
func isFinal(err error) bool {
	return errors.Is(err, croft.Invalid) || errors.Is(err, croft.NotFound)
}

// unbuild removes a domain that has never run, and its files.
func (p *pass) unbuild(ctx context.Context) error {
	if p.memory.hasEvent(croft.EventRunning) {
		return nil // its disk may hold the only copy of its data
	}
	if !p.memory.hasEvent(croft.EventImage) { // nor is a disk that came from another host, or from a backup, removed
		if there, err := exists(filepath.Join(p.agent.dir(p.id), diskFile)); there || err != nil {
			return err
		}
	}
	domain, err := p.agent.Hypervisor.Get(ctx, p.id)
	if err == nil && domain.Power != PowerOff {
		return nil // giving up does not remove a running guest
	}
	if err == nil {
		err = p.agent.Hypervisor.Remove(ctx, p.id)
	}
	if err != nil && !errors.Is(err, croft.NotFound) {
		return fmt.Errorf("remove the domain: %w", err)
	}
	return p.agent.clean(p.id)
}

// stateOf returns the state of a domain.
func stateOf(d Domain) croft.State {
	switch {
	case d.Power == PowerOff:
		return croft.StateStopped
	case len(d.Addresses) == 0:
		return croft.StateBooting
	}
	return croft.StateRunning
}

// observe writes an observation if it differs from the last one. A missing order is not an error.
func (p *pass) observe(ctx context.Context, seen croft.Observation) {
	p.memory.mu.Lock() // progress may be reported by another goroutine
	defer p.memory.mu.Unlock()
	p.memory.passing = nil
	p.write(ctx, seen)
}

// passingTime is how long a transient state has to last before it is written.
const passingTime = 100 * time.Millisecond

// observePassing observes a transient state if it lasts. Most do not, and writing one costs etcd and all
// watchers as much as the final state.
func (p *pass) observePassing(ctx context.Context, seen croft.Observation) {
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	if p.memory.passing == nil {
		p.memory.timer = time.AfterFunc(passingTime, p.memory.tellPassing)
	}
	p.memory.passing = func() { p.write(ctx, seen) }
}

// write requires that p.memory.mu is held.
func (p *pass) write(ctx context.Context, seen croft.Observation) {
	seen.Host, seen.Instance, seen.Generation = p.agent.Host.ID, p.id, p.want.Generation
	seen.OrderCreated, seen.HostDeath = p.want.CreateRevision, p.want.HostDeath
	seen.MAC = p.id.MAC(0).String()
	reported := p.agent.Reports().read(p.id)
	seen.CloudInit, seen.Password = reported.CloudInit, reported.Password
	seen.Events = p.memory.events
	p.memory.state.Store(seen.State)
	last := p.memory.observed
	last.Updated = time.Time{}
	if p.memory.known && reflect.DeepEqual(last, seen) {
		return
	}
	seen.Updated = time.Now().UTC()
	err := p.agent.Orders.Observe(ctx, seen)
	switch {
	case err == nil:
		if p.memory.observed.State != seen.State {
			log := p.agent.Log.With("instance", p.id, "host", p.agent.Host.ID, "state", string(seen.State))
			if seen.Ended != "" {
				log = log.With("ended", seen.Ended.String())
			}
			log.Info("observed")
		}
		p.memory.observed, p.memory.known = seen, true
	case !errors.Is(err, croft.Conflict):
		p.memory.known = false
		p.agent.instances.await(p.id, true)
		p.agent.logUnless(ctx, err, "observe")
	}
}

// phase runs and measures one phase of building or starting a guest.
func (p *pass) phase(ctx context.Context, name string, work func(context.Context) error) error {
	begun := time.Now()
	err := span.Do(ctx, name, work)
	p.agent.metrics.phases.WithLabelValues(name, outcome(ctx, err)).Observe(time.Since(begun).Seconds())
	return err
}

// recall reads, once, the events that an earlier agent stored, so that a restart keeps them.
func (p *pass) recall(ctx context.Context) error {
	if p.memory.recalled {
		return nil
	}
	before, err := p.agent.Orders.Observed(ctx, p.agent.Host.ID, p.id)
	if err == nil && before.OrderCreated != 0 && before.OrderCreated != p.want.CreateRevision {
		before, err = croft.Observation{}, croft.Errorf(croft.NotFound, "it is of an earlier instance with this UUID")
	}
	if err != nil && !errors.Is(err, croft.NotFound) {
		return err
	}
	p.memory.mu.Lock()
	defer p.memory.mu.Unlock()
	p.memory.recalled, p.memory.events = true, before.Events
	p.memory.ended, p.memory.endedAt = before.Ended, before.Generation
	if err != nil {
		p.memory.events = []croft.Event{{Name: croft.EventClaimed, At: p.want.Issued}}
		p.agent.metrics.delay.Observe(max(0, time.Since(p.want.Issued).Seconds()))
	}
	return nil
}

// measureArrival measures how long a guest that was built for its first order took; later orders do not start with a
// claim.
func (p *pass) measureArrival() {
	if p.memory.hasEvent(croft.EventClaimed) && p.memory.hasEvent(croft.EventDefined) {
		p.agent.metrics.arrival.Observe(max(0, time.Since(p.want.Issued).Seconds()))
	}
}

// panicTail is how many bytes at the end of a console log are searched for a panic: room for the last line and trailing
// blanks.
const panicTail = 1024

// panicked reports whether a console log was written since the guest's start and its last line is the one with which
// Linux ends a panic. A guest whose machine restarts after a panic writes more lines. For guests with a driver for the
// machine's panic device, the hypervisor reports panics instead.
func panicked(log string, started time.Time) bool {
	f, err := os.Open(log)
	if err != nil {
		return false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.ModTime().After(started) {
		return false
	}
	tail := make([]byte, min(info.Size(), panicTail))
	n, _ := f.ReadAt(tail, info.Size()-int64(len(tail)))
	text := bytes.TrimRight(tail[:n], " \t\r\n\x00")
	return bytes.Contains(text[bytes.LastIndexByte(text, '\n')+1:], []byte("---[ end Kernel panic"))
}
