package etcdstore_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"croft"
	"croft/audit"
	"croft/etcdstore/etcdtest"
)

// scheduled returns a fixture whose instance has an order on its host.
func scheduled(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t)
	f.inst = must(f.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning)))(t)
	return f
}

func TestADrainedHostGetsNoOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for range 2 {
		if err := f.Drain(t.Context(), f.host); err != nil {
			t.Fatal(err)
		}
	}
	_, err := f.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning))
	wantKind(t, err, croft.Unavailable)
	for range 2 {
		if err := f.Enable(t.Context(), f.host); err != nil {
			t.Fatal(err)
		}
	}
	must(f.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning)))(t)
}

func TestAHostWithAnInstanceIsNotForgotten(t *testing.T) {
	t.Parallel()
	f := scheduled(t)
	wantKind(t, f.ForgetHost(t.Context(), f.host), croft.Conflict)
	if hosts := must(f.Hosts(t.Context()))(t); len(hosts) != 1 {
		t.Errorf("got %v, want the host", hosts)
	}
}

func TestOfAForgottenHostTombstonesStay(t *testing.T) {
	t.Parallel()
	f := scheduled(t)
	if err := f.Bury(t.Context(), f.inst, f.order(2, croft.WantGone)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := f.ForgetHost(t.Context(), f.host); err != nil {
			t.Fatal(err)
		}
	}
	if hosts := must(f.Hosts(t.Context()))(t); len(hosts) != 0 {
		t.Errorf("got %v, want no host", hosts)
	}
	if o := must(f.Order(t.Context(), f.host, f.inst.ID))(t); o.Want != croft.WantGone {
		t.Errorf("got %v, want the tombstone", o)
	}
}

func TestAnInstanceIsRelocatedWholeOrNotAtAll(t *testing.T) {
	t.Parallel()
	f := scheduled(t)
	there := croft.NewHostID()
	tombstone, order := f.order(2, croft.WantGone), f.order(3, croft.WantRunning)
	order.Host = there

	_, err := f.Relocate(t.Context(), f.inst, tombstone, order)
	wantKind(t, err, croft.Unavailable) // no agent is alive there
	if err := f.PutHost(t.Context(), croft.Host{ID: there, Name: "h2"}); err != nil {
		t.Fatal(err)
	}
	f.live(t, there)
	moving := must(f.SetMoving(t.Context(), f.inst, there))(t)
	_, err = f.Relocate(t.Context(), f.inst, tombstone, order)
	wantKind(t, err, croft.Conflict) // the record has changed
	if o := must(f.Order(t.Context(), f.host, f.inst.ID))(t); o.Want != croft.WantRunning {
		t.Fatalf("got %v, want that nothing is ordered", o)
	}
	moved := must(f.Relocate(t.Context(), moving, tombstone, order))(t)
	if moved.Host != there || moved.Moving != "" || moved.MovedFrom != f.host || moved.Generation != 3 {
		t.Errorf("got %+v", moved)
	}
	// What remains on the old host is removed without the record.
	if err := f.Forget(t.Context(), must(f.Order(t.Context(), f.host, f.inst.ID))(t)); err != nil {
		t.Fatal(err)
	}
	if st := must(f.Find(t.Context(), f.inst.Project, f.inst.Name))(t); st.Instance.Host != there || st.Order == nil {
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
		if err := f.PutHost(t.Context(), croft.Host{ID: to, Name: string(to)}); err != nil {
			t.Fatal(err)
		}
		f.live(t, to)
		tombstone, order := f.order(inst.Generation+1, croft.WantGone), f.order(inst.Generation+2, croft.WantRunning)
		tombstone.Host, order.Host = inst.Host, to
		inst = must(f.Relocate(t.Context(), inst, tombstone, order))(t)
		hosts = append(hosts, to)
		order = must(f.Order(t.Context(), to, inst.ID))(t)
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
	if err := f.Forget(t.Context(), must(f.Order(t.Context(), hosts[1], inst.ID))(t)); err != nil {
		t.Fatal(err)
	}
	if o := move(); !slices.Equal(o.Former(), []croft.HostID{hosts[3], hosts[2], hosts[0]}) {
		t.Errorf("after one tombstone was carried out: %v of %v", o.Former(), hosts)
	}
	if o := must(f.Reorder(t.Context(), inst, f.order(inst.Generation+1, croft.WantStopped)))(t); len(o.Former()) != 3 {
		t.Errorf("a stop left %v", o.Former())
	}
}

func TestTheTurnIsOneAgentsAtATime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := etcdtest.Open(t, f.server)
	if !must(f.TakeTurn(t.Context(), time.Hour))(t) {
		t.Fatal("nobody had the turn, and it was not given")
	}
	if must(other.TakeTurn(t.Context(), time.Hour))(t) || must(f.TakeTurn(t.Context(), time.Hour))(t) {
		t.Error("the turn was given twice")
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
			_ = store.Serve(ctx, croft.Agent{Host: host, Place: place, Name: place}, known,
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

func TestOnlyWhatIsLostIsDropped(t *testing.T) {
	t.Parallel()
	f := scheduled(t)
	for _, d := range []audit.Difference{
		{Kind: audit.LostName, Project: f.inst.Project, Name: f.inst.Name, Revision: 1},
		{Kind: audit.LostOrder, Host: f.host, Instance: f.inst.ID, Revision: f.inst.Revision},
		{Kind: audit.LostObservation, Host: f.host, Instance: f.inst.ID},
	} {
		if err := f.Drop(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	if st := must(f.Find(t.Context(), f.inst.Project, f.inst.Name))(t); st.Order == nil {
		t.Error("an order that is not lost is gone")
	}
	wantKind(t, f.Drop(t.Context(), audit.Difference{Kind: audit.StrayGuest}), croft.Invalid)
}

func TestMembershipsAreFoundAndMended(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	raw := f.raw(t)
	inst := newInstance("member")
	a := croft.Affinity{Group: "g", Rule: croft.Apart}
	inst.Spec.Affinities = []croft.Affinity{a}
	f.inst = must(f.Create(t.Context(), inst))(t)
	f.inst = must(f.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning)))(t)
	if found := f.compare(t); len(found) != 0 {
		t.Fatalf("a group as it should be: %+v", found)
	}
	key := raw.keys(t, "groups/")[0][len(raw.prefix):]
	must(raw.Delete(t.Context(), raw.prefix+key))(t)
	raw.put(t, "groups/default/g/anti-affinity/"+string(f.host)+"/"+string(croft.NewInstanceID()), "ghost")
	found := f.compare(t)
	if len(found) != 2 {
		t.Fatalf("found %+v, want a lost membership and a missing one", found)
	}
	for _, d := range found {
		var err error
		if d.Kind == audit.LostMember {
			err = f.Drop(t.Context(), d)
		} else {
			err = f.PutMember(t.Context(), f.inst)
		}
		if err != nil {
			t.Errorf("%s: %v", d.Kind, err)
		}
	}
	if keys := raw.keys(t, "groups/"); len(keys) != 1 || keys[0] != raw.prefix+key {
		t.Errorf("the group has %s, want %s", keys, key)
	}
	stale := f.inst
	stale.Revision--
	wantKind(t, f.PutMember(t.Context(), stale), croft.Conflict)
}

// compare returns the differences in memberships.
func (f *fixture) compare(t *testing.T) (found []audit.Difference) {
	t.Helper()
	for _, d := range audit.Compare(must(f.Evidence(t.Context()))(t)) {
		if d.Affinity != nil {
			found = append(found, d)
		}
	}
	return found
}
