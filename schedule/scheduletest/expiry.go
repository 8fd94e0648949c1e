package scheduletest

import (
	"testing"
	"time"

	"croft"
)

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
	second, err := c.SetExpiry(t.Context(), first, at.Add(time.Hour))
	c.check(err)
	expires(at.Add(time.Hour))
	_, err = c.SetExpiry(t.Context(), first, at)
	c.want(err, croft.Conflict)
	_, err = c.Reorder(t.Context(), first, c.order(first, croft.WantGone))
	c.want(err, croft.Conflict)
	third, err := c.SetExpiry(t.Context(), second, time.Time{})
	c.check(err)
	expires(time.Time{})
	_, err = c.Reorder(t.Context(), third, c.order(third, croft.WantStopped))
	c.check(err)
}
