package compute_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/sim"
)

// again orders an instance to run, after change has modified the order.
func (c *cloud) again(inst croft.Instance, change func(*croft.Order)) croft.Instance {
	c.t.Helper()
	o := c.order(inst, croft.WantRunning)
	o.Rebooted, o.Rebuilt = inst.Rebooted, inst.Rebuilt
	change(&o)
	inst, err := c.store.Instances.Reorder(c.t.Context(), inst, o)
	if err != nil {
		c.t.Fatal(err)
	}
	return inst
}

func reboot(o *croft.Order)  { o.Rebooted = o.Generation }
func rebuild(o *croft.Order) { o.Rebuilt = o.Generation }

// written creates a file next to the guest's disk, which only a rebuild removes.
func (c *cloud) written(inst croft.Instance) string {
	c.t.Helper()
	path := filepath.Join(c.dir, string(inst.ID), "written")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		c.t.Fatal(err)
	}
	return path
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func names(o *croft.Observation) []croft.EventName {
	var all []croft.EventName
	for i, e := range o.Events {
		all = append(all, e.Name)
		if i > 0 && e.At.Before(o.Events[i-1].At) {
			all = append(all, "before the one before")
		}
	}
	return all
}

func wantEvents(t *testing.T, o *croft.Observation, want ...croft.EventName) {
	t.Helper()
	if got := names(o); !slices.Equal(got, want) {
		t.Errorf("the events are %v, want %v", got, want)
	}
}

func TestARebootStartsTheGuestAnewOnItsDiskOnce(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	agent := c.start()
	inst := c.request("web")
	first := c.await(inst, croft.StateRunning)
	wantEvents(t, first, croft.EventClaimed, croft.EventImage, croft.EventDefined, croft.EventRunning,
		croft.EventAddress)
	file := c.written(inst)

	inst = c.again(inst, reboot)
	second := c.await(inst, croft.StateRunning)
	wantEvents(t, second, croft.EventRunning, croft.EventAddress)
	if !exists(file) || !slices.Equal(first.Addresses, second.Addresses) {
		t.Errorf("after the reboot the disk is another, or the address: %v, then %v", first.Addresses, second.Addresses)
	}
	agent.Resync(t.Context())
	inst = c.again(inst, func(*croft.Order) {}) // a new order without a reboot
	if third := c.await(inst, croft.StateRunning); !slices.Equal(second.Events, third.Events) {
		t.Errorf("it was rebooted twice: %v, then %v", second.Events, third.Events)
	}
}

func TestARebuildGivesTheGuestAFreshDiskAndKeepsItsAddress(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.start()
	inst := c.request("web")
	first := c.await(inst, croft.StateRunning)
	file := c.written(inst)
	inst = c.again(inst, rebuild)
	second := c.await(inst, croft.StateRunning)
	wantEvents(t, second, croft.EventImage, croft.EventDefined, croft.EventRunning, croft.EventAddress)
	if exists(file) {
		t.Error("its disk is the old one")
	}
	if !slices.Equal(first.Addresses, second.Addresses) || !c.ledger.holds(inst.ID) {
		t.Errorf("it had %v and has %v, or lost its claim", first.Addresses, second.Addresses)
	}
}

// A rebuild whose image cannot be fetched keeps the existing disk.
func TestARebuildWithoutImageLeavesTheGuestAsItIs(t *testing.T) {
	t.Parallel()
	for _, stopped := range []bool{false, true} {
		c := newCloud(t)
		var mu sync.Mutex
		var fault error
		c.images.Fault = func(context.Context, string) error {
			mu.Lock()
			defer mu.Unlock()
			return fault
		}
		c.start()
		inst := c.request("web")
		c.await(inst, croft.StateRunning)
		file := c.written(inst)
		if stopped {
			inst = c.reorder(inst, croft.WantStopped)
			c.await(inst, croft.StateStopped)
		}
		mu.Lock()
		fault = croft.Errorf(croft.NotFound, "the image is gone")
		mu.Unlock()
		c.await(c.again(inst, rebuild), croft.StateFailed)
		if _, err := c.hv.Get(t.Context(), inst.ID); err != nil || !exists(file) {
			t.Errorf("stopped %v: the instance or its disk is gone: %v", stopped, err)
		}
	}
}

// unheard loses the first observation of failure, like a pass that an event interrupts.
type unheard struct {
	compute.Orders
	lose sync.Once
}

func (u *unheard) Observe(ctx context.Context, o croft.Observation) (err error) {
	if o.State == croft.StateFailed {
		u.lose.Do(func() { err = context.Canceled })
	}
	if err == nil {
		err = u.Orders.Observe(ctx, o)
	}
	return err
}

func TestAFinalFailureIsToldUntilItIsWritten(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.between = &unheard{Orders: c.store.Orders}
	c.images.Fault = func(context.Context, string) error { return croft.Errorf(croft.NotFound, "the image is gone") }
	c.start()
	if seen := c.await(c.request("web"), croft.StateFailed); seen.ErrorKind != croft.NotFound {
		t.Errorf("got %+v", seen)
	}
}

func TestWhatIsHalfBuiltIsRemovedUntilItIsGone(t *testing.T) {
	t.Parallel()
	var removals atomic.Int64
	c := newFaultyCloud(t, func(_ context.Context, op string, _ croft.InstanceID) error {
		switch {
		case op == sim.OpStart:
			return croft.Errorf(croft.Invalid, "this machine cannot be")
		case op == sim.OpRemove && removals.Add(1) == 1:
			return errAway
		}
		return nil
	})
	c.start()
	inst := c.request("web")
	c.await(inst, croft.StateFailed)
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for exists(filepath.Join(c.dir, string(inst.ID))) {
		<-look.C
	}
	if _, err := c.hv.Get(t.Context(), inst.ID); !errors.Is(err, croft.NotFound) || removals.Load() < 2 {
		t.Errorf("after %d removals the domain is there: %v", removals.Load(), err)
	}
}

func TestTheTimelineOutlivesTheAgent(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.start()
	inst := c.request("web")
	first := c.await(inst, croft.StateRunning)
	c.stop()
	inst = c.again(inst, func(*croft.Order) {}) // so that there is a new state to observe
	c.start()
	if second := c.await(inst, croft.StateRunning); !slices.Equal(first.Events, second.Events) {
		t.Errorf("before the restart %v, after it %v", first.Events, second.Events)
	}
}

func TestAnInstanceIsOnTheNetworksItNames(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.start()
	inst := c.requestOn("web", "lab", "default")
	c.await(inst, croft.StateRunning)
	m, err := c.hv.Machine(inst.ID)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.NICs) != 2 || m.NICs[0].Bridge != "br-lab" || m.NICs[1].Network != "default" {
		t.Errorf("its interfaces are %+v", m.NICs)
	}
	for i, nic := range m.NICs {
		if nic.MAC != inst.ID.MAC(i).String() {
			t.Errorf("interface %d has the MAC %s", i, nic.MAC)
		}
	}
	seen := c.await(c.requestOn("lost", "office"), croft.StateFailed)
	if !errors.Is(seen.ErrorKind, croft.Invalid) ||
		seen.Error != `host h1 has no network "office" in its settings (networks)` {
		t.Errorf("an unknown network: %+v", seen)
	}
}

// Schedulers of earlier versions write orders for networks that the host's settings do not open to the project.
func TestAnAgentConnectsInstancesOnlyToNetworksThatAreOpenToTheirProject(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.start()
	inst := c.requestOn("web", "lab", "default")
	c.await(inst, croft.StateRunning)
	seen := c.await(c.requestAs("tenant", "intruder", croft.Spec{
		InstanceSettings: croft.InstanceSettings{Networks: []string{"lab"}}}), croft.StateFailed)
	if !errors.Is(seen.ErrorKind, croft.Invalid) ||
		seen.Error != `host h1 has no network "lab" in its settings (networks)` {
		t.Errorf("a network of another project: %+v", seen)
	}
}

// The name of a network may pass to another project while a guest of the former project is stopped.
func TestAGuestDoesNotStartOnANetworkThatPassedToAnotherProject(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.host.Networks = map[string][]croft.Project{"lab": {"former"}}
	c.start()
	inst := c.requestAs("former", "web", croft.Spec{
		InstanceSettings: croft.InstanceSettings{Networks: []string{"lab"}}})
	c.await(inst, croft.StateRunning)
	inst = c.reorder(inst, croft.WantStopped)
	c.await(inst, croft.StateStopped)
	c.stop()

	c.host.Networks = map[string][]croft.Project{"lab": {"next"}}
	c.start()
	inst = c.reorder(inst, croft.WantRunning)
	seen := c.await(inst, croft.StateFailed)
	if !errors.Is(seen.ErrorKind, croft.Conflict) ||
		seen.Error != `it is not started: host h1 has no network "lab" in its settings (networks)` {
		t.Errorf("the start: %+v", seen)
	}
	if d, err := c.hv.Get(t.Context(), inst.ID); err != nil || d.Power != compute.PowerOff {
		t.Errorf("the guest is %+v, %v", d, err)
	}
	if _, err := os.Stat(filepath.Join(c.dir, string(inst.ID))); err != nil {
		t.Errorf("its files: %v", err)
	}
	c.stop()

	c.host.Networks = map[string][]croft.Project{"lab": {"next", "former"}}
	c.start()
	c.await(inst, croft.StateRunning)
}
