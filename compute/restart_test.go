package compute_test

import (
	"testing"

	"croft"
	"croft/compute"
)

// requestRestarting is request for an instance with a restart policy.
func (c *cloud) requestRestarting(name string, policy croft.Restart) croft.Instance {
	c.t.Helper()
	return c.requestSpec(name, croft.Spec{GuestSettings: croft.GuestSettings{Restart: policy}})
}

func TestAGuestThatPowersItselfOffStaysOff(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	agent := c.start()
	inst := c.request("job")
	c.await(inst, croft.StateRunning)
	must(t, c.hv.Halt(inst.ID))
	if seen := c.await(inst, croft.StateStopped); seen.Ended != croft.EndGuest {
		t.Errorf("it ended by %q", seen.Ended)
	}

	// Only an order starts it. Neither another pass starts it, nor another agent on a host that was switched off
	// meanwhile, where libvirt no longer knows why the guest is off.
	agent.Expire(inst.ID)
	agent.Resync(t.Context())
	c.off(inst)
	c.stop()
	must(t, c.hv.PowerLoss())
	agent = c.start()
	agent.Resync(t.Context())
	c.off(inst)
	if seen := c.await(inst, croft.StateStopped); seen.Ended != croft.EndGuest {
		t.Errorf("after a restart it ended by %q", seen.Ended)
	}

	inst = c.reorder(inst, croft.WantRunning)
	if seen := c.await(inst, croft.StateRunning); seen.Ended != "" {
		t.Errorf("it runs, and ended by %q", seen.Ended)
	}
	inst = c.reorder(inst, croft.WantRunning) // it already runs
	agent.Resync(t.Context())
	must(t, c.hv.Halt(inst.ID))
	c.await(inst, croft.StateStopped)
}

func TestAGuestIsStartedAgainAfterAPowerLoss(t *testing.T) {
	t.Parallel()
	for policy, want := range map[croft.Restart]croft.State{
		"": croft.StateRunning, croft.RestartOnFailure: croft.StateRunning, croft.RestartAlways: croft.StateRunning,
		croft.RestartNever: croft.StateStopped,
	} {
		t.Run("restart "+string(policy), func(t *testing.T) {
			c := newCloud(t)
			c.start()
			inst := c.requestRestarting("web", policy)
			c.await(inst, croft.StateRunning)
			c.stop() // the host and its agent stop
			must(t, c.hv.PowerLoss())
			c.start().Resync(t.Context())
			seen := c.await(inst, want)
			if stopped := want == croft.StateStopped; stopped && seen.Ended != croft.EndFailure || !stopped &&
				seen.Ended != "" {
				t.Errorf("it ended by %q", seen.Ended)
			}
		})
	}
}

func TestAGuestThatAlwaysRestartsIsStartedAgain(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	agent := c.start()
	inst := c.requestRestarting("web", croft.RestartAlways)
	c.await(inst, croft.StateRunning)
	must(t, c.hv.Halt(inst.ID))
	c.await(inst, croft.StateFailed) // immediately after its start: no restart loop
	agent.Expire(inst.ID)
	agent.Resync(t.Context())
	c.await(inst, croft.StateRunning)
}

// A guest that croft stopped did not power itself off, even if the record that it was stopped for a restart is lost.
func TestAStopByOrderIsNoEndOfItsOwn(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.start()
	inst := c.request("web")
	c.await(inst, croft.StateRunning)
	c.stop()
	must(t, c.hv.Stop(t.Context(), inst.ID)) // like an agent that dies during a reboot
	c.start()
	c.await(inst, croft.StateRunning)
}

// off fails the test unless the guest is off.
func (c *cloud) off(inst croft.Instance) {
	c.t.Helper()
	d, err := c.hv.Get(c.t.Context(), inst.ID)
	must(c.t, err)
	if d.Power != compute.PowerOff {
		c.t.Errorf("instance %s is %s", inst.Name, d.Power)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
