package computetest

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"croft"
)

// woken watches the host's orders and returns the channel of woken instances.
func (s *stage) woken() <-chan croft.InstanceID {
	woken := make(chan croft.InstanceID, 1000)
	s.background(func(ctx context.Context) {
		_ = s.Agent.WatchOrders(ctx, s.Host, func(id croft.InstanceID) { woken <- id })
	})
	return woken
}

// await waits for an instance's wake. Other instances may be woken too: a wake carries no data.
func (s *stage) await(woken <-chan croft.InstanceID, id croft.InstanceID) {
	s.t.Helper()
	late := time.After(patience)
	for {
		select {
		case got := <-woken:
			if got == id {
				return
			}
		case <-late:
			s.t.Fatalf("never woken for instance %s", id)
		}
	}
}

func testWatch(s *stage) {
	s.live(s.Host)
	there := s.request()
	woken := s.woken()
	s.await(woken, there.ID)
	comes := s.request()
	s.await(woken, comes.ID)
	s.condemn(comes)
	s.await(woken, comes.ID)
	o, err := s.Others.Order(s.ctx(), s.Host, comes.ID)
	s.check(err)
	s.check(s.Others.Forget(s.ctx(), o))
	s.await(woken, comes.ID)
}

func testWatchBroken(s *stage) {
	s.live(s.Host)
	goes := s.request()
	woken := s.woken()
	s.await(woken, goes.ID)
	s.Break()
	goes = s.condemn(goes)
	o, err := s.Others.Order(s.ctx(), s.Host, goes.ID)
	s.check(err)
	s.check(s.Others.Forget(s.ctx(), o))
	comes := s.request()
	s.await(woken, comes.ID)
	s.Break()
	s.condemn(comes)
	s.await(woken, comes.ID)
}

func testOrder(s *stage) {
	s.live(s.Host)
	inst := s.request()
	want, err := s.Others.Order(s.ctx(), s.Host, inst.ID)
	s.check(err)
	got, err := s.Agent.Order(s.ctx(), s.Host, inst.ID)
	s.check(err)
	if diff := cmp.Diff(want, got); diff != "" || got.Revision == 0 {
		s.t.Errorf("revision %d, order:\n%s", got.Revision, diff)
	}
	if !slices.Equal(got.Spec.UserData, inst.Spec.UserData) {
		s.t.Errorf("the order comes with the user-data %q, want %q", got.Spec.UserData, inst.Spec.UserData)
	}
	_, err = s.Agent.Order(s.ctx(), s.Host, croft.NewInstanceID())
	s.want(err, croft.NotFound)
}

func testObserve(s *stage) {
	s.live(s.Host)
	inst := s.request()
	_, err := s.Agent.Observed(s.ctx(), s.Host, inst.ID)
	s.want(err, croft.NotFound)
	seen := croft.Observation{
		Host: s.Host, Instance: inst.ID, Generation: 1, State: croft.StateFailed,
		Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.7")},
		MAC:       "52:54:00:00:00:01", Progress: &croft.Progress{Done: 1, Total: 2},
		Error:     "it is broken: \"so\" what",
		ErrorKind: croft.Unavailable,
		Updated:   time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
		Events:    []croft.Event{{Name: croft.EventImage, At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}},
		CloudInit: &croft.CloudInit{State: croft.CloudInitFailed, At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
			Error: "no"}, Password: "c2VjcmV0",
	}
	s.check(s.Agent.Observe(s.ctx(), seen))
	got, err := s.Agent.Observed(s.ctx(), s.Host, inst.ID)
	s.check(err)
	if diff := cmp.Diff(seen, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		s.t.Errorf("observation:\n%s", diff)
	}
	seen.Instance = croft.NewInstanceID()
	s.want(s.Agent.Observe(s.ctx(), seen), croft.Conflict)
}

// An observation of an earlier order that arrives late is not accepted for the order of a later instance with the same
// UUID.
func testLateObserve(s *stage) {
	s.live(s.Host)
	inst := s.request()
	first, err := s.Agent.Order(s.ctx(), s.Host, inst.ID)
	s.check(err)
	late := croft.Observation{Host: s.Host, Instance: inst.ID, Generation: 1, OrderCreated: first.CreateRevision,
		State: croft.StateRunning, Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.7")}}
	s.check(s.Agent.Observe(s.ctx(), late))
	s.condemn(inst)
	s.check(s.Agent.Observe(s.ctx(), late)) // a changed order counts as the same order
	tombstone, err := s.Agent.Order(s.ctx(), s.Host, inst.ID)
	s.check(err)
	if tombstone.CreateRevision != first.CreateRevision || first.CreateRevision == 0 {
		s.t.Errorf("the order was created at %d, and after a change at %d",
			first.CreateRevision, tombstone.CreateRevision)
	}
	s.check(s.Agent.Forget(s.ctx(), tombstone))

	s.requestWith(inst.ID)
	s.want(s.Agent.Observe(s.ctx(), late), croft.Conflict)
	_, err = s.Agent.Observed(s.ctx(), s.Host, inst.ID)
	s.want(err, croft.NotFound)
	second, err := s.Agent.Order(s.ctx(), s.Host, inst.ID)
	s.check(err)
	late.OrderCreated = second.CreateRevision
	s.check(s.Agent.Observe(s.ctx(), late))
}

func testForget(s *stage) {
	s.live(s.Host)
	inst := s.request()
	s.check(s.Agent.Observe(s.ctx(), croft.Observation{Host: s.Host, Instance: inst.ID, State: croft.StateRunning}))
	s.condemn(inst)
	tombstone, err := s.Agent.Order(s.ctx(), s.Host, inst.ID)
	s.check(err)
	stale := tombstone
	stale.Revision--
	s.want(s.Agent.Forget(s.ctx(), stale), croft.Conflict)
	s.check(s.Agent.Forget(s.ctx(), tombstone))
	s.want(s.Agent.Forget(s.ctx(), tombstone), croft.Conflict)
	_, err = s.Agent.Order(s.ctx(), s.Host, inst.ID)
	s.want(err, croft.NotFound)
	_, err = s.Agent.Observed(s.ctx(), s.Host, inst.ID)
	s.want(err, croft.NotFound)
	_, err = s.Agent.Instance(s.ctx(), inst.ID)
	s.want(err, croft.NotFound)
	_, err = s.Others.Find(s.ctx(), inst.Project, inst.Name)
	s.want(err, croft.NotFound)
}

// moved moves an instance here from another host and leaves the tombstone there.
func (s *stage) moved() (inst croft.Instance, from croft.HostID) {
	s.t.Helper()
	from = croft.NewHostID()
	s.live(from)
	s.live(s.Host)
	inst = s.record()
	there := s.order(inst, croft.WantRunning)
	there.Host = from
	inst, err := s.Others.Assign(s.ctx(), inst, there)
	s.check(err)
	tombstone, here := s.order(inst, croft.WantGone), s.order(inst, croft.WantRunning)
	tombstone.Host = from
	here.Generation++
	inst, err = s.Others.Relocate(s.ctx(), inst, tombstone, here)
	s.check(err)
	return inst, from
}

func testForgetMoved(s *stage) {
	there := croft.NewHostID()
	s.live(s.Host)
	s.live(there)
	inst := s.request()
	tombstone, order := s.order(inst, croft.WantGone), s.order(inst, croft.WantRunning)
	order.Host = there
	_, err := s.Others.Relocate(s.ctx(), inst, tombstone, order)
	s.check(err)
	tombstone, err = s.Agent.Order(s.ctx(), s.Host, inst.ID)
	s.check(err)
	whose, err := s.Agent.Instance(s.ctx(), inst.ID)
	s.check(err)
	if whose.Host != there {
		s.t.Errorf("it is said to be on host %s, and is on %s", whose.Host, there)
	}
	s.check(s.Agent.Forget(s.ctx(), tombstone))
	if _, err := s.Others.Find(s.ctx(), inst.Project, inst.Name); err != nil {
		s.t.Errorf("the instance went with the tombstone: %v", err)
	}
}

func testMoved(s *stage) {
	inst, from := s.moved()
	remains := func() bool {
		s.t.Helper()
		is, err := s.Agent.Remains(s.ctx(), from, inst.ID)
		s.check(err)
		return is
	}
	if !remains() {
		s.t.Error("the tombstone there is not told of")
	}
	tombstone, err := s.Others.Order(s.ctx(), from, inst.ID)
	s.check(err)
	s.check(s.Others.Forget(s.ctx(), tombstone))
	if remains() {
		s.t.Error("a tombstone that was carried out is told of")
	}
}

func testMovedFromForgotten(s *stage) {
	inst, from := s.moved()
	s.check(s.Others.ForgetHost(s.ctx(), from))
	if remains, err := s.Agent.Remains(s.ctx(), from, inst.ID); err != nil || remains {
		s.t.Errorf("a forgotten host is waited for: %v, %v", remains, err)
	}
	if _, err := s.Others.Order(s.ctx(), from, inst.ID); err != nil {
		s.t.Errorf("its tombstone is gone: %v", err)
	}
}
