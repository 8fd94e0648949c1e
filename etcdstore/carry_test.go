package etcdstore_test

import (
	"testing"

	"croft"
	"croft/etcdstore/etcdtest"
)

// addHost adds a host that is alive.
func (f *fixture) addHost(t *testing.T, name string) croft.HostID {
	t.Helper()
	id := croft.NewHostID()
	if err := f.Registry.PutHost(t.Context(), croft.Host{ID: id, Name: name}); err != nil {
		t.Fatal(err)
	}
	f.live(t, id)
	return id
}

// carry moves the instance with its disk to another host, as far as its arrival, and returns its order there.
func (f *fixture) carry(t *testing.T, to croft.HostID) croft.Order {
	t.Helper()
	from := f.inst.Host
	moving := etcdtest.Must(f.Instances.SetMoving(t.Context(), f.inst, to))(t)
	leaving, arriving := f.carryOrders(moving, to)
	etcdtest.Must(f.Instances.Carry(t.Context(), moving, leaving, arriving))(t)
	arriving = etcdtest.Must(f.Orders.Order(t.Context(), to, f.inst.ID))(t)
	if err := f.Orders.Arrived(t.Context(), arriving, ""); err != nil {
		t.Fatal(err)
	}
	f.inst = etcdtest.Must(f.Instances.Instance(t.Context(), f.inst.ID))(t)
	if f.inst.Host != to || f.inst.MovedFrom != from {
		t.Fatalf("it did not arrive: %+v", f.inst)
	}
	return etcdtest.Must(f.Orders.Order(t.Context(), to, f.inst.ID))(t)
}

// carryOrders returns the orders by which an instance moves with its disk.
func (f *fixture) carryOrders(moving croft.Instance, to croft.HostID) (leaving, arriving croft.Order) {
	leaving = f.order(moving.Generation+1, croft.WantLeaving)
	arriving = f.order(moving.Generation+2, croft.WantArriving)
	leaving.Host, leaving.Move = moving.Host, &croft.Move{Host: to, Then: croft.WantRunning, Key: "key"}
	arriving.Host, arriving.Move = to, &croft.Move{Host: moving.Host, Then: croft.WantRunning, Key: "key"}
	return leaving, arriving
}

func (f *fixture) wantOrder(t *testing.T, host croft.HostID, want croft.Want) {
	t.Helper()
	o, err := f.Orders.Order(t.Context(), host, f.inst.ID)
	if err != nil || o.Want != want || want != croft.WantLeaving && o.Move != nil {
		t.Errorf("the order is %+v, %v; want one with the goal %s", o, err, want)
	}
}

// Between arrival and hand-over, the former host has an order to leave that only a hand-over ends. Each transaction
// that prevents the hand-over ends that order: otherwise it, the guest and its disk stay forever.
func TestNoOrderToLeaveOutlivesItsMove(t *testing.T) {
	t.Parallel()
	at := func(f *fixture, o croft.Order) croft.Order {
		o.Host, o.MovedFrom = f.inst.Host, f.inst.MovedFrom
		return o
	}
	for what, test := range map[string]struct {
		end  func(t *testing.T, f *fixture)
		want croft.Want
	}{
		"it stays until the hand-over": {func(*testing.T, *fixture) {}, croft.WantLeaving},
		"stop": {func(t *testing.T, f *fixture) {
			etcdtest.Must(f.Instances.Reorder(t.Context(), f.inst, at(f, f.order(9, croft.WantStopped))))(t)
		}, croft.WantLeaving},
		"hand-over": {func(t *testing.T, f *fixture) {
			o := etcdtest.Must(f.Orders.Order(t.Context(), f.inst.Host, f.inst.ID))(t)
			if err := f.Orders.HandOver(t.Context(), o); err != nil {
				t.Error(err)
			}
		}, croft.WantGone},
		"hand-over by an old order": {func(t *testing.T, f *fixture) {
			o := etcdtest.Must(f.Orders.Order(t.Context(), f.inst.Host, f.inst.ID))(t)
			etcdtest.Must(f.Instances.Reorder(t.Context(), f.inst, at(f, f.order(9, croft.WantStopped))))(t)
			etcdtest.WantKind(t, f.Orders.HandOver(t.Context(), o), croft.Conflict)
		}, croft.WantLeaving},
		"destroy": {func(t *testing.T, f *fixture) {
			etcdtest.Must(f.Instances.Reorder(t.Context(), f.inst, at(f, f.order(9, croft.WantGone))))(t)
		}, croft.WantGone},
		"destroy by force": {func(t *testing.T, f *fixture) {
			if err := f.Instances.Bury(t.Context(), f.inst, at(f, f.order(9, croft.WantGone))); err != nil {
				t.Error(err)
			}
		}, croft.WantGone},
		"rebuild": {func(t *testing.T, f *fixture) {
			o := at(f, f.order(9, croft.WantRunning))
			o.Rebuilt = 9
			etcdtest.Must(f.Instances.Reorder(t.Context(), f.inst, o))(t)
		}, croft.WantGone},
		"move without its disk": {func(t *testing.T, f *fixture) {
			order := f.order(10, croft.WantRunning)
			order.Host = f.addHost(t, "h3")
			etcdtest.Must(f.Instances.Relocate(t.Context(), f.inst, at(f, f.order(9, croft.WantGone)), order))(t)
		}, croft.WantGone},
		"move with its disk": {func(t *testing.T, f *fixture) {
			now := f.inst.Host
			f.carry(t, f.addHost(t, "h3"))
			f.wantOrder(t, now, croft.WantLeaving)
		}, croft.WantGone},
		"loss": {func(t *testing.T, f *fixture) {
			lost := croft.Loss{Host: f.inst.Host}
			f.inst = etcdtest.Must(f.Instances.Lose(t.Context(), f.inst, lost, at(f, f.order(9, croft.WantLeft))))(t)
			if etcdtest.Must(f.Orders.Remains(t.Context(), f.host, f.inst.ID))(t) {
				t.Error("the instance cannot be recreated: it waits for a disk that is kept")
			}
		}, croft.WantLeft},
		"destroy after the loss": {func(t *testing.T, f *fixture) {
			here := f.inst.Host
			lost := croft.Loss{Host: here}
			f.inst = etcdtest.Must(f.Instances.Lose(t.Context(), f.inst, lost, at(f, f.order(9, croft.WantLeft))))(t)
			gone := f.order(10, croft.WantGone)
			gone.Host = here
			if err := f.Instances.Bury(t.Context(), f.inst, gone); err != nil {
				t.Error(err)
			}
			f.wantOrder(t, here, croft.WantGone)
		}, croft.WantGone},
		"hand-over after the loss": {func(t *testing.T, f *fixture) {
			lost := croft.Loss{Host: f.inst.Host}
			f.inst = etcdtest.Must(f.Instances.Lose(t.Context(), f.inst, lost, at(f, f.order(9, croft.WantLeft))))(t)
			f.inst = etcdtest.Must(f.Instances.Recreate(t.Context(), f.inst))(t)
			again := f.order(10, croft.WantRunning)
			again.Host, again.MovedFrom = f.addHost(t, "h3"), f.inst.MovedFrom
			f.inst = etcdtest.Must(f.Instances.Assign(t.Context(), f.inst, again))(t)
			again = etcdtest.Must(f.Orders.Order(t.Context(), f.inst.Host, f.inst.ID))(t)
			if err := f.Orders.HandOver(t.Context(), again); err != nil {
				t.Error(err)
			}
		}, croft.WantLeft},
		"hand-over after the former host was forgotten": {func(t *testing.T, f *fixture) {
			o := etcdtest.Must(f.Orders.Order(t.Context(), f.inst.Host, f.inst.ID))(t)
			if err := f.Registry.ForgetHost(t.Context(), f.host); err != nil {
				t.Fatal(err)
			}
			if err := f.Orders.HandOver(t.Context(), o); err != nil {
				t.Error(err)
			}
		}, croft.WantGone},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := scheduled(t)
			f.carry(t, f.addHost(t, "h2"))
			test.end(t, f)
			f.wantOrder(t, f.host, test.want)
		})
	}
}
