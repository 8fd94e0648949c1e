package etcdstore_test

import (
	"context"
	"testing"

	"croft"
	"croft/etcdstore/etcdtest"
)

func TestADrainedHostGetsNoOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for range 2 {
		if err := f.Registry.Drain(t.Context(), f.host); err != nil {
			t.Fatal(err)
		}
	}
	_, err := f.Instances.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning))
	etcdtest.WantKind(t, err, croft.Unavailable)
	for range 2 {
		if err := f.Registry.Enable(t.Context(), f.host); err != nil {
			t.Fatal(err)
		}
	}
	etcdtest.Must(f.Instances.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning)))(t)
}

func TestAHostWithAnInstanceIsNotForgotten(t *testing.T) {
	t.Parallel()
	f := scheduled(t)
	etcdtest.WantKind(t, f.Registry.ForgetHost(t.Context(), f.host), croft.Conflict)
	if hosts := etcdtest.Must(f.Registry.Hosts(t.Context()))(t); len(hosts) != 1 {
		t.Errorf("got %v, want the host", hosts)
	}
}

func TestOfAForgottenHostTombstonesStay(t *testing.T) {
	t.Parallel()
	f := scheduled(t)
	if err := f.Instances.Bury(t.Context(), f.inst, f.order(2, croft.WantGone)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.Registry.ForgetHost(t.Context(), f.host); err != nil {
			t.Fatal(err)
		}
	}
	if hosts := etcdtest.Must(f.Registry.Hosts(t.Context()))(t); len(hosts) != 0 {
		t.Errorf("got %v, want no host", hosts)
	}
	if o := etcdtest.Must(f.Orders.Order(t.Context(), f.host, f.inst.ID))(t); o.Want != croft.WantGone {
		t.Errorf("got %v, want the tombstone", o)
	}
}

func TestTheSeatOfAHostIsOnePlaces(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	host, known := croft.NewHostID(), make(chan struct{})
	serve := func(place string) (seats chan *croft.Agent, leave func()) {
		ctx, cancel := context.WithCancel(t.Context())
		seats, ended := make(chan *croft.Agent, 8), make(chan struct{})
		store := etcdtest.Open(t, f.server)
		go func() {
			defer close(ended)
			_ = store.Registry.Serve(ctx, croft.Agent{Host: host, Place: place, Name: place}, known,
				func(rival *croft.Agent) bool {
					seats <- rival
					return true
				})
		}()
		leave = func() { cancel(); <-ended }
		t.Cleanup(leave)
		return seats, leave
	}
	first, leave := serve("one")
	if rival := <-first; rival != nil {
		t.Fatalf("got the rival %v, want the seat", rival)
	}
	second, _ := serve("two")
	if rival := <-second; rival == nil || rival.Place != "one" {
		t.Fatalf("got %v, want to hear of the first", rival)
	}
	leave()
	if rival := <-second; rival != nil {
		t.Errorf("got the rival %v, want the seat that was left", rival)
	}
	again, _ := serve("two") // the successor of a killed process
	if rival := <-again; rival != nil {
		t.Errorf("got the rival %v, want the seat of the same place", rival)
	}
}
