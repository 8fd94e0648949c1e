package etcdstore_test

import (
	"context"
	"sync"
	"testing"

	"croft"
)

func TestTheFeedTellsOfEachChangeAndItsProject(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx, cancel := context.WithCancel(t.Context())
	began, changes := make(chan int64, 1), make(chan croft.Change, 100)
	var run sync.WaitGroup
	run.Go(func() {
		_ = f.Instances.Follow(ctx, func(revision int64) { began <- revision }, func(c croft.Change) { changes <- c })
	})
	t.Cleanup(func() { cancel(); run.Wait() })
	last := <-began
	next := func(what string, gone bool) {
		t.Helper()
		c := <-changes
		if c.Revision <= last || c.Instance != f.inst.ID || c.Project != f.inst.Project || c.Gone != gone {
			t.Fatalf("%s: got %+v after revision %d", what, c, last)
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
