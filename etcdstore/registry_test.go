package etcdstore_test

import (
	"context"
	"strings"
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

func TestTheLockOfAHostIsOnePlaces(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	host, known := croft.NewHostID(), make(chan struct{})
	serve := func(place string) (locks chan *croft.Agent, leave func()) {
		ctx, cancel := context.WithCancel(t.Context())
		locks, ended := make(chan *croft.Agent, 8), make(chan struct{})
		store := etcdtest.Open(t, f.server)
		go func() {
			defer close(ended)
			_ = store.Registry.Serve(ctx, croft.Agent{Host: host, Place: place, Name: place}, known,
				func(rival *croft.Agent) bool {
					locks <- rival
					return true
				})
		}()
		leave = func() { cancel(); <-ended }
		t.Cleanup(leave)
		return locks, leave
	}
	first, leave := serve("one")
	if rival := <-first; rival != nil {
		t.Fatalf("got the rival %v, want the lock", rival)
	}
	second, _ := serve("two")
	if rival := <-second; rival == nil || rival.Place != "one" {
		t.Fatalf("got %v, want to hear of the first", rival)
	}
	leave()
	if rival := <-second; rival != nil {
		t.Errorf("got the rival %v, want the lock that was left", rival)
	}
	again, _ := serve("two") // the successor of a killed process
	if rival := <-again; rival != nil {
		t.Errorf("got the rival %v, want the lock of the same place", rival)
	}
}

func TestADrainKeepsItsBeginning(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	raw := f.raw(t)
	const began = "2026-01-02T03:04:05Z"
	raw.put(t, "drained/"+string(f.host), began)
	if err := f.Registry.Drain(t.Context(), f.host); err != nil {
		t.Fatal(err)
	}
	if got := string(raw.get(t, "drained/"+string(f.host))); got != began {
		t.Errorf("a second drain wrote %s, want %s as before", got, began)
	}
}

func TestAHostIsAcceptedAsItsRecordWasRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	etcdtest.WantKind(t, f.Registry.Accept(t.Context(), croft.NewHostID()), croft.NotFound)
	back := croft.Host{ID: f.host, Name: "h1", Place: "there", Token: "secret"}
	late := etcdtest.Open(t, f.server)
	late.BeforeTxn(func() {
		if err := f.Registry.PutHost(t.Context(), back); err != nil {
			t.Error(err)
		}
	})
	etcdtest.WantKind(t, late.Registry.Accept(t.Context(), f.host), croft.Conflict)
	stored := func() croft.Host { return etcdtest.Must(f.Registry.Hosts(t.Context(), f.host))(t)[f.host] }
	if got := stored(); got.Place != "there" {
		t.Errorf("its agent has just come back, and its place is %q", got.Place)
	}
	if err := f.Registry.Accept(t.Context(), f.host); err != nil {
		t.Fatal(err)
	}
	if got := stored(); got.Place != "" || got.Name != "h1" || got.Token != "secret" {
		t.Errorf("got %+v, want the same host at no place", got)
	}
}

func TestOfAForgottenHostNothingIsLeftAndOfOthersEverything(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	raw := f.raw(t)
	gone, stays := string(croft.NewHostID()), string(croft.NewHostID())
	lost := string(croft.NewInstanceID())
	written := func(host string) []string {
		return []string{"control/" + host, "drained/" + host, "hosts/" + host, "joined/" + host, "joins/" + host,
			"observed/" + host + "/" + lost, "seen/" + host, "twins/" + host + "/place"}
	}
	for _, host := range []string{gone, stays} {
		for _, key := range written(host) {
			value := "{}"
			if strings.HasPrefix(key, "seen/") {
				value = "2026-01-02T03:04:05Z"
			}
			raw.put(t, key, value)
		}
		raw.put(t, "hosts/"+host, `{"id":"`+host+`","name":"`+host+`"}`)
		raw.put(t, "observed/"+host+"/"+lost, `{"host":"`+host+`","instance":"`+lost+`"}`)
		raw.put(t, "orders/"+host+"/"+lost, `{"host":"`+host+`","instance":"`+lost+`","want":"running"}`)
	}
	if err := f.Registry.ForgetHost(t.Context(), croft.HostID(gone)); err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{gone: false, stays: true} {
		for _, key := range append(written(host), "orders/"+host+"/"+lost) {
			if raw.has(t, key) != want {
				t.Errorf("%s is there: %v, want %v", key, !want, want)
			}
		}
	}
}
