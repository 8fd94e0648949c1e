package etcdstore_test

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
)

// follow follows the instances of a store until end is called, and returns once that has begun.
func follow(t *testing.T, s *etcdstore.Store) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	began := make(chan struct{}, 10)
	var run sync.WaitGroup
	run.Go(func() {
		_ = s.Instances.Follow(ctx, func(int64) { began <- struct{}{} }, func([]croft.Change) {})
	})
	<-began
	end = func() { cancel(); run.Wait() }
	t.Cleanup(end)
	return end
}

// seen describes what lists show of instances.
func seen(all []*croft.Status) (words []string) {
	for _, st := range all {
		inst := st.Instance
		word := fmt.Sprintf("%s %s %s at %d", inst.Name, inst.State, inst.Host, inst.Revision)
		if st.Observation != nil {
			word += " " + string(st.Observation.State)
		}
		if st.Host != nil {
			word += fmt.Sprint(" on ", st.Host.Name, " ", st.Host.Alive)
		}
		words = append(words, word)
	}
	return words
}

func TestTheOverviewHasEveryWriteBefore(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := etcdtest.Open(t, f.server) // writes through another connection
	end := follow(t, f.Store)
	check := func(what string) {
		t.Helper()
		listed, err := other.Instances.List(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		var want []*croft.Status
		for i := range listed {
			want = append(want, &listed[i])
		}
		slices.SortFunc(want, func(a, b *croft.Status) int { return cmp.Compare(a.Instance.Name, b.Instance.Name) })
		got, err := f.Instances.Overview(t.Context(), "")
		if err != nil || !slices.Equal(seen(got), seen(want)) {
			t.Errorf("%s: got %q, want %q, %v", what, seen(got), seen(want), err)
		}
	}
	check("at first")
	inst := etcdtest.Must(other.Instances.Instance(t.Context(), f.inst.ID))(t)
	inst = etcdtest.Must(other.Instances.Assign(t.Context(), inst, f.order(1, croft.WantRunning)))(t)
	check("with a host")
	for n := range 20 {
		state := []croft.State{croft.StateBooting, croft.StateRunning}[n%2]
		if err := other.Orders.Observe(t.Context(), croft.Observation{Host: inst.Host, Instance: inst.ID,
			Generation: 1, State: state}); err != nil {
			t.Fatal(err)
		}
		check(string(state))
		renamed := croft.Host{ID: f.host, Name: fmt.Sprint("renamed", n)}
		if err := other.Registry.PutHost(t.Context(), renamed); err != nil {
			t.Fatal(err)
		}
		check("a host with another name")
		another := etcdtest.NewInstance(fmt.Sprintf("vm%02d", 20-n))
		etcdtest.Must(other.Instances.Create(t.Context(), another))(t)
		check("another instance")
	}
	elsewhere := etcdtest.NewInstance("elsewhere")
	elsewhere.Project = "elsewhere"
	etcdtest.Must(other.Instances.Create(t.Context(), elsewhere))(t)
	for range 2 { // with the copy, and without it
		got, err := f.Instances.Overview(t.Context(), "elsewhere")
		if err != nil || len(got) != 1 || got[0].Instance.ID != elsewhere.ID {
			t.Errorf("the overview of a project has %q, %v", seen(got), err)
		}
		end()
		check("without a copy")
	}
}

func TestSomeInstancesAreReadInTheirOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	second := etcdtest.Must(f.Instances.Create(t.Context(), etcdtest.NewInstance("second")))(t)
	got, err := f.Instances.Some(t.Context(), []croft.InstanceID{second.ID, croft.NewInstanceID(), f.inst.ID})
	if err != nil || len(got) != 2 || got[0].Instance.ID != second.ID || got[1].Instance.ID != f.inst.ID {
		t.Errorf("got %+v, %v", got, err)
	}
	if got, err := f.Instances.Some(t.Context(), nil); err != nil || len(got) > 0 {
		t.Errorf("none are %+v, %v", got, err)
	}
}

func TestTheCopyOfTheHostsHasEveryWriteBefore(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := etcdtest.Open(t, f.server) // writes, and reads without a copy
	end := follow(t, f.Store)
	check := func(what string) {
		t.Helper()
		want := etcdtest.Must(other.Registry.Hosts(t.Context()))(t)
		if got, err := f.Registry.Hosts(t.Context()); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, want %+v, %v", what, got, want, err)
		}
	}
	do := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		check(what)
	}
	ctx := t.Context()
	check("at first")
	for n := range 10 {
		do("renamed", other.Registry.PutHost(ctx, croft.Host{ID: f.host, Name: fmt.Sprint("renamed", n)}))
		do("drained", other.Registry.Drain(ctx, f.host))
		do("enabled", other.Registry.Enable(ctx, f.host))
	}
	second := croft.Host{ID: croft.NewHostID(), Name: "second"}
	do("added", other.Registry.PutHost(ctx, second))
	death, err := other.Registry.BeginDeath(ctx, second.ID)
	do("fenced", err)
	do("taken back", other.Registry.EndDeath(ctx, second.ID, death))
	do("forgotten", other.Registry.ForgetHost(ctx, second.ID))
	if hosts := etcdtest.Must(f.Registry.Hosts(ctx))(t); len(hosts) != 1 {
		t.Errorf("%d hosts are left", len(hosts))
	}
	end()
	do("without a copy", other.Registry.Drain(ctx, f.host))
}
