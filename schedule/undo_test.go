package schedule_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/schedule"
)

// hindered calls a function before a record is discarded, and fails the discard if that returns an error.
type hindered struct {
	schedule.Records
	before func(croft.Instance) error
}

func (r hindered) Discard(ctx context.Context, inst croft.Instance) error {
	if err := r.before(inst); err != nil {
		return err
	}
	return r.Records.Discard(ctx, inst)
}

// underWay creates a request without an order yet, and its claim.
func underWay(t *testing.T, c *cloud, name string) croft.Instance {
	t.Helper()
	inst, err := c.store.Create(t.Context(), croft.Instance{ID: croft.NewInstanceID(), Project: croft.DefaultProject,
		Name: name})
	if err != nil {
		t.Fatal(err)
	}
	candidates, err := c.placement.Candidates(t.Context(), query, 1)
	if err == nil {
		err = c.placement.Claim(t.Context(), inst.ID, croft.Owner{Project: inst.Project}, candidates[0])
	}
	if err != nil {
		t.Fatal(err)
	}
	return inst
}

// While the record exists, its scheduler may write the order, which must have a claim.
func TestARequestThatIsDestroyedKeepsItsClaimWhileItsRecordStands(t *testing.T) {
	t.Run("and gives it back after that", func(t *testing.T) {
		c := newCloud(t, 1)
		underWay(t, c, "web")
		c.Records = hindered{c.store, func(croft.Instance) error {
			if len(c.placement.Claimed()) != 1 {
				t.Error("the claim is given back before the record")
			}
			return nil
		}}
		if d, err := c.Destroy(t.Context(), croft.DefaultProject, "web", false); err != nil || !d.Gone {
			t.Errorf("got %+v, %v", d, err)
		}
		c.nothingLeft(t)
	})
	t.Run("also where etcd does not answer", func(t *testing.T) {
		c := newCloud(t, 1)
		underWay(t, c, "web")
		c.Records = hindered{c.store, func(croft.Instance) error { return croft.Errorf(croft.Unavailable, "planned") }}
		_, err := c.Destroy(t.Context(), croft.DefaultProject, "web", false)
		wantKind(t, err, croft.Unavailable)
		if len(c.placement.Claimed()) != 1 {
			t.Error("the claim is gone, the record not")
		}
	})
	t.Run("also where the order was faster", func(t *testing.T) {
		c := newCloud(t, 1)
		underWay(t, c, "web")
		c.Records = hindered{c.store, func(inst croft.Instance) error {
			_, err := c.store.Assign(t.Context(), inst, croft.Order{Host: c.hosts[0], Instance: inst.ID, Generation: 1,
				Want: croft.WantRunning})
			if err != nil {
				t.Error(err)
			}
			return nil
		}}
		if d, err := c.Destroy(t.Context(), croft.DefaultProject, "web", false); err != nil || d.Gone {
			t.Errorf("got %+v, %v; want that its host ends it", d, err)
		}
		if len(c.placement.Claimed()) != 1 {
			t.Error("the claim was taken from under a domain that its host may have begun")
		}
	})
	t.Run("and says what it could not give back", func(t *testing.T) {
		c := newCloud(t, 1)
		underWay(t, c, "web")
		c.placement.Fail("Release", func() error { return croft.Errorf(croft.Unavailable, "planned") })
		_, err := c.Destroy(t.Context(), croft.DefaultProject, "web", false)
		wantKind(t, err, croft.Unavailable)
		if !strings.Contains(err.Error(), "give its claim back") {
			t.Errorf("%q does not say what is left", err)
		}
	})
}

// refused refuses orders, with or without certainty.
type refused struct{ schedule.Records }

func (refused) Assign(_ context.Context, inst croft.Instance, _ croft.Order) (croft.Instance, error) {
	return inst, croft.Errorf(croft.Unavailable, "planned")
}

// If the next host is tried although the claim on the first could not be released, that claim leaks.
func TestAnOrderThatFailsKeepsTheRecordOfAClaimItCannotGiveBack(t *testing.T) {
	c := newCloud(t, 1, 1)
	c.Records = refused{c.store}
	broken := func() error { return croft.Errorf(croft.Unavailable, "planned") }
	c.placement.Fail("Release", broken, broken)
	_, err := c.Request(t.Context(), request(t, "web"))
	wantKind(t, err, croft.Unavailable)
	if !strings.Contains(err.Error(), "give the claim of web back") {
		t.Errorf("%q does not say what is left", err)
	}
	if got := c.instances(t); !slices.Equal(got, []string{"web"}) {
		t.Errorf("records are %q: nothing leads to the claim", got)
	}
	if got := c.store.Retired(); !slices.Equal(got, []string{"memory"}) {
		t.Errorf("the session of the record stays, so no caretaker undoes the request: %q retired", got)
	}
}
