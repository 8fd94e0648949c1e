package scheduletest

import (
	"context"
	"testing"
	"time"

	"croft"
)

// Losses marks instances as lost, as hosts.Instances says.
type Losses interface {
	Lose(ctx context.Context, inst croft.Instance, why croft.Loss, tombstone croft.Order) (croft.Instance, error)
}

// lose marks an instance as lost with the host.
func (c *cloud) lose(inst croft.Instance) croft.Instance {
	c.t.Helper()
	why := croft.Loss{At: time.Now().UTC().Truncate(time.Second), Host: c.host, HostName: "one",
		Reason: "it burnt down"}
	lost, err := c.Lose(c.t.Context(), inst, why, c.order(inst, croft.WantGone))
	c.check(err)
	return lost
}

// again creates an instance with user-data, assigns it to the host, and loses it.
func (c *cloud) again(name string) croft.Instance {
	c.t.Helper()
	c.live()
	inst := record(name)
	inst.Spec.UserData = []byte("#cloud-config\n")
	inst, err := c.Create(c.t.Context(), inst)
	c.check(err)
	inst, err = c.Assign(c.t.Context(), inst, c.order(inst, croft.WantRunning))
	c.check(err)
	return c.lose(inst)
}

func testLost(t *testing.T, c *cloud) {
	lost := c.again("web")
	st, err := c.Find(t.Context(), croft.DefaultProject, "web")
	c.check(err)
	if got := st.Instance; got.State != croft.StateLost || got.Host != "" || got.Revision != lost.Revision ||
		got.Lost == nil || got.Lost.Host != c.host || got.Lost.HostName != "one" ||
		got.Lost.Reason != "it burnt down" ||
		got.Spec.Image != lost.Spec.Image || string(got.Spec.UserData) != "#cloud-config\n" || st.Order != nil {
		t.Errorf("it is on record as %+v, %+v, with the order %+v", got, got.Lost, st.Order)
	}
	tombstone, err := c.Order(t.Context(), c.host, lost.ID)
	c.check(err)
	if tombstone.Want != croft.WantGone || tombstone.Generation != lost.Generation {
		t.Errorf("its host has the order %+v, want a tombstone of generation %d", tombstone, lost.Generation)
	}
	_, err = c.Create(t.Context(), record("web"))
	c.want(err, croft.Conflict)
	c.check(c.Forget(t.Context(), tombstone))
	c.recreate(st.Instance)
	c.want(c.Bury(t.Context(), lost, croft.Order{}), croft.Conflict)
}

// recreate assigns a lost instance to the host again.
func (c *cloud) recreate(lost croft.Instance) croft.Instance {
	c.t.Helper()
	again, err := c.Recreate(c.t.Context(), lost)
	c.check(err)
	if again.State != croft.StateScheduling || again.Session == "" || again.Lost == nil {
		c.t.Errorf("while it is recreated its record is %+v", again)
	}
	_, err = c.Recreate(c.t.Context(), lost)
	c.want(err, croft.Conflict)
	o := c.order(again, croft.WantRunning)
	again, err = c.Assign(c.t.Context(), again, o)
	c.check(err)
	st, err := c.Find(c.t.Context(), lost.Project, string(lost.ID))
	c.check(err)
	if got := st.Instance; got.State != croft.StateScheduled || got.Host != c.host || got.Lost != nil ||
		got.Generation != lost.Generation+1 || st.Order == nil ||
		string(st.Order.Spec.UserData) != string(lost.Spec.UserData) {
		c.t.Errorf("it is recreated as %+v with the order %+v", got, st.Order)
	}
	return again
}

func testLostAgain(t *testing.T, c *cloud) {
	lost := c.again("web")
	again, err := c.Recreate(t.Context(), lost)
	c.check(err)
	c.check(c.Discard(t.Context(), again))
	st, err := c.Find(t.Context(), croft.DefaultProject, "web")
	c.check(err)
	if got := st.Instance; got.State != croft.StateLost || got.Session != "" || got.Host != "" || got.Lost == nil ||
		string(got.Spec.UserData) != "#cloud-config\n" {
		t.Errorf("after its recreation was undone it is %+v", got)
	}
	c.check(c.Bury(t.Context(), st.Instance, croft.Order{}))
	c.create("web") // the name is free
}

func testLostHostReturns(t *testing.T, c *cloud) {
	lost := c.again("web")
	tombstone, err := c.Order(t.Context(), c.host, lost.ID)
	c.check(err)
	c.check(c.Forget(t.Context(), tombstone))
	st, err := c.Find(t.Context(), croft.DefaultProject, "web")
	c.check(err)
	if st.Instance.State != croft.StateLost || st.Instance.Revision != lost.Revision {
		t.Errorf("after its host carried out the tombstone it is %+v", st.Instance)
	}
}

func testLostGroups(t *testing.T, c *cloud) {
	c.live()
	member := func(name string) croft.Instance {
		inst := record(name)
		inst.Spec.Affinities = []croft.Affinity{{Group: "web", Rule: croft.Apart}}
		inst, err := c.Create(t.Context(), inst)
		c.check(err)
		return inst
	}
	first := member("first")
	first, err := c.Assign(t.Context(), first, c.order(first, croft.WantRunning))
	c.check(err)
	second := member("second")
	_, err = c.Assign(t.Context(), second, c.order(second, croft.WantRunning))
	c.want(err, croft.NoCapacity)
	lost := c.lose(first)
	tombstone, err := c.Order(t.Context(), c.host, lost.ID)
	c.check(err)
	c.check(c.Forget(t.Context(), tombstone))
	second, err = c.Assign(t.Context(), second, c.order(second, croft.WantRunning))
	c.check(err)
	again, err := c.Recreate(t.Context(), lost)
	c.check(err)
	_, err = c.Assign(t.Context(), again, c.order(again, croft.WantRunning))
	c.want(err, croft.NoCapacity)
	c.check(c.Bury(t.Context(), second, croft.Order{}))
	_, err = c.Assign(t.Context(), again, c.order(again, croft.WantRunning))
	c.check(err)
	if members, _, err := c.Members(t.Context(), croft.DefaultProject, "web"); err != nil || len(members) != 1 {
		t.Errorf("its group has %v, %v", members, err)
	}
}
