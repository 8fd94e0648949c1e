package compute

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/shirou/gopsutil/v3/disk"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"croft"
	"croft/internal/meter"
	"croft/internal/span"
)

// startGrace is how long after its start a guest found off is treated as unable to stay up.
const startGrace = 15 * time.Second

// pass reads the order and the domain of one instance and runs the steps that the order needs. The next pass
// is the only retry.
type pass struct {
	agent  *Agent
	id     croft.InstanceID
	memory *memory
	want   *croft.Order // nil: no order
	have   Have

	snapshots []croft.Volume // of the instance
	had       []croft.Volume // on shared storage, of the domain that is being removed
	fresh     bool           // its disk is being replaced by a fresh one
	cd        CachedImage    // the ISO that the pass has fetched; zero: none
}

// pass makes a pass. The workers run at most one per instance at a time.
func (a *Agent) pass(ctx context.Context, id croft.InstanceID) {
	p := &pass{agent: a, id: id, memory: a.instances.remember(id)}
	defer p.memory.endPassing()
	if !a.locked.Load() {
		return // the instance is remembered, and woken when this agent gets the host's lock
	}
	err := p.run(ctx)
	a.metrics.passes.WithLabelValues(outcome(ctx, err)).Inc()
}

// run makes the pass and returns the error that ended it early.
func (p *pass) run(ctx context.Context) (err error) {
	a, m := p.agent, p.memory
	p.want, p.have, err = a.read(ctx, p.id)
	ours := p.want != nil && p.want.Partition == a.Partition
	failed := err == nil && p.want != nil && p.want.HostDeath == 0 && m.failed != nil && m.failedAt == p.want.Generation
	if err == nil && ours && !failed {
		err = p.recall(ctx)
	}
	var blocked error // why the guest must not start: it would be without a volume, or on disks that are being replaced
	if err == nil && ours {
		blocked = errors.Join(p.matchSnapshots(ctx), p.matchVolumes(ctx))
		err = p.checkLock(ctx)
	}
	a.instances.await(p.id, err != nil)
	switch {
	case err != nil:
		a.logUnless(ctx, fmt.Errorf("instance %s: %w", p.id, err), "read")
		return err
	case p.want == nil && p.have.Domain == nil:
		m.arrive(nil)
		if err := p.removeLocks(ctx); err != nil {
			a.logUnless(ctx, fmt.Errorf("instance %s: %w", p.id, err), "remove the lock of a disk")
			return err
		}
		p.forget()
		return nil
	case p.want != nil:
		m.called.Store(called{p.want.Project, p.want.Name, p.want.CreateRevision,
			p.want.Spec.Resources[croft.VCPU]})
		m.volumes = p.want.Volumes
	}
	if failed {
		p.giveUp(ctx) // only another order changes the state
		return nil
	}
	if p.want == nil || p.want.Want != croft.WantLeaving {
		m.departure.Store(nil) // ends copies, before the guest may start
	}
	if p.want != nil && p.want.Want == croft.WantArriving && m.arrivedAt != p.want.Generation {
		m.arrived, m.arrivedAt = time.Now(), p.want.Generation
	}
	p.have.Asked = p.want != nil && m.asked.Load() == p.want.Generation
	p.have.JustStarted = time.Since(m.started) < startGrace
	p.have.Full = ours && p.have.Domain != nil && p.have.Domain.Stalled && p.full(ctx)
	p.have.Halted = p.want != nil && m.ended == croft.EndGuest && m.endedAt == p.want.Generation
	steps := Plan(p.want, p.have)
	if p.want != nil {
		m.ended, m.endedAt = leftOff(p.want, p.have), p.want.Generation
		if len(steps) > 0 {
			ctx = p.withOrderSpan(ctx)
		}
	}
	for _, step := range steps {
		if step.Op == OpStart {
			if err = cmp.Or(blocked, p.unchanged(ctx)); err == nil {
				err = p.lockDisk(ctx)
			}
			if err == nil {
				err = p.lockVolumes(ctx)
			}
			if err != nil {
				break
			}
		}
		if err = p.do(ctx, step); err != nil || step.Op == OpForget || step.Op == OpReport {
			break
		}
	}
	if err == nil && ours && p.want.Want == croft.WantLeft {
		a.passthrough.release(p.id)
		err = p.leaveAll(ctx)
	}
	if err == nil && p.want != nil && p.want.Want == croft.WantGone {
		m.arrive(nil) // the order ended, which interrupts this pass
	}
	switch {
	case ours && p.want.Want == croft.WantArriving:
		p.endArrival(ctx, err)
	case ours:
		p.settle(ctx, err)
		p.handOver(ctx)
	}
	return err
}

// resumeSpace is the free space, in bytes, that a guest which is paused for want of space needs to go on: what its
// virtual disks may have in flight, and then some.
const resumeSpace = 256 << 20

// full reports whether a file system with disks of the instance has less free space than resumeSpace.
func (p *pass) full(ctx context.Context) bool {
	dirs := []string{p.agent.Dir}
	if dir, err := p.diskDir(); err == nil {
		dirs = append(dirs, dir)
	}
	for _, dir := range dirs {
		if usage, err := disk.UsageWithContext(ctx, dir); err == nil && usage.Free < resumeSpace {
			return true
		}
	}
	attached, _ := p.volumes(ctx)
	for _, v := range attached {
		usage, err := inDirOf(ctx, p.agent, v, func(dir string) (*disk.UsageStat, error) {
			return disk.UsageWithContext(ctx, dir)
		})
		if err == nil && usage.Free < resumeSpace {
			return true
		}
	}
	return false
}

// do runs one step and measures it.
func (p *pass) do(ctx context.Context, step Step) error {
	begun := time.Now()
	err := span.Do(ctx, string(step.Op), func(ctx context.Context) error { return p.carryOut(ctx, step) })
	p.agent.metrics.steps.WithLabelValues(string(step.Op), outcome(ctx, err)).Observe(time.Since(begun).Seconds())
	return err
}

func (p *pass) carryOut(ctx context.Context, step Step) error {
	log := p.agent.Log.With("instance", p.id, "host", p.agent.Host.ID, "op", string(step.Op), "reason", step.Reason)
	switch step.Op {
	case OpReport:
		if !p.memory.reported {
			log.Warn("left alone")
			p.memory.reported = true
		}
		return nil
	case OpRefuse:
		return croft.Errorf(croft.Conflict, "%s", step.Reason)
	case OpLeave:
		p.memory.started = time.Time{} // the next start counts as a new one
		return nil                     // the observation reports it
	}
	log.Info("acting")
	switch step.Op {
	case OpBuild:
		return p.build(ctx, func() error { return nil })
	case OpRebuild:
		if len(p.snapshots) > 0 {
			return croft.Errorf(croft.Conflict, "it has snapshots, such as %s: remove them first", p.snapshots[0].Name)
		}
		return p.build(ctx, func() error {
			if err := p.unchanged(ctx); err != nil { // the old disk may be all that is left
				return err
			}
			p.fresh = true
			return p.tearDown(ctx)
		})
	case OpRestore:
		return p.restore(ctx)
	case OpResize:
		if err := p.lockDisk(ctx); err != nil {
			return err
		}
		return p.resize(ctx)
	case OpEject:
		// The file is removed first, so that an agent that dies does not leave it. QEMU does not need its name.
		if err := removeFiles(filepath.Join(p.agent.dir(p.id), cdFile)); err != nil {
			return err
		}
		return p.agent.Hypervisor.Eject(ctx, p.id)
	case OpMark:
		return p.agent.Hypervisor.Mark(ctx, p.id, OrderedBy(*p.want))
	case OpStart:
		return p.start(ctx)
	case OpStop:
		p.memory.started = time.Time{} // the next start counts as a new one
		if p.want.Cut {
			return p.agent.Hypervisor.CutPower(ctx, p.id)
		}
		return p.agent.Hypervisor.Stop(ctx, p.id)
	case OpDepart:
		return p.leave(ctx)
	case OpArrive:
		return p.arrive(ctx)
	case OpAccept:
		return p.agent.Orders.Arrived(ctx, *p.want, "")
	case OpRemove:
		p.observePassing(ctx, croft.Observation{State: croft.StateRemoving})
		var err error
		if p.had, err = p.elsewhere(ctx); err != nil {
			return err
		}
		if err := p.agent.settleMerges(ctx, p.id); err != nil {
			return err
		}
		if err := p.agent.Hypervisor.Remove(ctx, p.id); err != nil {
			return err
		}
		return p.dissolveAll(ctx)
	case OpClean:
		if err := p.removeDisk(ctx); err != nil {
			return err
		}
		if of, err := p.ofMove(); err != nil || !of {
			return err
		}
		return p.agent.clean(p.id)
	case OpRelease:
		had, err := p.hadVolumes(ctx)
		if err = errors.Join(err, p.leaveVolumes(ctx), p.unlockVolumes(ctx, had)); err != nil {
			return err
		}
		return p.release(ctx)
	case OpForget:
		if err := p.agent.Orders.Forget(ctx, *p.want); err != nil {
			return err
		}
		p.forget()
		return nil
	}
	return fmt.Errorf("no way to do %q", step.Op)
}

// forget forgets the instance, which has neither an order nor a domain, and wakes its volumes and snapshots: their
// records do not change when it ends, so no watch reports that the orders about them can be carried out now. The pass
// that ends the order may be interrupted by that very end before it gets the answer, so the next pass calls forget too.
func (p *pass) forget() {
	p.agent.instances.forget(p.id)
	p.agent.passthrough.release(p.id)
	p.agent.released.Put(p.memory.volumes...)
}

// unchanged returns errChanged if the order, or the death of the host, changed since the pass read it: a host that was
// suspended meanwhile may have been declared dead, and then starts and destroys nothing.
func (p *pass) unchanged(ctx context.Context) error {
	now, err := p.agent.Orders.Order(ctx, p.agent.Host.ID, p.id)
	if err == nil && (now.Revision != p.want.Revision || now.HostDeath != p.want.HostDeath) ||
		errors.Is(err, croft.NotFound) {
		return errChanged
	}
	return err
}

// release releases the claim. If the instance has moved to another host, or another instance uses its UUID there, it
// releases only the allocations on this host.
func (p *pass) release(ctx context.Context) error {
	errElsewhere := errors.New("the claim is for a guest to come")
	err := p.agent.Inventory.Release(ctx, p.id, func(ctx context.Context) ([]croft.HostID, error) {
		inst, err := p.agent.Records.Instance(ctx, p.id)
		switch {
		case errors.Is(err, croft.NotFound):
			return []croft.HostID{p.agent.Host.ID}, nil
		case err != nil:
			return nil, err
		case inst.Host == p.agent.Host.ID:
			return inst.Places(), nil
		case inst.State == croft.StateScheduling || inst.Moving == p.agent.Host.ID:
			return nil, errElsewhere // its allocations here are for a guest that is still to come
		}
		return []croft.HostID{p.agent.Host.ID}, nil
	})
	if errors.Is(err, errElsewhere) {
		return nil
	}
	return err
}

// arrived returns nil once the former hosts have removed everything of the instance, so that it never runs on two
// hosts.
func (p *pass) arrived(ctx context.Context) error {
	for _, host := range p.want.Former() {
		if host == p.agent.Host.ID {
			continue
		}
		remains, err := p.agent.Orders.Remains(ctx, host, p.id)
		if err != nil {
			p.agent.instances.await(p.id, true)
			return err
		}
		if remains {
			p.observe(ctx, croft.Observation{State: croft.StatePending})
			return errNotArrived
		}
	}
	return nil
}

// start boots the domain; its address may be known already. Conflict: the domain is attached to a network that the
// host's settings have closed to the project since the domain was built. This failure is not final: the disk is kept,
// and the guest starts when the network is open again.
func (p *pass) start(ctx context.Context) error {
	if _, err := p.nics(); err != nil {
		return croft.Errorf(croft.Conflict, "it is not started: %v", err)
	}
	domain, err := p.agent.Hypervisor.Get(ctx, p.id)
	if err != nil {
		return err
	}
	if err := p.agent.Reports().age(ctx, p.id); err != nil {
		return err
	}
	p.observePassing(ctx, croft.Observation{State: croft.StateBooting, Addresses: domain.Reserved})
	if err := p.phase(ctx, phaseBoot, func(ctx context.Context) error {
		return p.startWithPCI(ctx, domain)
	}); err != nil {
		return err
	}
	p.memory.expectAddress(ctx)
	p.memory.started = time.Now() // only a successful start is recorded
	p.memory.note(croft.EventRunning)
	return nil
}

// resize gives the domain the size of the spec. The disk of a guest that runs grows under it; the processors and the
// memory change with its next start.
func (p *pass) resize(ctx context.Context) error {
	a, want := p.agent, p.want.Spec.Resources
	if err := a.Hypervisor.Resize(ctx, p.id, want[croft.VCPU], want[croft.MemoryMB]); err != nil {
		return err
	}
	grown, err := a.Hypervisor.Grow(ctx, p.id, RootDisk, want[croft.DiskGB])
	if err != nil || grown {
		return err
	}
	tops, err := a.Hypervisor.Tops(ctx, p.id)
	if err != nil {
		return err
	}
	return a.Images.Enlarge(ctx, tops[RootDisk], want[croft.DiskGB])
}

// tearDown removes the disk, so that a fresh one can be made. The domain's definition stays until the new one replaces
// it.
func (p *pass) tearDown(ctx context.Context) error {
	if err := p.agent.Hypervisor.Stop(ctx, p.id); err != nil {
		return err
	}
	p.memory.begin()
	p.memory.started = time.Time{}
	if err := p.removeDisk(ctx); err != nil {
		return err
	}
	return p.agent.clean(p.id)
}

// followed is how long after its issue an order is part of its trace. No caller waits for later work, such as
// restarting a crashed guest.
const followed = time.Hour

// withOrderSpan returns ctx with the order's span if the order belongs to a trace.
func (p *pass) withOrderSpan(ctx context.Context) context.Context {
	if p.memory.traced != nil && p.memory.traced.generation != p.want.Generation {
		p.memory.arrive(nil) // a newer order replaced it
	}
	if p.memory.traced == nil {
		ordered, ok := span.Join(ctx, p.want.Trace)
		if !ok || time.Since(p.want.Issued) > followed {
			return ctx
		}
		own, end := span.Begin(ordered, p.agent.Traces, "carry out",
			attribute.String("croft.instance", string(p.id)), attribute.String("croft.host", string(p.want.Host)),
			attribute.String("croft.want", string(p.want.Want)), attribute.Int64("croft.generation", p.want.Generation))
		p.memory.traced = &tracedOrder{generation: p.want.Generation, span: trace.SpanFromContext(own), end: end}
	}
	return trace.ContextWithSpan(ctx, p.memory.traced.span)
}

// errNotArrived is not counted as a failure: the pass is repeated until the former host has removed the instance.
var errNotArrived = errors.New("a host that the instance moved away from still has it")

// errNoAccess is not counted as a failure: the pass is repeated when a server of the API has given the access to the
// store from which the disks are restored.
var errNoAccess = errors.New("a server of the API has not given the access to the store yet")

// errChanged is not counted as a failure: the next pass reads the order again.
var errChanged = errors.New("the order has changed")

// outcome returns the metrics' label for how an operation ended. Interrupted operations and the ones that wait
// for another host are not failures and are counted separately.
func outcome(ctx context.Context, err error) string {
	switch {
	case err != nil && ctx.Err() != nil:
		return "interrupted"
	case errors.Is(err, errNotArrived), errors.Is(err, errChanged), errors.Is(err, errNoAccess):
		return "waiting"
	}
	return meter.Result(err)
}
