package compute

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"croft"
	"croft/internal/span"
)

// How long after its start a guest that is off counts as one that cannot stay up,
// and how often the awaited are looked at.
const (
	startGrace = 15 * time.Second
	awaitPoll  = 2 * time.Second
)

// pass looks at one instance and does what its order needs. The next pass is the
// only retry. Only one pass of an instance runs at a time.
func (a *Agent) pass(ctx context.Context, id croft.InstanceID) {
	m := a.remember(id)
	defer m.endPassing()
	if !a.seat.Load() {
		return // remembered: the agent looks at it when it gets the seat
	}
	want, have, err := a.read(ctx, id, m)
	defer func() { a.metrics.passes.WithLabelValues(outcome(ctx, err)).Inc() }()
	if err != nil {
		a.await(id, true)
		a.logUnless(ctx, fmt.Errorf("instance %s: %w", id, err), "read")
		return
	}
	a.await(id, false)
	if want == nil && have.Domain == nil {
		m.arrive(nil)
		a.forget(id)
		return
	}
	if want != nil {
		m.called.Store(called{want.Project, want.Name})
	}
	if want != nil && m.failed != nil && m.failedAt == want.Generation {
		a.giveUp(ctx, *want, m) // only another order changes anything
		return
	}
	if want != nil && want.Partition == a.Partition {
		if err = a.recall(ctx, *want, m); err != nil {
			a.logUnless(ctx, err, "read")
			return
		}
	}
	have.Halted = want != nil && m.ended == croft.EndGuest && m.endedAt == want.Generation
	steps := Plan(want, have)
	if want != nil {
		m.ended, m.endedAt = leftOff(want, have), want.Generation
	}
	if want != nil && len(steps) > 0 {
		ctx = a.onItsWay(ctx, *want, m)
	}
	for _, step := range steps {
		if err = a.do(ctx, step, id, want, have, m); err != nil || step.Op == OpForget || step.Op == OpReport {
			break
		}
	}
	if err == nil && want != nil && want.Want == croft.WantGone {
		m.arrive(nil) // with the order, whose end interrupts this pass
	}
	if want == nil || want.Partition != a.Partition {
		return
	}
	a.settle(ctx, *want, m, err)
}

// read gathers the two sides that Plan compares.
func (a *Agent) read(ctx context.Context, id croft.InstanceID, m *memory) (*croft.Order, Have, error) {
	have := Have{Home: a.Partition, JustStarted: time.Since(m.started) < startGrace}
	var want *croft.Order
	order, err := a.Orders.Order(ctx, a.Host.ID, id)
	switch {
	case err == nil:
		want = &order
	case !errors.Is(err, croft.NotFound):
		return nil, have, err
	}
	domain, err := a.Hypervisor.Get(ctx, id)
	switch {
	case err == nil:
		have.Domain = &domain
	case !errors.Is(err, croft.NotFound):
		return nil, have, fmt.Errorf("look at the domain: %w", err)
	}
	if _, err := os.Lstat(a.dir(id)); err == nil {
		have.Files = true
	} else if !errors.Is(err, os.ErrNotExist) {
		return nil, have, fmt.Errorf("look for the instance's files: %w", err)
	}
	return want, have, nil
}

// do carries out one step, and tells how long it took.
func (a *Agent) do(ctx context.Context, step Step, id croft.InstanceID, want *croft.Order, have Have, m *memory) error {
	begun := time.Now()
	err := span.Do(ctx, string(step.Op), func(ctx context.Context) error {
		return a.doIt(ctx, step, id, want, have, m)
	})
	a.metrics.steps.WithLabelValues(string(step.Op), outcome(ctx, err)).Observe(time.Since(begun).Seconds())
	return err
}

// doIt is do without telling.
func (a *Agent) doIt(ctx context.Context, step Step, id croft.InstanceID, want *croft.Order, have Have,
	m *memory) error {
	log := a.Log.With("instance", id, "host", a.Host.ID, "op", string(step.Op), "reason", step.Reason)
	switch step.Op {
	case OpReport:
		if !m.reported {
			log.Warn("left alone")
			m.reported = true
		}
		return nil
	case OpRefuse:
		return croft.Errorf(croft.Conflict, "%s", step.Reason)
	case OpLeave:
		m.started = time.Time{} // a start that follows is a new one
		return nil              // the observation says so
	}
	log.Info("acting")
	switch step.Op {
	case OpBuild:
		return a.build(ctx, *want, m, nothing)
	case OpRebuild:
		return a.build(ctx, *want, m, func() error { return a.tearDown(ctx, id, m) })
	case OpMark:
		return a.Hypervisor.Mark(ctx, id, want.Generation)
	case OpStart:
		return a.start(ctx, *want, m)
	case OpStop:
		m.started = time.Time{} // a start that follows is a new one
		return a.Hypervisor.Stop(ctx, id)
	case OpRemove:
		a.observePassing(ctx, *want, m, croft.Observation{State: croft.StateRemoving})
		return a.Hypervisor.Remove(ctx, id)
	case OpClean:
		return a.clean(id)
	case OpRelease:
		return a.release(ctx, id)
	case OpForget:
		if err := a.Orders.Forget(ctx, *want); err != nil {
			return err
		}
		a.forget(id)
		return nil
	}
	return fmt.Errorf("no way to do %q", step.Op)
}

// release gives the claim back, unless the instance has moved: then it is that of
// another host's guest. So it is where another instance got the UUID meanwhile.
func (a *Agent) release(ctx context.Context, id croft.InstanceID) error {
	inst, err := a.Records.Instance(ctx, id)
	switch {
	case errors.Is(err, croft.NotFound):
		return a.Inventory.Release(ctx, id, a.Host.ID)
	case err != nil || inst.Host != a.Host.ID:
		return err
	}
	return a.Inventory.Release(ctx, id, inst.Places()...)
}

// arrived returns nil once the hosts that an instance moved away from have nothing of it
// any more, so that it never runs on two.
func (a *Agent) arrived(ctx context.Context, o croft.Order, m *memory) error {
	for _, host := range o.Former() {
		if host == a.Host.ID {
			continue
		}
		remains, err := a.Orders.Remains(ctx, host, o.Instance)
		if err != nil {
			return err
		}
		if remains {
			a.observe(ctx, o, m, croft.Observation{State: croft.StatePending})
			return errNotArrived
		}
	}
	return nil
}

// errNotArrived is no failure: the next pass finds it over, or not yet.
var errNotArrived = errors.New("a host that the instance moved away from still has it")

// start boots the domain. What address it will have may be known before.
func (a *Agent) start(ctx context.Context, o croft.Order, m *memory) error {
	domain, err := a.Hypervisor.Get(ctx, o.Instance)
	if err != nil {
		return err
	}
	a.observePassing(ctx, o, m, croft.Observation{State: croft.StateBooting, Addresses: domain.Reserved})
	if err := a.phase(ctx, phaseBoot, func(ctx context.Context) error {
		return a.Hypervisor.Start(ctx, o.Instance)
	}); err != nil {
		return err
	}
	m.expectAddress(ctx)
	m.started = time.Now() // one that failed, or was interrupted, was no start
	m.note(croft.EventRunning)
	return nil
}

func nothing() error { return nil }

// tearDown makes room for a fresh disk. The domain's definition stays until the
// new one replaces it.
func (a *Agent) tearDown(ctx context.Context, id croft.InstanceID, m *memory) error {
	if err := a.Hypervisor.Stop(ctx, id); err != nil {
		return err
	}
	m.begin()
	m.started = time.Time{}
	return a.clean(id)
}

// clean removes the instance's files.
func (a *Agent) clean(id croft.InstanceID) error {
	if err := os.RemoveAll(a.dir(id)); err != nil {
		return fmt.Errorf("remove the instance's files: %w", err)
	}
	return nil
}

// build makes everything up to a defined domain, at most MaxBuilds at once. Once
// the image is there and before anything is made of it, it calls prepare.
func (a *Agent) build(ctx context.Context, o croft.Order, m *memory, prepare func() error) error {
	if err := a.arrived(ctx, o, m); err != nil {
		return err
	}
	nics, err := a.nics(o)
	if err != nil {
		return err
	}
	source, err := a.source(o)
	if err != nil {
		return err
	}
	if err := a.queue(ctx, o, m); err != nil {
		return err
	}
	defer func() { <-a.builds }()
	img, err := a.fetch(ctx, o, m)
	if err != nil {
		return err
	}
	if err := prepare(); err != nil {
		return err
	}
	m.note(croft.EventImage)
	a.observePassing(ctx, o, m, croft.Observation{State: croft.StateDefining})
	dir := a.dir(o.Instance)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return fmt.Errorf("make the instance's directory: %w", err)
	}
	var layers []Layer
	err = a.phase(ctx, phaseOverlay, func(ctx context.Context) (err error) {
		layers, err = a.Images.Disk(ctx, img, dir, o.Spec.Resources[croft.DiskGB])
		return err
	})
	if err != nil {
		return err
	}
	seed, err := a.seed(ctx, o, source)
	if err != nil {
		return err
	}
	machine := a.machine(o, layers, seed, nics)
	machine.Source = source
	if err := a.phase(ctx, phaseDefine, func(ctx context.Context) error {
		return a.Hypervisor.Define(ctx, machine)
	}); err != nil {
		return err
	}
	m.note(croft.EventDefined)
	return nil
}

// queue waits for a free build.
func (a *Agent) queue(ctx context.Context, o croft.Order, m *memory) error {
	return a.phase(ctx, phaseQueue, func(ctx context.Context) error {
		select {
		case a.builds <- struct{}{}:
			return nil
		default:
		}
		a.observePassing(ctx, o, m, croft.Observation{State: croft.StatePending})
		select {
		case a.builds <- struct{}{}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// fetch brings the image onto the host.
func (a *Agent) fetch(ctx context.Context, o croft.Order, m *memory) (img Image, err error) {
	a.observePassing(ctx, o, m, croft.Observation{State: croft.StateFetching})
	err = a.phase(ctx, phaseFetch, func(ctx context.Context) (err error) {
		img, err = a.Images.Fetch(ctx, o.Spec.Image, func(p croft.Progress) {
			a.observePassing(ctx, o, m, croft.Observation{State: croft.StateFetching, Progress: &p})
		})
		return err
	})
	return img, err
}

// source is where an order's guest finds its metadata. Invalid: not where it wants.
func (a *Agent) source(o croft.Order) (croft.Metadata, error) {
	if a.Seeds == nil {
		return croft.MetadataServer, nil
	}
	return a.Seeds.Source(o)
}

// seed writes the metadata disk, where there is to be one, and returns its path.
func (a *Agent) seed(ctx context.Context, o croft.Order, source croft.Metadata) (path string, err error) {
	if source == croft.MetadataServer {
		return "", nil
	}
	path = filepath.Join(a.dir(o.Instance), seedFile)
	// A file of an earlier attempt may be QEMU's user's by now, and have another mode.
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("write the metadata disk: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, seedMode)
	if err != nil {
		return "", fmt.Errorf("write the metadata disk: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := a.phase(ctx, phaseSeed, func(ctx context.Context) error {
		return a.Seeds.WriteSeed(ctx, f, o)
	}); err != nil {
		return "", fmt.Errorf("write the metadata disk: %w", err)
	}
	return path, f.Sync()
}

// nics are the network interfaces of an order's guest. Invalid: it names a network
// that this host does not have.
func (a *Agent) nics(o croft.Order) ([]NIC, error) {
	var all []NIC
	for _, name := range o.Spec.Networks {
		nic, ok := a.Networks[name]
		switch {
		case name == croft.DefaultNetworks:
			all = append(all, a.NICs...)
		case ok:
			all = append(all, nic)
		default:
			return nil, croft.Errorf(croft.Invalid, "host %s has no network %q in its settings (networks)", a.Host.Name,
				name)
		}
	}
	if len(o.Spec.Networks) == 0 {
		all = slices.Clone(a.NICs)
	}
	for i := range all {
		all[i].MAC = o.Instance.MAC(i).String()
	}
	return all, nil
}

// machine describes the domain of an order.
func (a *Agent) machine(o croft.Order, disk []Layer, seed string, nics []NIC) Machine {
	return Machine{
		ID: o.Instance, Partition: o.Partition, Generation: o.Generation, Name: o.Name,
		VCPUs: o.Spec.Resources[croft.VCPU], MemoryMiB: o.Spec.Resources[croft.MemoryMB],
		Disk: disk, Seed: seed, Console: a.ConsoleLog(o.Instance), NICs: nics,
	}
}
