package schedule_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/schedule"
)

// scheduled creates an instance on the cloud's first host.
func scheduled(t *testing.T, c *cloud, name string) croft.Instance {
	t.Helper()
	d, err := c.Request(t.Context(), request(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return d.Instance
}

func (c *cloud) wanted(t *testing.T, inst croft.Instance) (croft.Want, int64) {
	t.Helper()
	o, err := c.store.Order(t.Context(), c.hosts[0], inst.ID)
	if err != nil {
		t.Fatal(err)
	}
	return o.Want, o.Generation
}

// TestRebootAndRebuildOutlastLaterOrders: every later order repeats the request to reboot or rebuild, so that an agent
// which missed the first one still performs it.
func TestRebootAndRebuildOutlastLaterOrders(t *testing.T) {
	c := newCloud(t, 1)
	inst := scheduled(t, c, "web")
	for _, step := range []struct {
		do                            func(context.Context, croft.Project, string) (croft.Instance, error)
		generation, rebooted, rebuilt int64
	}{
		{c.Reboot, 2, 2, 0},
		{c.Rebuild, 3, 2, 3},
		{c.Stop, 4, 2, 3},
		{c.Reboot, 5, 5, 3},
	} {
		got, err := step.do(t.Context(), croft.DefaultProject, "web")
		if err != nil {
			t.Fatal(err)
		}
		o, err := c.store.Order(t.Context(), c.hosts[0], inst.ID)
		if err != nil {
			t.Fatal(err)
		}
		if o.Generation != step.generation || o.Rebooted != step.rebooted || o.Rebuilt != step.rebuilt {
			t.Errorf("ordered generation %d, reboot at %d, rebuild at %d; want %+v", o.Generation, o.Rebooted,
				o.Rebuilt, step)
		}
		if got.Generation != o.Generation || got.Rebooted != o.Rebooted || got.Rebuilt != o.Rebuilt {
			t.Errorf("the record says %+v and the order %+v", got, o)
		}
	}
	if _, err := c.Destroy(t.Context(), croft.DefaultProject, "web", false); err != nil {
		t.Fatal(err)
	}
	_, err := c.Rebuild(t.Context(), croft.DefaultProject, "web")
	wantKind(t, err, croft.Conflict)
}

func TestStopAndStart(t *testing.T) {
	c := newCloud(t, 1)
	inst := scheduled(t, c, "web")
	for _, step := range []struct {
		do         func(context.Context, croft.Project, string) (croft.Instance, error)
		by         string
		want       croft.Want
		generation int64
	}{
		{c.Stop, "web", croft.WantStopped, 2},
		{c.Stop, "web", croft.WantStopped, 2}, // already wanted: no new order
		{c.Start, string(inst.ID), croft.WantRunning, 3},
	} {
		got, err := step.do(t.Context(), croft.DefaultProject, step.by)
		if err != nil {
			t.Fatal(err)
		}
		if want, generation := c.wanted(t, inst); want != step.want || generation != step.generation ||
			got.Generation != generation {
			t.Errorf("ordered %s at generation %d, record at %d; want %s at %d", want, generation, got.Generation,
				step.want, step.generation)
		}
	}
	if _, err := c.Destroy(t.Context(), croft.DefaultProject, "web", false); err != nil {
		t.Fatal(err)
	}
	_, err := c.Start(t.Context(), croft.DefaultProject, "web")
	wantKind(t, err, croft.Conflict)
	if got, want := err.Error(), "start web: it is destroying"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	_, err = c.Stop(t.Context(), croft.DefaultProject, "nobody")
	wantKind(t, err, croft.NotFound)
}

func TestStartTriesAgainWhatFailed(t *testing.T) {
	c := newCloud(t, 1)
	inst := scheduled(t, c, "web")
	c.observe(t, croft.Observation{Instance: inst.ID, Generation: 1, State: croft.StateFailed, Error: "no",
		ErrorKind: croft.NotFound})
	if _, err := c.Start(t.Context(), inst.Project, string(inst.ID)); err != nil {
		t.Fatal(err)
	}
	if want, generation := c.wanted(t, inst); want != croft.WantRunning || generation != 2 {
		t.Errorf("ordered %s at generation %d, want it to run at 2", want, generation)
	}
}

func TestDestroy(t *testing.T) {
	t.Run("writes a tombstone and keeps the claim for the agent to free", func(t *testing.T) {
		c := newCloud(t, 1)
		inst := scheduled(t, c, "web")
		for range 2 { // repeating it is no error
			d, err := c.Destroy(t.Context(), croft.DefaultProject, "web", false)
			if err != nil || d.Gone {
				t.Fatalf("got %+v, %v", d, err)
			}
		}
		if want, generation := c.wanted(t, inst); want != croft.WantGone || generation != 2 {
			t.Errorf("ordered %s at %d", want, generation)
		}
		if len(c.placement.Claimed()) != 1 {
			t.Error("the claim is gone before the instance")
		}
	})
	t.Run("removes at once what no host was told of", func(t *testing.T) {
		c := newCloud(t, 1)
		underWay(t, c, "web")
		d, err := c.Destroy(t.Context(), croft.DefaultProject, "web", false)
		if err != nil || !d.Gone {
			t.Fatalf("got %+v, %v", d, err)
		}
		c.nothingLeft(t)
	})
	t.Run("says when there is nothing of that name", func(t *testing.T) {
		_, err := newCloud(t, 1).Destroy(t.Context(), croft.DefaultProject, "web", false)
		wantKind(t, err, croft.NotFound)
	})
}

func TestDestroyWithForce(t *testing.T) {
	t.Run("frees claim and name of a silent host and leaves the tombstone", func(t *testing.T) {
		c := newCloud(t, 1)
		inst := scheduled(t, c, "web")
		c.store.SetAlive(c.hosts[0], -1)
		d, err := c.Destroy(t.Context(), croft.DefaultProject, "web", true)
		if err != nil || !d.Gone {
			t.Fatalf("got %+v, %v", d, err)
		}
		c.nothingLeft(t)
		if want, generation := c.wanted(t, inst); want != croft.WantGone || generation < 2 {
			t.Errorf("left an order for %s at %d", want, generation)
		}
	})
	t.Run("does so for what is being destroyed already", func(t *testing.T) {
		c := newCloud(t, 1)
		scheduled(t, c, "web")
		c.store.SetAlive(c.hosts[0], -1)
		for _, force := range []bool{false, true} {
			if _, err := c.Destroy(t.Context(), croft.DefaultProject, "web", force); err != nil {
				t.Fatal(err)
			}
		}
		c.nothingLeft(t)
	})
	t.Run("leaves a running host's instance to its agent", func(t *testing.T) {
		c := newCloud(t, 1)
		scheduled(t, c, "web")
		d, err := c.Destroy(t.Context(), croft.DefaultProject, "web", true)
		if err != nil || d.Gone || len(c.placement.Claimed()) != 1 {
			t.Errorf("got %+v, %v, claims %q", d, err, c.placement.Claimed())
		}
	})
	t.Run("may be repeated where freeing the claim broke off", func(t *testing.T) {
		c := newCloud(t, 1)
		scheduled(t, c, "web")
		c.store.SetAlive(c.hosts[0], -1)
		c.placement.Fail("Release", func() error { return croft.Errorf(croft.Unavailable, "planned") })
		_, err := c.Destroy(t.Context(), croft.DefaultProject, "web", true)
		wantKind(t, err, croft.Unavailable)
		if _, err := c.Destroy(t.Context(), croft.DefaultProject, "web", true); err != nil {
			t.Fatal(err)
		}
		c.nothingLeft(t)
	})
}

// contended changes a record concurrently, before the scheduler's first writes.
type contended struct {
	schedule.Records
	times  int
	before func()
}

func (r *contended) Reorder(ctx context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error) {
	if r.times--; r.times >= 0 {
		r.before()
	}
	return r.Records.Reorder(ctx, inst, o)
}

func TestAChangeIsBegunAnewWhereTheRecordChanged(t *testing.T) {
	for _, c := range []struct {
		name  string
		times int
		want  croft.Kind
	}{
		{"once", 1, ""},
		{"for ever, and given up", 1000, croft.Conflict},
	} {
		t.Run(c.name, func(t *testing.T) {
			cloud := newCloud(t, 1)
			inst := scheduled(t, cloud, "web")
			cloud.Records = &contended{cloud.store, c.times, func() {
				st, err := cloud.store.FindByID(t.Context(), inst.ID)
				if err == nil {
					_, err = cloud.store.Reorder(t.Context(), st.Instance, croft.Order{
						Host: cloud.hosts[0], Instance: inst.ID, Want: croft.WantRunning,
						Generation: st.Instance.Generation + 1,
					})
				}
				if err != nil {
					t.Error(err)
				}
			}}
			_, err := cloud.Stop(t.Context(), croft.DefaultProject, "web")
			if croft.KindOf(err) != c.want {
				t.Fatalf("got %v, want kind %q", err, c.want)
			}
			if want, _ := cloud.wanted(t, inst); err == nil && want != croft.WantStopped {
				t.Errorf("ordered %s", want)
			}
		})
	}
}

func (c *cloud) observe(t *testing.T, o croft.Observation) {
	t.Helper()
	o.Host = c.hosts[0]
	if err := c.store.Observe(t.Context(), o); err != nil {
		t.Error(err)
	}
}

// A guest that its restart policy left off is already wanted running, so it needs a new order.
func TestStartBootsWhatEnded(t *testing.T) {
	c := newCloud(t, 1)
	inst := scheduled(t, c, "web")
	c.observe(t, croft.Observation{Instance: inst.ID, Generation: 1, State: croft.StateStopped, Ended: croft.EndGuest})
	if _, err := c.Start(t.Context(), inst.Project, string(inst.ID)); err != nil {
		t.Fatal(err)
	}
	if want, generation := c.wanted(t, inst); want != croft.WantRunning || generation != 2 {
		t.Errorf("ordered %s at generation %d, want it to run at 2", want, generation)
	}
}

func TestWait(t *testing.T) {
	broken := croft.Observation{Generation: 1, State: croft.StateFailed, Error: "the image has a wrong checksum",
		ErrorKind: croft.Invalid}
	for _, c := range []struct {
		name string
		goal schedule.Goal
		then func(*testing.T, *cloud, croft.Instance) // runs after the wait started
		want string                                   // of the error
		kind croft.Kind
	}{
		{"until it runs", schedule.Running, func(t *testing.T, c *cloud, inst croft.Instance) {
			c.observe(t, croft.Observation{Instance: inst.ID, Generation: 1, State: croft.StateBooting})
			c.observe(t, croft.Observation{Instance: inst.ID, Generation: 1, State: croft.StateRunning})
		}, "", ""},
		{"until it is stopped, whatever was seen of the order before", schedule.Stopped,
			func(t *testing.T, c *cloud, inst croft.Instance) {
				if _, err := c.Stop(t.Context(), inst.Project, string(inst.ID)); err != nil {
					t.Error(err)
				}
				failed := broken
				failed.Instance = inst.ID
				c.observe(t, failed)
				c.observe(t, croft.Observation{Instance: inst.ID, Generation: 2, State: croft.StateStopped})
			}, "", ""},
		{"until it is gone, at the second attempt", schedule.Gone, func(t *testing.T, c *cloud, inst croft.Instance) {
			if _, err := c.Destroy(t.Context(), inst.Project, string(inst.ID), false); err != nil {
				t.Error(err)
			}
			c.observe(t, croft.Observation{Instance: inst.ID, Generation: 2, State: croft.StateFailed,
				Error: "libvirtd restarts"})
			synctest.Wait()
			if err := c.store.Forget(t.Context(), croft.Order{Host: c.hosts[0], Instance: inst.ID,
				Generation: 2}); err != nil {
				t.Error(err)
			}
		}, "", ""},
		{"and hear what went wrong", schedule.Running, func(t *testing.T, c *cloud, inst croft.Instance) {
			failed := broken
			failed.Instance = inst.ID
			c.observe(t, failed)
		}, "instance web: the image has a wrong checksum", croft.Invalid},
		{"and hear that the guest powered itself off", schedule.Running,
			func(t *testing.T, c *cloud, inst croft.Instance) {
				c.observe(t, croft.Observation{Instance: inst.ID, Generation: 1, State: croft.StateStopped,
					Ended: croft.EndGuest})
			},
			"instance web: the guest powered itself off; its restart policy leaves it off, and `schedule start web` boots it", ""},
		{"and hear that somebody destroys it", schedule.Running, func(t *testing.T, c *cloud, inst croft.Instance) {
			if _, err := c.Destroy(t.Context(), inst.Project, string(inst.ID), false); err != nil {
				t.Error(err)
			}
		}, "instance web: it is being destroyed", croft.Conflict},
		{"no longer than the deadline for a host that fell silent", schedule.Running,
			func(_ *testing.T, c *cloud, _ croft.Instance) {
				c.store.SetAlive(c.hosts[0], -1)
			}, "instance web: waited long enough; it is unknown", croft.Unavailable},
		{"no longer than the deadline for a removal that fails", schedule.Gone,
			func(t *testing.T, c *cloud, inst croft.Instance) {
				if _, err := c.Destroy(t.Context(), inst.Project, string(inst.ID), false); err != nil {
					t.Error(err)
				}
				c.observe(t, croft.Observation{Instance: inst.ID, Generation: 2, State: croft.StateFailed,
					Error: "the disk is busy"})
			}, "instance web: waited long enough; it is destroying: the disk is busy", croft.Unavailable},
		{"no longer than the deadline", schedule.Running, func(t *testing.T, c *cloud, inst croft.Instance) {
			c.observe(t, croft.Observation{Instance: inst.ID, Generation: 1, State: croft.StateFetching})
		}, "instance web: waited long enough; it is fetching", croft.Unavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud := newCloud(t, 1)
				inst := scheduled(t, cloud, "web")
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				result := make(chan error, 1)
				go func() { result <- cloud.Wait(ctx, inst, c.goal, nil) }()
				synctest.Wait()
				c.then(t, cloud, inst)
				err := <-result
				if croft.KindOf(err) != c.kind || (err == nil) != (c.want == "") || err != nil &&
					err.Error() != c.want {
					t.Errorf("got error %v of kind %q, want %q of kind %q", err, croft.KindOf(err), c.want, c.kind)
				}
				if failure, ok := errors.AsType[*schedule.Failure](err); ok != (c.kind == croft.Invalid) {
					t.Errorf("failure %v", failure)
				}
			})
		})
	}
}

func TestWaitTellsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud(t, 1)
		inst := scheduled(t, c, "web")
		var seen []string
		result := make(chan error, 1)
		go func() {
			result <- c.Wait(t.Context(), inst, schedule.Running,
				func(st croft.Status) { seen = append(seen, schedule.Describe(&st)) })
		}()
		for _, state := range []croft.State{croft.StateFetching, croft.StateDefining, croft.StateRunning} {
			synctest.Wait()
			c.observe(t, croft.Observation{Instance: inst.ID, Generation: 1, State: state})
		}
		if err := <-result; err != nil {
			t.Fatal(err)
		}
		if want := []string{"ordered", "fetching", "defining", "running"}; !slices.Equal(seen, want) {
			t.Errorf("saw %q, want %q", seen, want)
		}
	})
}

// restarting is a store that is unavailable for a number of watches.
type restarting struct {
	schedule.View
	away int
}

func (r *restarting) Find(ctx context.Context, project croft.Project, idOrName string) (croft.Status, error) {
	if r.away > 0 {
		return croft.Status{}, croft.Errorf(croft.Unavailable, "etcd restarts")
	}
	return r.View.Find(ctx, project, idOrName)
}

func (r *restarting) WatchInstance(ctx context.Context, id croft.InstanceID, changed func(*croft.Status) bool) error {
	if r.away--; r.away >= 0 {
		return croft.Errorf(croft.Unavailable, "etcd restarts")
	}
	return r.View.WatchInstance(ctx, id, changed)
}

func TestWaitOutlastsARestartOfTheStore(t *testing.T) {
	for _, c := range []struct {
		name string
		away int
		want string // in the error
	}{
		{"which comes back", 3, ""},
		{"which does not come back in time", 1000, "instance web: waited long enough"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cloud := newCloud(t, 1)
				inst := scheduled(t, cloud, "web")
				cloud.observe(t, croft.Observation{Instance: inst.ID, Generation: 1, State: croft.StateRunning})
				cloud.View = &restarting{cloud.store, c.away}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				err := cloud.Wait(ctx, inst, schedule.Running, nil)
				if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
					t.Errorf("got error %v, want %q", err, c.want)
				}
			})
		})
	}
}

func TestWaitIsCancelled(t *testing.T) {
	c := newCloud(t, 1)
	inst := scheduled(t, c, "web")
	ctx, cancel := context.WithCancel(t.Context())
	err := c.Wait(ctx, inst, schedule.Running, func(croft.Status) { cancel() })
	if !errors.Is(err, context.Canceled) || !strings.HasPrefix(err.Error(), "wait for instance web: ") {
		t.Errorf("got %v", err)
	}
}

func TestDescribe(t *testing.T) {
	inst := croft.Instance{State: croft.StateScheduled}
	alive := &croft.Host{Alive: true}
	for want, st := range map[string]*croft.Status{
		"gone":       nil,
		"scheduling": {Instance: croft.Instance{State: croft.StateScheduling}},
		"destroying": {Instance: croft.Instance{State: croft.StateDestroying},
			Observation: &croft.Observation{State: croft.StateRunning}},
		"ordered": {Instance: inst, Host: alive},
		"booting": {Instance: inst, Observation: &croft.Observation{State: croft.StateBooting}}, // host unknown
		"running": {Instance: inst, Host: alive, Observation: &croft.Observation{State: croft.StateRunning}},
		schedule.Unknown: {Instance: inst, Host: &croft.Host{},
			Observation: &croft.Observation{State: croft.StateRunning}},
	} {
		if got := schedule.Describe(st); got != want {
			t.Errorf("%+v is %q, want %q", st, got, want)
		}
	}
}
