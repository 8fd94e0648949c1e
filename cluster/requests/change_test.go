package requests_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/cluster"
	"croft/cluster/requests"
	"croft/cluster/sim"
)

func ready(t *testing.T) (*bench, cluster.Cluster) {
	b := newBench(t)
	return b, b.manage(b.create(ask("one")).ID, cluster.Ready)
}

// slowly delays writes, so that concurrent requests all read before the first one writes.
func slowly(op string) error {
	if op == "Update" || op == "Create" || op == "AddAccount" {
		time.Sleep(time.Millisecond)
	}
	return nil
}

func TestHostsAreAddedOnceEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := ready(t)
		b.store.Before = slowly
		servers := []*requests.Service{b.Service, b.another()}
		var all sync.WaitGroup
		for i := range 10 {
			all.Go(func() {
				if _, err := servers[i%2].AddHost(t.Context(), "physics", "one"); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		now, err := b.Find(t.Context(), "physics", "one")
		b.fatal(err)
		if now.Slaves != 12 || len(now.Indexes) != 12 || now.NextIndex != 12 || now.Generation != c.Generation+10 ||
			!slices.IsSorted(now.Indexes) {
			t.Errorf("ten more than two: %+v", now)
		}
	})
}

func TestALostAnswerAddsNoSecondHost(t *testing.T) {
	b, _ := ready(t)
	b.store.After = func(op string) error {
		if op == "Update" {
			return croft.Errorf(croft.Unavailable, "the answer was lost")
		}
		return nil
	}
	_, err := b.AddHost(t.Context(), "physics", "one")
	b.kind(err, croft.Unavailable, "lost")
	b.store.After = nil
	if c, err := b.Find(t.Context(), "physics", "one"); err != nil || c.Slaves != 3 {
		t.Errorf("got %+v, %v, want one more", c, err)
	}
}

func TestHostsAreRemoved(t *testing.T) {
	for _, c := range []struct {
		name    string
		host    func(cluster.Cluster) string
		single  bool // the template can only remove the last slave
		indexes []int
		removed []int
		kind    croft.Kind
		text    string
	}{
		{"by ID", func(c cluster.Cluster) string { return string(cluster.IDOf(c.ID, cluster.Slave, 1)) }, false,
			[]int{0, 2}, []int{1}, "", ""},
		{"by name", func(cluster.Cluster) string { return "s0" }, false, []int{1, 2}, []int{0}, "", ""},
		{"the last", func(cluster.Cluster) string { return "last" }, false, []int{0, 1}, []int{2}, "", ""},
		{"the master by name", func(cluster.Cluster) string { return "m" }, false, nil, nil, croft.Conflict,
			"the master of cluster one cannot be removed"},
		{"the master by ID", func(c cluster.Cluster) string { return string(cluster.IDOf(c.ID, cluster.Master, 0)) },
			false,
			nil, nil, croft.Conflict, "the master of cluster one cannot be removed"},
		{"one that there is not", func(cluster.Cluster) string { return "s9" }, false, nil, nil, croft.NotFound,
			`cluster one has no host "s9"`},
		{"the last, where no other can be", func(cluster.Cluster) string { return "last" }, true, []int{0, 1}, nil, "",
			""},
		{"the last by name, where no other can be", func(cluster.Cluster) string { return "s2" }, true, []int{0, 1},
			nil,
			"", ""},
		{"another than the last, where it cannot be", func(cluster.Cluster) string { return "s1" }, true, nil, nil,
			croft.Conflict, "declares no parameter removed, so only its last slave can be removed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			r := ask("one")
			r.Slaves = 3
			one := b.manage(b.create(r).ID, cluster.Ready)
			service := b.Service
			if c.single {
				service = b.withDriver(lastOnly{b.sites})
			}
			got, err := service.RemoveHost(t.Context(), "physics", "one", c.host(one))
			if c.kind != "" {
				b.kind(err, c.kind, c.text)
				got, err = b.Find(t.Context(), "physics", "one")
				c.indexes = []int{0, 1, 2}
			}
			b.fatal(err)
			if !slices.Equal(got.Indexes, c.indexes) || got.Slaves != len(c.indexes) || !slices.Equal(got.Removed,
				c.removed) {
				t.Errorf("got %+v", got)
			}
			more, err := service.AddHost(t.Context(), "physics", "one")
			if err != nil || !slices.Equal(more.Indexes, append(slices.Clone(c.indexes), 3)) {
				t.Errorf("one more: got %v, %v: no index is used twice", more.Indexes, err)
			}
		})
	}
}

// lastOnly is a driver whose templates can only remove the last slave.
type lastOnly struct{ cluster.Driver }

func (d lastOnly) Check(ctx context.Context, i cluster.Implementation) (cluster.Contract, error) {
	c, err := d.Driver.Check(ctx, i)
	c.RemoveNamed = false
	return c, err
}

func TestAClusterKeepsWhatItsApplianceNeeds(t *testing.T) {
	b, _ := ready(t)
	_, err := b.RemoveHost(t.Context(), "physics", "one", "last")
	b.fatal(err)
	for range 2 {
		_, err = b.RemoveHost(t.Context(), "physics", "one", "last")
		b.kind(err, croft.Conflict, "appliance slurm needs at least 1")
	}
	none := 0
	_, err = b.Change(t.Context(), "physics", "one", cluster.Change{Slaves: &none}, nil)
	b.kind(err, croft.Conflict, "appliance slurm needs at least 1")
}

func TestResizeByState(t *testing.T) {
	for _, state := range cluster.States {
		t.Run(string(state), func(t *testing.T) {
			b := newBench(t)
			c := b.manage(b.create(ask("one")).ID, state)
			three := 3
			may := state == cluster.Ready || state == cluster.Resizing || state == cluster.Degraded
			for name, do := range map[string]func() (cluster.Cluster, error){
				"add": func() (cluster.Cluster, error) { return b.AddHost(t.Context(), "physics", string(c.ID)) },
				"remove": func() (cluster.Cluster, error) {
					return b.RemoveHost(t.Context(), "physics", string(c.ID), "last")
				},
				"change": func() (cluster.Cluster, error) {
					return b.Change(t.Context(), "physics", string(c.ID), cluster.Change{Slaves: &three}, nil)
				},
			} {
				if got, err := do(); may && err != nil || !may && croft.KindOf(err) != croft.Conflict {
					t.Errorf("%s: got %+v, %v", name, got, err)
				}
			}
		})
	}
}

func TestGrowthAsksForRoom(t *testing.T) {
	b, _ := ready(t)
	c, err := b.Find(t.Context(), "physics", "one")
	b.fatal(err)
	b.sites.Change("east", func(f *sim.Faults) { f.Room = 1 })
	_, err = b.AddHost(t.Context(), "physics", "one")
	b.fatal(err)
	ten := 10
	_, err = b.Change(t.Context(), "physics", "one", cluster.Change{Slaves: &ten}, nil)
	b.kind(err, croft.NoCapacity, "site east has no room for 7 more")
	b.sites.Change("east", func(f *sim.Faults) { f.Away = true })
	if got, err := b.AddHost(t.Context(), "physics", "one"); err != nil || got.Slaves != c.Slaves+2 {
		t.Errorf("a site that does not answer decides later: got %+v, %v", got, err)
	}
}

func TestGrowthThatIsUnderWayNeedsRoomToo(t *testing.T) {
	b, _ := ready(t)
	b.sites.Change("east", func(f *sim.Faults) { f.Room = 2 })
	for range 2 {
		_, err := b.AddHost(t.Context(), "physics", "one")
		b.fatal(err)
	}
	_, err := b.AddHost(t.Context(), "physics", "one")
	b.kind(err, croft.NoCapacity, "site east has no room for 1 more")
}

func TestChange(t *testing.T) {
	b, c := ready(t)
	other := ask("two")
	other.Reuse = cluster.ReuseNever
	b.create(other)
	name, taken, bad, slaves := "uno", "two", "U", 4
	hour, never, minus := cluster.Seconds(time.Hour), cluster.Seconds(0), cluster.Seconds(-time.Second)
	stale := c.Generation - 1
	got, err := b.Change(t.Context(), "physics", "one", cluster.Change{Name: &name, Slaves: &slaves, KeepIdle: &hour,
		Expires: &hour}, &c.Generation)
	if err != nil || got.Name != "uno" || got.Slaves != 4 || got.KeepIdle != hour ||
		time.Until(got.Expires) < 59*time.Minute ||
		got.Generation != c.Generation+1 {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err = b.Change(t.Context(), "physics", "uno", cluster.Change{Expires: &never}, nil); err != nil ||
		!got.Expires.IsZero() {
		t.Errorf("without an end: got %+v, %v", got, err)
	}
	if again, err := b.Change(t.Context(), "physics", "uno", cluster.Change{Slaves: &slaves}, nil); err != nil ||
		again.Generation != got.Generation {
		t.Errorf("what changes nothing: got %+v, %v", again, err)
	}
	_, err = b.Find(t.Context(), "physics", "one")
	b.kind(err, croft.NotFound, `has no cluster "one"`)
	for _, c := range []struct {
		change     cluster.Change
		generation *int64
		kind       croft.Kind
		text       string
	}{
		{cluster.Change{Name: &taken}, nil, croft.Conflict, "the name two is taken"},
		{cluster.Change{Name: &bad}, nil, croft.Invalid, "not a name"},
		{cluster.Change{KeepIdle: &minus}, nil, croft.Invalid, "keep_idle"},
		{cluster.Change{Expires: &minus}, nil, croft.Invalid, "expires"},
		{cluster.Change{KeepIdle: &hour}, &stale, croft.Conflict, "by now, not"},
	} {
		_, err := b.Change(t.Context(), "physics", "uno", c.change, c.generation)
		b.kind(err, c.kind, c.text)
	}
}

func TestUses(t *testing.T) {
	b, c := ready(t)
	joined := b.create(ask("two"))
	for i, u := range joined.Uses {
		got, err := b.EndUse(t.Context(), "physics", "one", u.ID)
		if err != nil || len(got.Uses) != 1-i || got.IdleSince.IsZero() == (i == 1) {
			t.Errorf("end %d: got %+v, %v", i, got, err)
		}
	}
	_, err := b.EndUse(t.Context(), "physics", "one", c.Uses[0].ID)
	b.kind(err, croft.NotFound, "cluster one has no use")
}

func TestTooManyUses(t *testing.T) {
	b, c := ready(t)
	b.manage(c.ID, cluster.Ready, func(c *cluster.Cluster) {
		for len(c.Uses) < cluster.MaxUses {
			c.Uses = append(c.Uses, cluster.Use{ID: cluster.NewUseID(), Holder: "ada"})
		}
	})
	_, err := b.Create(t.Context(), ask("two"))
	b.kind(err, croft.Conflict, "has 500 uses, which is the most")
}

func TestDelete(t *testing.T) {
	for _, state := range cluster.States {
		t.Run(string(state), func(t *testing.T) {
			b := newBench(t)
			c := b.manage(b.create(ask("one")).ID, state)
			want := cluster.Deleting
			if state == cluster.Deleted {
				want = cluster.Deleted
			}
			for range 2 {
				got, err := b.Delete(t.Context(), "physics", string(c.ID), cluster.Removal{User: "ada"})
				if err != nil || got.State != want || got.Abandoned {
					t.Errorf("got %+v, %v", got, err)
				}
			}
		})
	}
}

func TestOthersUses(t *testing.T) {
	b, c := ready(t)
	_, err := b.Delete(t.Context(), "physics", "one", cluster.Removal{User: "root"})
	b.kind(err, croft.Conflict, "cluster one is used by ada")
	got, err := b.Delete(t.Context(), "physics", "one", cluster.Removal{User: "root", Force: true})
	if err != nil || got.State != cluster.Deleting {
		t.Errorf("with force: got %+v, %v", got, err)
	}
	got, err = b.Delete(t.Context(), "physics", "one", cluster.Removal{User: "root"})
	if err != nil || got.State != cluster.Deleting {
		t.Errorf("again: got %+v, %v", got, err)
	}
	if made := b.create(ask("two")); made.ID == c.ID {
		t.Error("what is being removed was joined")
	}
}

func TestAbandonSaysWhatStays(t *testing.T) {
	b, c := ready(t)
	_, err := b.Delete(t.Context(), "physics", "one", cluster.Removal{User: "ada"})
	b.fatal(err)
	for range 2 {
		got, err := b.Delete(t.Context(), "physics", "one", cluster.Removal{User: "ada", Abandon: true})
		want := "it was abandoned: its remains at site east, named croft-" + string(c.ID) + ", stay there"
		if err != nil || !got.Abandoned || got.Step != want {
			t.Errorf("got %+v, %v", got, err)
		}
	}
}

func TestTheEndIsRemembered(t *testing.T) {
	b, c := ready(t)
	b.manage(c.ID, cluster.Deleted)
	if got, err := b.Find(t.Context(), "physics", string(c.ID)); err != nil || got.State != cluster.Deleted {
		t.Errorf("got %+v, %v", got, err)
	}
	_, err := b.Find(t.Context(), "physics", "one")
	b.kind(err, croft.NotFound, "has no cluster")
	if all, err := b.List(t.Context(), "physics", cluster.Filter{}); err != nil || len(all) != 0 {
		t.Errorf("list: %v, %v", all, err)
	}
	b.manage(c.ID, cluster.Deleted, func(c *cluster.Cluster) { c.Ended = time.Now().Add(-25 * time.Hour) })
	_, err = b.Find(t.Context(), "physics", string(c.ID))
	b.kind(err, croft.NotFound, "has no cluster")
}

func TestList(t *testing.T) {
	b, _ := ready(t)
	r := ask("two")
	r.Reuse = cluster.ReuseNever
	b.create(r)
	r.Project = "chemistry"
	b.create(r)
	for _, c := range []struct {
		project croft.Project
		filter  cluster.Filter
		want    int
	}{
		{"physics", cluster.Filter{}, 2}, {"", cluster.Filter{}, 3}, {"physics", cluster.Filter{Site: "east"}, 1},
		{"physics", cluster.Filter{State: cluster.Scheduling}, 1}, {"physics", cluster.Filter{Appliance: "k3s"}, 0},
	} {
		if all, err := b.List(t.Context(), c.project, c.filter); err != nil || len(all) != c.want {
			t.Errorf("%+v: got %d, %v, want %d", c, len(all), err, c.want)
		}
	}
	_, err := b.List(t.Context(), "physics", cluster.Filter{State: "REDAY"})
	b.kind(err, croft.Invalid, `did you mean "READY"?`)
}

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		c := b.create(ask("one"))
		go func() {
			time.Sleep(time.Second)
			b.manage(c.ID, cluster.Building)
			time.Sleep(time.Minute)
			b.manage(c.ID, cluster.Ready)
		}()
		var seen []cluster.State
		start := time.Now()
		got, err := b.Wait(t.Context(), "physics", "one", func(c cluster.Cluster) { seen = append(seen, c.State) })
		if err != nil || got.State != cluster.Ready || time.Since(start) != 61*time.Second {
			t.Errorf("got %+v, %v after %s", got, err, time.Since(start))
		}
		if want := []cluster.State{cluster.Scheduling, cluster.Building, cluster.Ready}; !slices.Equal(seen, want) {
			t.Errorf("progress: %v", seen)
		}
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.create(ask("one"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if got, err := b.Wait(ctx, "physics", "one", nil); err != nil || got.State != cluster.Scheduling {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

func TestWaitForAResizeThatHasNotBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, c := ready(t)
		_, err := b.AddHost(t.Context(), "physics", "one")
		b.fatal(err)
		go func() {
			time.Sleep(time.Minute)
			b.manage(c.ID, cluster.Ready)
		}()
		got, err := b.Wait(t.Context(), "physics", "one", nil)
		if err != nil || len(got.Members) != 4 {
			t.Errorf("got %+v, %v, want a master and three slaves", got, err)
		}
	})
}

// TestTimesUnderAMinuteAreRefused: the end of a cluster is announced a minute before it.
func TestTimesUnderAMinuteAreRefused(t *testing.T) {
	for _, d := range []time.Duration{time.Millisecond, 10 * time.Second, 59 * time.Second} {
		period := cluster.Seconds(d)
		if err := cluster.CheckPeriods(period, 0); croft.KindOf(err) != croft.Invalid {
			t.Errorf("keep_idle of %s: %v", d, err)
		}
		if err := cluster.CheckPeriods(0, period); croft.KindOf(err) != croft.Invalid {
			t.Errorf("expires in %s: %v", d, err)
		}
	}
	if err := cluster.CheckPeriods(cluster.Seconds(time.Minute), 0); err != nil {
		t.Error(err)
	}
}
