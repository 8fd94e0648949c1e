package etcdstore_test

import (
	"slices"
	"testing"

	"croft"
	"croft/etcdstore/etcdtest"
)

func TestAnInstanceIsRelocatedWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	f := scheduled(t)
	there := croft.NewHostID()
	tombstone, order := f.order(2, croft.WantGone), f.order(3, croft.WantRunning)
	order.Host = there

	_, err := f.Instances.Relocate(t.Context(), f.inst, tombstone, order)
	etcdtest.WantKind(t, err, croft.Unavailable) // no agent is alive there
	if err := f.Registry.PutHost(t.Context(), croft.Host{ID: there, Name: "h2"}); err != nil {
		t.Fatal(err)
	}
	f.live(t, there)
	moving := etcdtest.Must(f.Instances.SetMoving(t.Context(), f.inst, there))(t)
	_, err = f.Instances.Relocate(t.Context(), f.inst, tombstone, order)
	etcdtest.WantKind(t, err, croft.Conflict) // the record has changed
	if o := etcdtest.Must(f.Orders.Order(t.Context(), f.host, f.inst.ID))(t); o.Want != croft.WantRunning {
		t.Fatalf("got %v, want that nothing is ordered", o)
	}
	moved := etcdtest.Must(f.Instances.Relocate(t.Context(), moving, tombstone, order))(t)
	if moved.Host != there || moved.Moving != "" || moved.MovedFrom != f.host || moved.Generation != 3 {
		t.Errorf("got %+v", moved)
	}
	// What remains on the old host is removed without the record.
	if err := f.Orders.Forget(t.Context(), etcdtest.Must(f.Orders.Order(t.Context(), f.host,
		f.inst.ID))(t)); err != nil {
		t.Fatal(err)
	}
	if st := etcdtest.Must(f.Instances.Find(t.Context(), f.inst.Project,
		f.inst.Name))(t); st.Instance.Host != there || st.Order == nil {
		t.Errorf("got %+v", st)
	}
}

func TestAMoveRemembersEveryHostThatHasAnOrderStill(t *testing.T) {
	t.Parallel()
	f := scheduled(t)
	hosts := []croft.HostID{f.host}
	inst := f.inst
	move := func() croft.Order {
		t.Helper()
		to := croft.NewHostID()
		if err := f.Registry.PutHost(t.Context(), croft.Host{ID: to, Name: string(to)}); err != nil {
			t.Fatal(err)
		}
		f.live(t, to)
		tombstone, order := f.order(inst.Generation+1, croft.WantGone), f.order(inst.Generation+2, croft.WantRunning)
		tombstone.Host, order.Host = inst.Host, to
		inst = etcdtest.Must(f.Instances.Relocate(t.Context(), inst, tombstone, order))(t)
		hosts = append(hosts, to)
		order = etcdtest.Must(f.Orders.Order(t.Context(), to, inst.ID))(t)
		if !slices.Equal(order.Former(), inst.Former()) {
			t.Errorf("the order names %v, the record %v", order.Former(), inst.Former())
		}
		return order
	}
	move()
	move()
	if o := move(); !slices.Equal(o.Former(), []croft.HostID{hosts[2], hosts[1], hosts[0]}) {
		t.Errorf("after three moves: %v of %v", o.Former(), hosts)
	}
	if err := f.Orders.Forget(t.Context(), etcdtest.Must(f.Orders.Order(t.Context(), hosts[1],
		inst.ID))(t)); err != nil {
		t.Fatal(err)
	}
	if o := move(); !slices.Equal(o.Former(), []croft.HostID{hosts[3], hosts[2], hosts[0]}) {
		t.Errorf("after one tombstone was carried out: %v of %v", o.Former(), hosts)
	}
	if o := etcdtest.Must(f.Instances.Reorder(t.Context(), inst, f.order(inst.Generation+1,
		croft.WantStopped)))(t); len(o.Former()) != 3 {
		t.Errorf("a stop left %v", o.Former())
	}
}

func TestAnInstanceIsNotRelocatedToADrainedHostNorOverATombstone(t *testing.T) {
	t.Parallel()
	f := scheduled(t)
	there := croft.NewHostID()
	if err := f.Registry.PutHost(t.Context(), croft.Host{ID: there, Name: "h2"}); err != nil {
		t.Fatal(err)
	}
	f.live(t, there)
	tombstone, order := f.order(2, croft.WantGone), f.order(3, croft.WantRunning)
	order.Host = there
	if err := f.Registry.Drain(t.Context(), there); err != nil {
		t.Fatal(err)
	}
	_, err := f.Instances.Relocate(t.Context(), f.inst, tombstone, order)
	etcdtest.WantKind(t, err, croft.Unavailable)
	if err := f.Registry.Enable(t.Context(), there); err != nil {
		t.Fatal(err)
	}
	moved := etcdtest.Must(f.Instances.Relocate(t.Context(), f.inst, tombstone, order))(t)

	back, left := f.order(5, croft.WantRunning), f.order(4, croft.WantGone)
	left.Host = there
	_, err = f.Instances.Relocate(t.Context(), moved, left, back)
	etcdtest.WantKind(t, err, croft.Unavailable)
	if o := etcdtest.Must(f.Orders.Order(t.Context(), f.host,
		f.inst.ID))(t); o.Want != croft.WantGone || o.Generation != 2 {
		t.Errorf("got %+v, want the tombstone", o)
	}
}
