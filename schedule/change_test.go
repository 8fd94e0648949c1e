package schedule_test

import (
	"context"
	"testing"

	"croft"
	"croft/schedule"
)

// A host without a record is treated like one without an agent.
func TestForceDestroysWhatHasNoHost(t *testing.T) {
	c := newCloud(t, 1)
	inst := scheduled(t, c, "web")
	c.fail(faulty{find: func() (croft.Status, error) {
		st, err := c.store.FindByID(t.Context(), inst.ID)
		st.Host = nil
		return st, err
	}})
	d, err := c.Destroy(t.Context(), inst.Project, string(inst.ID), true)
	if err != nil || !d.Gone {
		t.Errorf("got %+v, %v", d, err)
	}
	c.nothingLeft(t)
}

// unwritten is a store that fails to write orders.
type unwritten struct{ schedule.Records }

func (unwritten) Reorder(_ context.Context, inst croft.Instance, _ croft.Order) (croft.Instance, error) {
	return inst, errPlanned
}

func TestAChangeThatCannotBeWrittenFails(t *testing.T) {
	c := newCloud(t, 1)
	inst := scheduled(t, c, "web")
	c.Records = unwritten{c.store}
	for _, force := range []bool{false, true} {
		_, err := c.Destroy(t.Context(), inst.Project, string(inst.ID), force)
		wantKind(t, err, croft.Unavailable)
	}
	_, err := c.Reboot(t.Context(), inst.Project, string(inst.ID))
	wantKind(t, err, croft.Unavailable)
	if len(c.placement.Claimed()) != 1 {
		t.Error("the claim is gone")
	}
}

// An instance whose order was lost gets a new one.
func TestStartOrdersWhatHasNoOrder(t *testing.T) {
	c := newCloud(t, 1)
	inst := scheduled(t, c, "web")
	c.fail(faulty{find: func() (croft.Status, error) {
		st, err := c.store.FindByID(t.Context(), inst.ID)
		st.Order = nil
		return st, err
	}})
	if _, err := c.Start(t.Context(), inst.Project, string(inst.ID)); err != nil {
		t.Fatal(err)
	}
	if want, generation := c.wanted(t, inst); want != croft.WantRunning || generation != 2 {
		t.Errorf("ordered %s at generation %d", want, generation)
	}
}

func TestAChangeIsTriedEightTimes(t *testing.T) {
	c, tries := newCloud(t, 1), 0
	scheduled(t, c, "web")
	c.Records = &contended{c.store, 1000, func() {
		tries++
		st, err := c.store.Find(t.Context(), croft.DefaultProject, "web")
		if err == nil {
			o := *st.Order
			o.Generation++
			_, err = c.store.Reorder(t.Context(), st.Instance, o)
		}
		if err != nil {
			t.Error(err)
		}
	}}
	_, err := c.Stop(t.Context(), croft.DefaultProject, "web")
	wantKind(t, err, croft.Conflict)
	if tries != 8 {
		t.Errorf("tried %d times", tries)
	}
}

// A state that no retry can change is read only once.
func TestAChangeOfWhatIsBeingScheduledIsRefusedAtOnce(t *testing.T) {
	c, finds := newCloud(t, 1), 0
	underWay(t, c, "web")
	c.fail(faulty{find: func() (croft.Status, error) {
		finds++
		return c.store.Find(t.Context(), croft.DefaultProject, "web")
	}})
	_, err := c.Stop(t.Context(), croft.DefaultProject, "web")
	wantKind(t, err, croft.Conflict)
	if finds != 1 {
		t.Errorf("read %d times", finds)
	}
}
