package scheduletest

import (
	"context"
	"testing"

	"croft"
)

// member creates a record with a group.
func (c *cloud) member(name string, rule croft.AffinityRule) croft.Instance {
	c.t.Helper()
	inst := record(name)
	inst.Spec.Affinities = []croft.Affinity{{Group: "web", Rule: rule}}
	inst, err := c.Create(c.t.Context(), inst)
	c.check(err)
	return inst
}

// join assigns a record to a host.
func (c *cloud) join(inst croft.Instance, host croft.HostID) (croft.Instance, error) {
	o := c.order(inst, croft.WantRunning)
	o.Host = host
	return c.Assign(c.t.Context(), inst, o)
}

// members requires n members in the group.
func (c *cloud) members(n int) {
	c.t.Helper()
	all, err := c.Members(c.t.Context(), croft.DefaultProject, "web")
	c.check(err)
	if len(all) != n {
		c.t.Fatalf("members are %+v, want %d", all, n)
	}
}

// another creates a second live host.
func (c *cloud) another() croft.HostID {
	first := c.host
	c.host = croft.NewHostID()
	c.live()
	second := c.host
	c.host = first
	return second
}

func testApart(t *testing.T, c *cloud) {
	c.live()
	other := c.another()
	first, err := c.join(c.member("web1", croft.Apart), c.host)
	c.check(err)
	second := c.member("web2", croft.Apart)
	_, err = c.join(second, c.host)
	c.want(err, croft.NoCapacity)
	_, err = c.join(second, other)
	c.check(err)
	all, err := c.Members(t.Context(), croft.DefaultProject, "web")
	c.check(err)
	for _, m := range all {
		if m.Rule != croft.Apart || m.Group != "web" || m.Instance == first.ID &&
			(m.Host != c.host || m.Name != "web1") {
			t.Errorf("member %+v", m)
		}
	}
	c.members(2)
}

func testTogether(_ *testing.T, c *cloud) {
	c.live()
	other := c.another()
	_, err := c.join(c.member("web1", croft.Together), other)
	c.check(err)
	second := c.member("web2", croft.Together)
	_, err = c.join(second, c.host)
	c.want(err, croft.NoCapacity)
	_, err = c.join(second, other)
	c.check(err)
	c.members(2)
}

func testSoft(_ *testing.T, c *cloud) {
	c.live()
	other := c.another()
	for i, host := range []croft.HostID{c.host, c.host, other} {
		_, err := c.join(c.member("web"+string(rune('1'+i)), croft.TogetherSoft), host)
		c.check(err)
	}
	c.members(3)
}

func testOneRule(_ *testing.T, c *cloud) {
	c.live()
	_, err := c.join(c.member("web1", croft.ApartSoft), c.host)
	c.check(err)
	for i, rule := range []croft.AffinityRule{croft.Apart, croft.Together, croft.TogetherSoft} {
		_, err = c.join(c.member("other"+string(rune('1'+i)), rule), c.host)
		c.want(err, croft.Conflict)
	}
	c.members(1)
}

func testMembershipEnds(t *testing.T, c *cloud) {
	c.live()
	forgotten, err := c.join(c.member("web1", croft.Together), c.host)
	c.check(err)
	buried, err := c.join(c.member("web2", croft.Together), c.host)
	c.check(err)
	c.member("web3", croft.Together) // not a member before it has an order
	c.members(2)
	forgotten, err = c.Reorder(t.Context(), forgotten, c.order(forgotten, croft.WantGone))
	c.check(err)
	c.members(2)
	o, err := c.Order(t.Context(), c.host, forgotten.ID)
	c.check(err)
	c.check(c.Forget(t.Context(), o))
	c.members(1)
	c.check(c.Bury(t.Context(), buried, c.order(buried, croft.WantGone)))
	c.members(0)
	elsewhere, err := c.Members(context.WithoutCancel(t.Context()), "research", "web")
	c.check(err)
	if len(elsewhere) != 0 {
		t.Errorf("another project has %+v", elsewhere)
	}
}
