package etcdstore_test

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"

	"croft"
	"croft/etcdstore/etcdtest"
)

func TestTheFeedTellsOfEachChangeAndItsProject(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	began, changes := make(chan int64, 1), make(chan croft.Change, 100)
	var run sync.WaitGroup
	run.Go(func() {
		_ = f.Instances.Follow(ctx, func(revision int64) { began <- revision }, func(all []croft.Change) {
			for _, c := range all {
				changes <- c
			}
		})
	})
	t.Cleanup(func() { cancel(); run.Wait() })
	last := <-began
	next := func(what string, gone bool) {
		t.Helper()
		c := <-changes
		if c.Revision <= last || c.Instance != f.inst.ID || c.Project != f.inst.Project || c.Gone != gone {
			t.Fatalf("%s: got %+v after revision %d", what, c, last)
		}
		if c.Status.Instance.ID != f.inst.ID || c.Status.Instance.Name != f.inst.Name {
			t.Errorf("%s: it shows %+v", what, c.Status.Instance)
		}
		seen := c.Status.Observation
		if seen != nil != (what == "what its host saw") || seen != nil && seen.Generation != 1 {
			t.Errorf("%s: it shows the observation %+v", what, seen)
		}
		last = c.Revision
	}
	inst, err := f.Instances.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning))
	if err != nil {
		t.Fatal(err)
	}
	next("its order", false)
	if err := f.Orders.Observe(t.Context(), croft.Observation{Host: inst.Host, Instance: inst.ID, Generation: 1,
		State: croft.StateRunning}); err != nil {
		t.Fatal(err)
	}
	next("what its host saw", false)
	if err := f.Instances.Bury(t.Context(), inst, croft.Order{}); err != nil {
		t.Fatal(err)
	}
	next("its end", true)
}

func TestAllChangesOfARevisionComeTogetherAndInOneOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	quiet := croft.NewHostID()
	etcdtest.Must(0, f.Registry.PutHost(t.Context(), croft.Host{ID: quiet, Name: "h2", Token: "secret"}))(t)
	stop := f.live(t, quiet)
	var want []croft.InstanceID
	for i := range 20 {
		inst := etcdtest.Must(f.Instances.Create(t.Context(), etcdtest.NewInstance(fmt.Sprint("many", i))))(t)
		inst.Host = quiet
		order := f.order(1, croft.WantRunning)
		order.Host, order.Instance, order.Name = quiet, inst.ID, inst.Name
		etcdtest.Must(f.Instances.Assign(t.Context(), inst, order))(t)
		want = append(want, inst.ID)
	}
	slices.Sort(want)
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	t.Cleanup(func() { cancel(); run.Wait() })
	follow := func() <-chan []croft.Change {
		began, together := make(chan int64, 1), make(chan []croft.Change, 100)
		run.Go(func() {
			_ = f.Instances.Follow(ctx, func(revision int64) { began <- revision },
				func(all []croft.Change) { together <- all })
		})
		<-began
		return together
	}
	one, other := follow(), follow()
	inst := etcdtest.Must(f.Instances.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning)))(t)
	for i := range 5 {
		etcdtest.Must(0, f.Orders.Observe(t.Context(), croft.Observation{Host: inst.Host, Instance: inst.ID,
			Generation: int64(i + 1), State: croft.StateRunning}))(t)
	}
	stop()
	var last int64
	for {
		got, same := <-one, <-other
		if !reflect.DeepEqual(got, same) {
			t.Fatalf("one follower is told %v, and another one %v", got, same)
		}
		if got[0].Revision <= last {
			t.Fatalf("revision %d comes after %d", got[0].Revision, last)
		}
		last = got[0].Revision
		var ids []croft.InstanceID
		for _, c := range got {
			if ids = append(ids, c.Instance); c.Revision != last {
				t.Errorf("%d and %d come together", last, c.Revision)
			}
			if h := c.Status.Host; h == nil || h.ID != c.Status.Instance.Host || h.Token != "" {
				t.Errorf("it shows the host %+v", h)
			}
		}
		if slices.Equal(ids, want) {
			return // the host is silent, which concerns all its instances
		}
	}
}
