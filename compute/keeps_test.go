package compute_test

import (
	"context"
	"testing"

	"croft"
	"croft/compute"
)

// forgetful are orders of an etcd that has lost the agents' observations.
type forgetful struct{ compute.Orders }

func (forgetful) Observed(context.Context, croft.HostID, croft.InstanceID) (croft.Observation, error) {
	return croft.Observation{}, croft.Errorf(croft.NotFound, "nothing was observed")
}

// An order that fails permanently removes no running guest, even if the record that the guest ever ran is lost.
func TestAFinalFailureLeavesAGuestThatRuns(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.start()
	inst := c.request("web")
	c.await(inst, croft.StateRunning)
	file := c.written(inst)
	c.stop()
	c.between = forgetful{c.store.Orders}
	c.images.Fault = func(context.Context, string) error { return croft.Errorf(croft.NotFound, "the image is gone") }
	inst = c.again(inst, rebuild)
	c.start()
	c.await(inst, croft.StateFailed)
	if d, err := c.hv.Get(t.Context(), inst.ID); err != nil || d.Power != compute.PowerOn || !exists(file) {
		t.Errorf("the guest is %q, %v, its disk there: %v", d.Power, err, exists(file))
	}
	if !c.ledger.holds(inst.ID) {
		t.Error("it lost its claim")
	}
}

// The claim is released before the instance is forgotten: otherwise its owner would be unknown.
func TestAnInstanceIsNotForgottenBeforeItsClaimIsBack(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	agent := c.start()
	inst := c.request("web")
	c.await(inst, croft.StateRunning)
	c.ledger.stuck.Store(true)
	inst = c.reorder(inst, croft.WantGone)
	if seen := c.await(inst, croft.StateFailed); seen.Error != errAway.Error() {
		t.Errorf("while Placement is away: %+v", seen)
	}
	if _, err := c.store.Orders.Order(t.Context(), c.host.ID, inst.ID); err != nil {
		t.Errorf("the tombstone: %v", err)
	}
	c.ledger.stuck.Store(false)
	agent.Resync(t.Context())
	c.await(inst, "")
	if c.ledger.holds(inst.ID) {
		t.Error("the claim is not back")
	}
}

func TestAStoppedInstanceKeepsItsClaim(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	agent := c.start()
	inst := c.request("web")
	c.await(inst, croft.StateRunning)
	inst = c.reorder(inst, croft.WantStopped)
	c.await(inst, croft.StateStopped)
	agent.Resync(t.Context())
	if !c.ledger.holds(inst.ID) {
		t.Error("a stop gave the claim back: another instance may take its place")
	}
}
