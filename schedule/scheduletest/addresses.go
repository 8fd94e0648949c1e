package scheduletest

import (
	"errors"
	"testing"

	"croft"
	"croft/schedule"
)

func testAddress(t *testing.T, c *cloud) {
	c.live()
	const address = "10.0.0.9"
	create := func(name string) croft.Instance {
		inst := record(name)
		inst.Spec.FixedAddress = address
		inst, err := c.Create(t.Context(), inst)
		c.check(err)
		return inst
	}
	holder := func(want croft.InstanceID) {
		t.Helper()
		got, err := c.AddressHolders(t.Context(), address)
		c.check(err)
		if got[c.host] != want || len(got) > 1 || want == "" && len(got) > 0 {
			t.Errorf("the address is given to %v, want %q", got, want)
		}
	}
	first, second := create("first"), create("second")
	holder("")
	first, err := c.Assign(t.Context(), first, c.order(first, croft.WantRunning))
	c.check(err)
	holder(first.ID)
	_, err = c.Assign(t.Context(), second, c.order(second, croft.WantRunning))
	c.want(err, croft.NoCapacity)
	if !errors.Is(err, schedule.ErrAddressTaken) {
		t.Errorf("got %v, want that the address is taken", err)
	}
	_, err = c.Hold(t.Context(), second, c.host)
	c.want(err, croft.NoCapacity)
	first = c.lose(first)
	holder("")
	second, err = c.Hold(t.Context(), second, c.host)
	c.check(err)
	holder(second.ID)
	c.check(c.Bury(t.Context(), second, croft.Order{}))
	holder("")
	tombstone, err := c.Order(t.Context(), c.host, first.ID)
	c.check(err)
	c.check(c.Forget(t.Context(), tombstone))
	again, err := c.Recreate(t.Context(), first)
	c.check(err)
	_, err = c.Assign(t.Context(), again, c.order(again, croft.WantRunning))
	c.check(err)
	holder(first.ID)
}
