package system

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"croft"
	"croft/compute"
	"croft/schedule"
)

// power cuts the power of machines, as a fence agent does.
type power struct {
	w    *world
	gate *gate
}

func (power) Knows(croft.Host) error { return nil }

func (p power) Off(_ context.Context, h croft.Host) error {
	return p.gate.do("operator Off", "", func() error {
		p.w.machine(h.ID).lose()
		return nil
	})
}

// recreator runs a scheduler that does not die.
type recreator struct {
	w    *world
	gate *gate
}

func (r recreator) Recreate(ctx context.Context, p croft.Project, id string) (croft.Instance, error) {
	return through(r.gate, "operator Recreate", croft.InstanceID(id), func() (inst croft.Instance, err error) {
		err = r.w.scheduler(0, func(s *schedule.Scheduler) error {
			inst, err = s.Recreate(ctx, p, id)
			return err
		})
		return inst, err
	})
}

func (o *operatorSide) BeginDeath(ctx context.Context, h croft.HostID) (croft.Death, error) {
	return through(o.gate, "operator BeginDeath", "", func() (croft.Death, error) {
		return o.hostBook.BeginDeath(ctx, h)
	})
}

func (o *operatorSide) DeclareDead(ctx context.Context, h croft.HostID, d croft.Death,
	how croft.FenceResult) (croft.Death, error) {
	return through(o.gate, "operator DeclareDead", "", func() (croft.Death, error) {
		return o.hostBook.DeclareDead(ctx, h, d, how)
	})
}

func (o *operatorSide) EndDeath(ctx context.Context, h croft.HostID, d croft.Death) error {
	return o.gate.do("operator EndDeath", "", func() error { return o.hostBook.EndDeath(ctx, h, d) })
}

func (w *world) machine(id croft.HostID) *machine {
	for _, m := range w.hosts {
		if m.id == id {
			return m
		}
	}
	w.t.Fatalf("no machine is host %s", id)
	return nil
}

// restarting requests an instance with a restart policy and waits until it runs.
func (w *world) restarting(policy croft.Restart) croft.Instance {
	w.t.Helper()
	var inst croft.Instance
	err := w.scheduler(0, func(s *schedule.Scheduler) error {
		d, err := s.Request(w.t.Context(), schedule.Request{Query: query, Image: simulated,
			Name: "vm-" + string(policy), GuestSettings: croft.GuestSettings{Restart: policy}})
		if err != nil {
			return err
		}
		inst = d.Instance
		return s.Wait(w.t.Context(), inst, schedule.Running, nil)
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.facts[inst.ID] = &fact{name: inst.Name, created: true}
	return inst
}

// TestAFenceThatDiesAnywhereCanBeRepeated kills the command at each of its crossings, repeats it, and then brings the
// host back.
func TestAFenceThatDiesAnywhereCanBeRepeated(t *testing.T) {
	for last := 1; last <= 8; last++ {
		t.Run(fmt.Sprintf("after %d crossings", last-1), func(t *testing.T) {
			w := newWorld(t, uint64(last), 2, 0)
			inst := w.restarting(croft.RestartElsewhere)
			dead := w.machine(inst.Host)
			fence := func(o *operator) error {
				_, err := o.Fence(t.Context(), string(dead.id), false)
				return err
			}
			died := w.operate(last, fence)
			if err := w.operate(0, fence); err != nil {
				t.Fatalf("repeated after %v: %v", died, err)
			}
			again, err := w.store.Instances.Instance(t.Context(), inst.ID)
			if err != nil || again.Name != inst.Name || again.State != croft.StateScheduled || again.Host == dead.id {
				t.Fatalf("its instance is %+v, %v; want it on the other host", again, err)
			}
			if err := w.scheduler(0, func(s *schedule.Scheduler) error {
				return s.Wait(t.Context(), again, schedule.Running, nil)
			}); err != nil {
				t.Fatal(err)
			}
			w.comesBack(dead, inst)
		})
	}
}

// comesBack restores the power of a dead host, checks that it keeps the disk of an instance that runs elsewhere and
// does not start its guest, and then takes the host back.
func (w *world) comesBack(dead *machine, inst croft.Instance) {
	w.t.Helper()
	dead.restore()
	dead.boot(0)
	w.awaitAlive(dead.id)
	ctx := context.WithValue(w.t.Context(), looking{}, true)
	if dead.runs(inst.ID) {
		w.t.Error("the host that returned started a guest that runs elsewhere")
	}
	if _, err := dead.hv.Get(ctx, inst.ID); err != nil {
		w.t.Errorf("the host that returned removed the domain: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dead.dir, string(inst.ID))); err != nil {
		w.t.Errorf("the host that returned removed the disk: %v", err)
	}
	err := w.operate(0, func(o *operator) error {
		left, err := o.Leftovers(ctx, dead.id)
		if err == nil && (len(left) != 1 || left[0].Instance != inst.ID || left[0].Now == "") {
			w.t.Errorf("its leftovers are %+v", left)
		}
		if err == nil {
			_, err = o.TakeBack(ctx, string(dead.id))
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	if dead.runs(inst.ID) {
		w.t.Error("the host that was taken back started a guest that runs elsewhere")
	}
	w.settle() // which removes the leftover
}

// awaitAlive returns once a host is alive, and has seen all its orders.
func (w *world) awaitAlive(id croft.HostID) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	_ = w.store.Instances.WatchInstances(ctx, func() {
		hosts, err := w.store.Registry.Hosts(ctx, id)
		if err == nil && hosts[id].Alive {
			cancel()
		}
	})
}

// TestAFrozenHostThatThawsStartsNothingAndObservesNothing fences a host whose agent is suspended, and was never off.
func TestAFrozenHostThatThawsStartsNothingAndObservesNothing(t *testing.T) {
	w := newWorld(t, 1, 2, 0)
	inst := w.restarting(croft.RestartElsewhere)
	frozen := w.machine(inst.Host)
	frozen.gate.suspend()
	frozen.expire()
	err := w.operate(0, func(o *operator) error { // the operator errs
		_, err := o.Fence(t.Context(), string(frozen.id), true)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	again, err := w.store.Instances.Instance(t.Context(), inst.ID)
	if err != nil || again.Host == frozen.id || again.Host == "" {
		t.Fatalf("its instance is %+v, %v; want it on the other host", again, err)
	}
	order, err := w.store.Orders.Order(t.Context(), frozen.id, inst.ID)
	if err != nil {
		t.Fatal(err)
	}
	late := croft.Observation{Host: frozen.id, Instance: inst.ID, Generation: 1, OrderCreated: order.CreateRevision,
		State: croft.StateRunning}
	if err := w.store.Orders.Observe(t.Context(), late); croft.KindOf(err) != croft.Conflict {
		t.Errorf("an agent that does not know that its host is dead observes: %v", err)
	}
	frozen.gate.resume()
	w.awaitOff(frozen, inst.ID)
	if _, err := frozen.hv.Get(context.WithValue(t.Context(), looking{}, true), inst.ID); err != nil {
		t.Errorf("it removed the domain: %v", err)
	}
}

// awaitOff returns once the guest of an instance is off on a host.
func (w *world) awaitOff(m *machine, id croft.InstanceID) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), limit)
	defer cancel()
	off := make(chan struct{}, 1)
	look := func() {
		if d, err := m.hv.Get(context.WithValue(ctx, looking{}, true), id); err == nil && d.Power == compute.PowerOff {
			select {
			case off <- struct{}{}:
			default:
			}
		}
	}
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		_ = m.hv.Watch(ctx, func(croft.InstanceID) { look() })
	}()
	defer func() { cancel(); <-watching }()
	look()
	select {
	case <-off:
	case <-ctx.Done():
		w.t.Error("the guest still runs")
	}
}

// TestTwoOperatorsWhoFenceAHostAtOnceRecreateItsInstanceOnce also repeats the fence, which then changes nothing.
func TestTwoOperatorsWhoFenceAHostAtOnceRecreateItsInstanceOnce(t *testing.T) {
	w := newWorld(t, 1, 3, 0)
	inst := w.restarting(croft.RestartElsewhere)
	dead := w.machine(inst.Host)
	fence := func(o *operator) error {
		_, err := o.Fence(t.Context(), string(dead.id), false)
		return err
	}
	results := make(chan error)
	for range 2 {
		go func() { results <- w.operate(0, fence) }()
	}
	for range 2 {
		if err := <-results; err != nil && !errors.Is(err, croft.Conflict) {
			t.Error(err)
		}
	}
	if err := w.operate(0, fence); err != nil {
		t.Fatal(err)
	}
	again, err := w.store.Instances.Instance(t.Context(), inst.ID)
	if err != nil || again.Host == dead.id || again.State != croft.StateScheduled {
		t.Fatalf("its instance is %+v, %v; want it on another host", again, err)
	}
	err = w.operate(0, fence)
	if now, read := w.store.Instances.Instance(t.Context(), inst.ID); err != nil || read != nil ||
		now.Revision != again.Revision {
		t.Errorf("a fence more: %v, %v; the record changed from %+v to %+v", err, read, again, now)
	}
	w.comesBack(dead, inst)
}
