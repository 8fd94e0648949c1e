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
	all, _, err := c.Members(c.t.Context(), croft.DefaultProject, "web")
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
	all, _, err := c.Members(t.Context(), croft.DefaultProject, "web")
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
	elsewhere, _, err := c.Members(context.WithoutCancel(t.Context()), "research", "web")
	c.check(err)
	if len(elsewhere) != 0 {
		t.Errorf("another project has %+v", elsewhere)
	}
}

// sit assigns a record to a host, in a location under a clause.
func (c *cloud) sit(inst croft.Instance, host croft.HostID, clause, location string) (croft.Instance, error) {
	inst.Seats = croft.Renumber([]croft.Seat{{Group: "web", Clause: clause, Location: location}}, nil)
	return c.join(inst, host)
}

// seats requires n taken seats in the group.
func (c *cloud) seats(n int) []croft.Seat {
	c.t.Helper()
	_, all, err := c.Members(c.t.Context(), croft.DefaultProject, "web")
	c.check(err)
	if len(all) != n {
		c.t.Fatalf("seats are %+v, want %d", all, n)
	}
	return all
}

func testSeats(t *testing.T, c *cloud) {
	c.live()
	const rule = "at-most-2-per-rack"
	for i, rack := range []string{"s/r/k", "s/r/k", "s/r/k2", "s/r/k2"} {
		_, err := c.sit(c.member("web"+string(rune('1'+i)), rule), c.host, rule, rack)
		c.check(err)
	}
	numbers := map[croft.Seat]bool{}
	for _, s := range c.seats(4) {
		s.Instance = ""
		numbers[s] = true
		if s.Number < 1 || s.Number > 2 || s.Group != "web" || s.Clause != rule {
			t.Errorf("seat %+v", s)
		}
	}
	if len(numbers) != 4 {
		t.Errorf("numbers are given twice: %+v", numbers)
	}
	late := c.member("late", rule)
	_, err := c.sit(late, c.host, rule, "s/r/k")
	c.want(err, croft.NoCapacity)
	_, err = c.sit(late, c.host, rule, "s/r")
	c.check(err)
	c.seats(5)
}

func testSeatsTogether(_ *testing.T, c *cloud) {
	c.live()
	for i, rack := range []string{"s/r/k1", "s/r/k1"} {
		_, err := c.sit(c.member("web"+string(rune('1'+i)), "same-rack"), c.host, "same-rack", rack)
		c.check(err)
	}
	for i, rack := range []string{"s/r/k", "s/r/k2", "s/r"} {
		_, err := c.sit(c.member("late"+string(rune('1'+i)), "same-rack"), c.host, "same-rack", rack)
		c.want(err, croft.NoCapacity)
	}
	c.seats(2)
}

func testSeatsEnd(t *testing.T, c *cloud) {
	c.live()
	const rule = "at-most-1-per-rack+same-site"
	sit := func(name, rack string) croft.Instance {
		inst := c.member(name, rule)
		inst.Seats = []croft.Seat{{Group: "web", Clause: "at-most-1-per-rack", Location: rack, Number: 1},
			{Group: "web", Clause: "same-site", Location: "s"}}
		inst, err := c.join(inst, c.host)
		c.check(err)
		return inst
	}
	forgotten, buried := sit("web1", "s/r/k1"), sit("web2", "s/r/k2")
	c.seats(4)
	found, err := c.Find(t.Context(), croft.DefaultProject, "web1")
	c.check(err)
	if len(found.Instance.Seats) != 2 {
		t.Errorf("the record has the seats %+v", found.Instance.Seats)
	}
	forgotten, err = c.Reorder(t.Context(), forgotten, c.order(forgotten, croft.WantGone))
	c.check(err)
	c.seats(4)
	o, err := c.Order(t.Context(), c.host, forgotten.ID)
	c.check(err)
	c.check(c.Forget(t.Context(), o))
	c.seats(2)
	c.check(c.Bury(t.Context(), buried, c.order(buried, croft.WantGone)))
	c.seats(0)
}
