package schedule_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/schedule"
)

// held requests that a claim be held for an hour.
func held(t *testing.T, c *cloud, name string) croft.Instance {
	t.Helper()
	r := request(t, name)
	r.Image, r.Hold = "", time.Hour
	d, err := c.Request(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return d.Instance
}

func TestAClaimIsHeldWithoutAnOrder(t *testing.T) {
	c := newCloud(t, 1)
	inst := held(t, c, "web")
	left := time.Until(inst.Expires)
	if inst.State != croft.StateHeld || inst.Host != c.hosts[0] || left < 59*time.Minute || left > time.Hour {
		t.Errorf("held %+v", inst)
	}
	if got := c.placement.Claimed(); !slices.Equal(got, []croft.InstanceID{inst.ID}) {
		t.Errorf("claimed by %q", got)
	}
	_, err := c.store.Order(t.Context(), c.hosts[0], inst.ID)
	wantKind(t, err, croft.NotFound)
	_, err = c.Request(t.Context(), request(t, "web"))
	wantKind(t, err, croft.Conflict)
	_, err = c.Request(t.Context(), request(t, "db"))
	wantKind(t, err, croft.NoCapacity)
	for _, turn := range []func() error{
		func() error { _, err := c.Start(t.Context(), croft.DefaultProject, "web"); return err },
		func() error { _, err := c.Stop(t.Context(), croft.DefaultProject, "web"); return err },
		func() error { _, err := c.Rebuild(t.Context(), croft.DefaultProject, "web"); return err },
	} {
		wantKind(t, turn(), croft.Conflict)
	}
}

func TestAHeldClaimIsUsed(t *testing.T) {
	c := newCloud(t, 1)
	r := request(t, "web")
	r.Hold, r.Keys, r.Tags = time.Hour, []string{"ssh-ed25519 AAAA hold"}, map[string]string{"a": "hold"}
	d, err := c.Request(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	used, err := c.Use(t.Context(), croft.DefaultProject, "web", schedule.Use{Image: "file:///used", Public: true,
		GuestSettings: croft.GuestSettings{Tags: map[string]string{"a": "use"}, Restart: croft.RestartNever},
		Expires:       2 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	o, err := c.store.Order(t.Context(), c.hosts[0], used.ID)
	if err != nil {
		t.Fatal(err)
	}
	spec := o.Spec
	if used.ID != d.Instance.ID || used.State != croft.StateScheduled || o.Generation != 1 ||
		o.Want != croft.WantRunning || spec.Image != "file:///used" || !spec.ImagePublic ||
		!slices.Equal(spec.Keys, r.Keys) ||
		spec.Tags["a"] != "use" ||
		spec.Restart != croft.RestartNever || spec.HostKey == "" ||
		time.Until(used.Expires).Round(time.Hour) != 2*time.Hour {
		t.Errorf("used as %+v, ordered %+v", used, o)
	}
	if len(c.placement.Claimed()) != 1 {
		t.Errorf("claimed by %q", c.placement.Claimed())
	}
	_, err = c.Use(t.Context(), croft.DefaultProject, "web", schedule.Use{})
	wantKind(t, err, croft.Conflict)
	_, err = c.ReleaseHold(t.Context(), croft.DefaultProject, "web")
	wantKind(t, err, croft.Conflict)
}

func TestAHeldClaimIsReleased(t *testing.T) {
	for name, end := range map[string]func(*cloud) error{
		"release": func(c *cloud) error {
			_, err := c.ReleaseHold(t.Context(), croft.DefaultProject, "web")
			return err
		},
		"destroy": func(c *cloud) error {
			d, err := c.Destroy(t.Context(), croft.DefaultProject, "web", false)
			if err == nil && !d.Gone {
				err = errors.New("it is not gone")
			}
			return err
		},
	} {
		c := newCloud(t, 1)
		held(t, c, "web")
		if err := end(c); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		c.nothingLeft(t)
	}
}

func TestAHoldHasItsLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, 1)
		for _, r := range []schedule.Request{{Hold: time.Millisecond}, {Hold: -time.Hour},
			{Hold: time.Hour, Expires: time.Hour}} {
			r.Query, r.Name = request(t, "web").Query, "web"
			_, err := c.Request(t.Context(), r)
			wantKind(t, err, croft.Invalid)
			c.nothingLeft(t)
		}
		held(t, c, "web")
		_, err := c.Use(t.Context(), croft.DefaultProject, "web", schedule.Use{})
		wantKind(t, err, croft.Invalid) // no image
		_, err = c.Use(t.Context(), croft.DefaultProject, "web", schedule.Use{Image: "file:///i",
			GuestSettings: croft.GuestSettings{Restart: "perhaps"}})
		wantKind(t, err, croft.Invalid)
		_, err = c.Use(t.Context(), croft.DefaultProject, "web", schedule.Use{Image: "file:///i", Expires: -1})
		wantKind(t, err, croft.Invalid)
		_, err = c.Keep(t.Context(), croft.DefaultProject, "web", 0, nil)
		wantKind(t, err, croft.Invalid)
		if _, err := c.Keep(t.Context(), croft.DefaultProject, "web", 3*time.Hour, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Hour)
		_, err = c.Use(t.Context(), croft.DefaultProject, "nobody", schedule.Use{})
		wantKind(t, err, croft.NotFound)
		time.Sleep(2 * time.Hour)
		web, err := c.View.Find(t.Context(), croft.DefaultProject, "web")
		if err != nil {
			t.Fatal(err)
		}
		// like a caretaker at the end of the hold
		if _, err := c.Holds.Abandon(t.Context(), web.Instance); err != nil {
			t.Fatal(err)
		}
		_, err = c.Use(t.Context(), croft.DefaultProject, "web", schedule.Use{Image: "file:///i"})
		wantKind(t, err, croft.Conflict)
	})
}

// TestAHoldIsUsedUntilItIsGivenBack: the clock of the machine that uses a hold ends no hold. Only the caretaker ends
// it, after comparing clocks.
func TestAHoldIsUsedUntilItIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, 1)
		held(t, c, "web")
		time.Sleep(24 * time.Hour) // this machine's clock jumps, or the process was frozen
		used, err := c.Use(t.Context(), croft.DefaultProject, "web", schedule.Use{Image: "file:///i"})
		if err != nil || used.State != croft.StateScheduled {
			t.Errorf("got %s, %v", used.State, err)
		}
	})
}

// Of concurrent uses and releases exactly one takes effect, and leaves a consistent state.
func TestUsesAndReleasesAtOnce(t *testing.T) {
	for range 20 {
		c := newCloud(t, 1)
		held(t, c, "web")
		errs := make([]error, 6)
		var work sync.WaitGroup
		for i := range errs {
			work.Go(func() {
				if i%2 == 0 {
					_, errs[i] = c.Use(t.Context(), croft.DefaultProject, "web", schedule.Use{Image: "file:///i"})
				} else {
					_, errs[i] = c.ReleaseHold(t.Context(), croft.DefaultProject, "web")
				}
			})
		}
		work.Wait()
		won := -1
		for i, err := range errs {
			switch {
			case err == nil && won >= 0:
				t.Fatalf("%d and %d took effect", won, i)
			case err == nil:
				won = i
			case croft.KindOf(err) != croft.Conflict && croft.KindOf(err) != croft.NotFound:
				t.Fatal(err)
			}
		}
		switch {
		case won < 0:
			t.Fatalf("nobody won: %v", errs)
		case won%2 == 1:
			c.nothingLeft(t)
		default:
			st, err := c.store.Find(t.Context(), croft.DefaultProject, "web")
			if err != nil || st.Order == nil || len(c.placement.Claimed()) != 1 {
				t.Fatalf("used, and then %+v, %v", st, err)
			}
		}
	}
}

// A lost answer is settled by a fence: the written state decides.
func TestALostAnswerAboutAHold(t *testing.T) {
	c := newCloud(t, 1)
	c.fail(faulty{hold: func(croft.Instance) error { return errPlanned }})
	if inst := held(t, c, "web"); inst.State != croft.StateHeld || inst.Host != c.hosts[0] {
		t.Errorf("held %+v", inst)
	}
	c.fail(faulty{use: func(croft.Instance, croft.Order) error { return errPlanned }})
	used, err := c.Use(t.Context(), croft.DefaultProject, "web", schedule.Use{Image: "file:///i"})
	if err != nil || used.State != croft.StateScheduled {
		t.Errorf("used %+v, %v", used, err)
	}

	// Another use was written before the fence, so this one was not.
	c = newCloud(t, 1)
	held(t, c, "web")
	written := false
	c.fail(faulty{fence: func(inst croft.Instance) (croft.Instance, error) {
		inst.State, inst.Spec.HostKey = croft.StateScheduled, "another's"
		return inst, nil
	}, use: func(croft.Instance, croft.Order) error { written = true; return errPlanned }})
	if _, err := c.Use(t.Context(), croft.DefaultProject, "web", schedule.Use{Image: "file:///i"}); !errors.Is(err,
		errPlanned) || !written {
		t.Errorf("got %v", err)
	}
}

// A release that fails after its first step leaves a record that an audit removes, and that cannot be used.
func TestAReleaseThatIsCutOff(t *testing.T) {
	c := newCloud(t, 1)
	held(t, c, "web")
	c.placement.Fail("Release", func() error { return errPlanned })
	if _, err := c.ReleaseHold(t.Context(), croft.DefaultProject, "web"); !errors.Is(err, errPlanned) {
		t.Fatalf("got %v", err)
	}
	st, err := c.store.Find(t.Context(), croft.DefaultProject, "web")
	if err != nil || st.Instance.State != croft.StateScheduling || st.Instance.Session != "" {
		t.Errorf("left %+v, %v", st.Instance, err)
	}
	_, err = c.Use(t.Context(), croft.DefaultProject, "web", schedule.Use{Image: "file:///i"})
	wantKind(t, err, croft.Conflict)
}
