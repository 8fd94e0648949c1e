package scheduletest

import (
	"bytes"
	"testing"
	"time"

	"croft"
)

var holds = contract{
	{"what is held has no order, and is used once", testHold},
	{"a hold joins its groups as an order does", testHoldJoins},
	{"a hold that is abandoned is not used, and can be discarded", testAbandon},
	{"a hold is used on a live host only", testUseAlive},
	{"user-data comes with the hold or with its use", testHoldUserData},
}

// hold holds a claim for a record on the host.
func (c *cloud) hold(inst croft.Instance) croft.Instance {
	c.t.Helper()
	inst, err := c.Create(c.t.Context(), inst)
	c.check(err)
	inst, err = c.Hold(c.t.Context(), inst, c.host)
	c.check(err)
	return inst
}

func testHold(t *testing.T, c *cloud) {
	unheld := c.create("early")
	_, err := c.Hold(t.Context(), unheld, c.host)
	c.want(err, croft.Unavailable)
	c.live()
	inst := c.hold(record("web"))
	st, err := c.Find(t.Context(), croft.DefaultProject, "web")
	c.check(err)
	if got := st.Instance; got.State != croft.StateHeld || got.Host != c.host || got.Session != "" ||
		got.Generation != 0 || got.Revision != inst.Revision || st.Order != nil {
		t.Errorf("it holds %+v with the order %+v", got, st.Order)
	}
	next := inst
	next.Spec.Image = "file:///another"
	used, err := c.Use(t.Context(), next, c.order(next, croft.WantRunning))
	c.check(err)
	st, err = c.Find(t.Context(), croft.DefaultProject, "web")
	c.check(err)
	if got := st.Instance; got.State != croft.StateScheduled || got.Generation != 1 || got.Revision != used.Revision ||
		got.Spec.Image != "file:///another" || st.Order == nil || st.Order.Spec.Image != "file:///another" {
		t.Errorf("it is used as %+v with the order %+v", got, st.Order)
	}
	_, err = c.Use(t.Context(), next, c.order(next, croft.WantRunning))
	c.want(err, croft.Conflict)
	_, err = c.Abandon(t.Context(), inst)
	c.want(err, croft.Conflict)
}

func testHoldJoins(t *testing.T, c *cloud) {
	c.live()
	apart := croft.Affinity{Group: "db", Rule: croft.Apart}
	first := record("first")
	first.Spec.Affinities = []croft.Affinity{apart}
	first = c.hold(first)
	second := record("second")
	second.Spec.Affinities = first.Spec.Affinities
	second, err := c.Create(t.Context(), second)
	c.check(err)
	_, err = c.Hold(t.Context(), second, c.host)
	c.want(err, croft.NoCapacity)
	_, err = c.Assign(t.Context(), second, c.order(second, croft.WantRunning))
	c.want(err, croft.NoCapacity)
	first, err = c.Abandon(t.Context(), first)
	c.check(err)
	c.check(c.Discard(t.Context(), first))
	_, err = c.Hold(t.Context(), second, c.host)
	c.check(err)
}

func testAbandon(t *testing.T, c *cloud) {
	c.live()
	inst := c.hold(record("web"))
	abandoned, err := c.Abandon(t.Context(), inst)
	c.check(err)
	if abandoned.State != croft.StateScheduling || abandoned.Session != "" || abandoned.Host != c.host {
		t.Errorf("abandoned as %+v", abandoned)
	}
	_, err = c.Use(t.Context(), inst, c.order(inst, croft.WantRunning))
	c.want(err, croft.Conflict)
	_, err = c.Abandon(t.Context(), inst)
	c.want(err, croft.Conflict)
	c.check(c.Discard(t.Context(), abandoned))
	_, err = c.Find(t.Context(), croft.DefaultProject, "web")
	c.want(err, croft.NotFound)
	c.hold(record("web"))
}

func testUseAlive(t *testing.T, c *cloud) {
	stop := c.live()
	inst := c.hold(record("web"))
	stop()
	_, err := c.Use(t.Context(), inst, c.order(inst, croft.WantRunning))
	c.want(err, croft.Unavailable)
	c.live()
	_, err = c.Use(t.Context(), inst, c.order(inst, croft.WantRunning))
	c.check(err)
}

func testHoldUserData(t *testing.T, c *cloud) {
	c.live()
	for name, given := range map[string][]byte{"kept": nil, "replaced": {2}} {
		inst := c.hold(record(name))
		inst.Spec.UserData = given
		_, err := c.Use(t.Context(), inst, c.order(inst, croft.WantRunning))
		c.check(err)
		o, err := c.Orders.Order(t.Context(), c.host, inst.ID)
		c.check(err)
		want := record(name).Spec.UserData
		if given != nil {
			want = given
		}
		if !bytes.Equal(o.Spec.UserData, want) {
			t.Errorf("%s: its user-data is %v, want %v", name, o.Spec.UserData, want)
		}
	}
}

func testExpiry(t *testing.T, c *cloud) {
	c.live()
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	inst := record("web")
	inst.Expires = at
	inst, err := c.Create(t.Context(), inst)
	c.check(err)
	first, err := c.Assign(t.Context(), inst, c.order(inst, croft.WantRunning))
	c.check(err)
	expires := func(want time.Time) {
		t.Helper()
		st, err := c.Find(t.Context(), croft.DefaultProject, "web")
		c.check(err)
		if !st.Instance.Expires.Equal(want) || st.Order == nil || st.Order.Generation != 1 {
			t.Errorf("it expires at %s, want %s; its order is %+v", st.Instance.Expires, want, st.Order)
		}
	}
	expires(at)
	until := func(inst croft.Instance, at time.Time) croft.Instance {
		inst.Expires = at
		return inst
	}
	second, err := c.Amend(t.Context(), first, until(first, at.Add(time.Hour)))
	c.check(err)
	expires(at.Add(time.Hour))
	_, err = c.Amend(t.Context(), first, until(first, at))
	c.want(err, croft.Conflict)
	_, err = c.Reorder(t.Context(), first, c.order(first, croft.WantGone))
	c.want(err, croft.Conflict)
	protected := until(second, time.Time{})
	protected.Protected, protected.Ejected, protected.Name = true, true, "another"
	third, err := c.Amend(t.Context(), second, protected)
	c.check(err)
	expires(time.Time{})
	if st, err := c.Find(t.Context(), croft.DefaultProject, "web"); err != nil || !st.Instance.Protected ||
		!st.Instance.Ejected {
		t.Errorf("it is not protected, or its CD not ejected: %v", err)
	}
	_, err = c.Reorder(t.Context(), second, c.order(second, croft.WantGone))
	c.want(err, croft.Conflict)
	_, err = c.Reorder(t.Context(), third, c.order(third, croft.WantStopped))
	c.check(err)
}
