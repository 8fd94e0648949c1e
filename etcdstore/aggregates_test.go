package etcdstore_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sync/errgroup"

	"croft"
	"croft/etcdstore/etcdtest"
	"croft/schedule"
	"croft/tenant/access"
	"croft/tenant/objects"
)

// TestConcurrentChangesOfAnAggregateAllCount adds and removes hosts through many connections at once.
func TestConcurrentChangesOfAnAggregateAllCount(t *testing.T) {
	t.Parallel()
	store := etcdtest.Start(t)
	ctx := t.Context()
	if _, err := store.Aggregates.Create(ctx, croft.Aggregate{Name: "ssd"}); err != nil {
		t.Fatal(err)
	}
	var all []croft.HostID
	var work errgroup.Group
	for i := range 20 {
		id := croft.NewHostID()
		all = append(all, id)
		work.Go(func() error {
			if err := store.Registry.PutHost(ctx, croft.Host{ID: id, Name: fmt.Sprint("host", i)}); err != nil {
				return err
			}
			_, err := store.Aggregates.Change(ctx, "ssd", croft.AggregateChange{Add: []croft.HostID{id}})
			if err == nil && i%2 == 0 {
				_, err = store.Aggregates.Change(ctx, "ssd", croft.AggregateChange{Remove: []croft.HostID{id}})
			}
			return err
		})
	}
	if err := work.Wait(); err != nil {
		t.Fatal(err)
	}
	a, err := store.Aggregates.Find(ctx, "ssd")
	if err != nil || len(a.Hosts) != 10 || !slices.IsSorted(a.Hosts) {
		t.Fatalf("got %+v, %v", a, err)
	}
	for i, id := range all {
		if a.Has(id) != (i%2 == 1) {
			t.Errorf("host %d is in it: %v", i, a.Has(id))
		}
	}
}

// TestAForgottenHostIsInNoAggregate forgets hosts while others add them to aggregates: in any order, no aggregate has a
// host that does not exist.
func TestAForgottenHostIsInNoAggregate(t *testing.T) {
	t.Parallel()
	store := etcdtest.Start(t)
	ctx := t.Context()
	const most = 70 // more than fit into one transaction
	for i := range most {
		if _, err := store.Aggregates.Create(ctx, croft.Aggregate{Name: fmt.Sprint("a", i)}); err != nil {
			t.Fatal(err)
		}
	}
	id := croft.NewHostID()
	if err := store.Registry.PutHost(ctx, croft.Host{ID: id, Name: "host1"}); err != nil {
		t.Fatal(err)
	}
	for i := range most / 2 {
		if _, err := store.Aggregates.Change(ctx, fmt.Sprint("a", i),
			croft.AggregateChange{Add: []croft.HostID{id}}); err != nil {
			t.Fatal(err)
		}
	}
	var work errgroup.Group
	for i := range most {
		work.Go(func() error {
			_, err := store.Aggregates.Change(ctx, fmt.Sprint("a", i), croft.AggregateChange{Add: []croft.HostID{id}})
			if errors.Is(err, croft.NotFound) {
				return nil
			}
			return err
		})
	}
	work.Go(func() error { return store.Registry.ForgetHost(ctx, id) })
	if err := work.Wait(); err != nil {
		t.Fatal(err)
	}
	all, err := store.Aggregates.List(ctx)
	if err != nil || len(all) != most {
		t.Fatalf("got %d aggregates, %v", len(all), err)
	}
	for _, a := range all {
		if len(a.Hosts) > 0 {
			t.Errorf("%s has %v", a.Name, a.Hosts)
		}
	}
}

// TestAnOrderNeedsTheAggregatesAsTheyWere: every way to write the first order on a host compares the data on which the
// choice of the host is based.
func TestAnOrderNeedsTheAggregatesAsTheyWere(t *testing.T) {
	t.Parallel()
	p := newPlacing(t)
	ctx := t.Context()
	ssd := etcdtest.Must(p.Aggregates.Create(ctx, croft.Aggregate{Name: "ssd", Hosts: []croft.HostID{p.host}}))(t)
	note := "changed"
	changed := etcdtest.Must(p.Aggregates.Change(ctx, "ssd", croft.AggregateChange{Note: &note}))(t)
	host := objects.Ref{Kind: objects.Host, ID: string(p.host)}
	operator := access.Caller{Roles: []access.Role{access.PartitionAdmin}}
	noted := etcdtest.Must(objects.New(p.Objects).Change(ctx, operator, access.Everything(), host,
		objects.Change{AddTags: []string{"new"}}))(t)
	older := noted.Generation - 1
	near := etcdtest.Must(p.Distances.Set(ctx, "network", croft.Distance{A: "ssd", B: "s"}, nil))(t)
	far := etcdtest.Must(p.Distances.Set(ctx, "network", croft.Distance{A: "ssd", B: "s", Distance: 9}, nil))(t)
	for _, c := range []struct {
		name    string
		basedOn map[string]int64
		noted   *int64
		stale   bool
	}{
		{"an older generation", map[string]int64{"ssd": ssd.Generation}, nil, true},
		{"one that was made since", map[string]int64{"ssd": 0}, nil, true},
		{"one that was removed since, and one as it was", map[string]int64{"gone": 7, "ssd": changed.Generation}, nil,
			true},
		{"other properties of the host", map[string]int64{"ssd": changed.Generation}, &older, true},
		{"older distances", map[string]int64{"distances/network": near}, nil, true},
		{"distances that were stated since", map[string]int64{"distances/network": 0}, nil, true},
		{"as they are", map[string]int64{"gone": 0, "ssd": changed.Generation, "distances/network": far,
			"distances/failure": 0}, &noted.Generation, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			judge := func(what string, err error) {
				t.Helper()
				if errors.Is(err, schedule.ErrStale) != c.stale || (err != nil) != c.stale {
					t.Errorf("%s: got %v, want stale %v", what, err, c.stale)
				}
			}
			inst := wanted(t, "placed")
			inst.BasedOn, inst.PropertiesGeneration = c.basedOn, c.noted
			_, err := p.place(ctx, p.placer, inst)
			judge("place", err)
			for _, name := range []string{"assigned", "held"} {
				inst := etcdtest.Must(p.Instances.Create(ctx, wanted(t, name)))(t)
				inst.BasedOn, inst.PropertiesGeneration = c.basedOn, c.noted
				if name == "held" {
					_, err = p.Instances.Hold(ctx, inst, p.host)
				} else {
					_, err = p.Instances.Assign(ctx, inst, schedule.NewOrder(p.Partition(), inst, p.host,
						croft.WantRunning))
				}
				judge(name, err)
				if c.stale {
					if err := p.Instances.Discard(ctx, inst); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
}

// TestAMoveNeedsTheAggregatesAsTheyWere tests the same for the order of a move to another host.
func TestAMoveNeedsTheAggregatesAsTheyWere(t *testing.T) {
	t.Parallel()
	f := scheduled(t)
	ctx := t.Context()
	there := croft.NewHostID()
	if err := f.Registry.PutHost(ctx, croft.Host{ID: there, Name: "h2"}); err != nil {
		t.Fatal(err)
	}
	f.live(t, there)
	ssd := etcdtest.Must(f.Aggregates.Create(ctx, croft.Aggregate{Name: "ssd", Hosts: []croft.HostID{there}}))(t)
	tombstone, order := f.order(2, croft.WantGone), f.order(3, croft.WantRunning)
	order.Host = there
	inst := f.inst
	inst.BasedOn = map[string]int64{"ssd": ssd.Generation - 1}
	if _, err := f.Instances.Relocate(ctx, inst, tombstone, order); !errors.Is(err, schedule.ErrStale) {
		t.Fatalf("got %v", err)
	}
	inst.BasedOn = map[string]int64{"ssd": ssd.Generation}
	old, none := int64(7), int64(0)
	inst.PropertiesGeneration = &old
	if _, err := f.Instances.Relocate(ctx, inst, tombstone, order); !errors.Is(err, schedule.ErrStale) {
		t.Fatalf("got %v", err)
	}
	inst.PropertiesGeneration = &none
	if moved, err := f.Instances.Relocate(ctx, inst, tombstone, order); err != nil || moved.Host != there {
		t.Fatalf("got %+v, %v", moved, err)
	}
}
