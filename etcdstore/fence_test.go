package etcdstore_test

import (
	"testing"
	"time"

	"croft"
	"croft/audit"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
)

func TestASchedulerWhoseSessionEndedOrdersNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := etcdtest.Open(t, f.server)
	f.inst = must(other.Create(t.Context(), newInstance("db")))(t)
	if err := other.Close(); err != nil { // what a suspended process finds when it goes on
		t.Fatal(err)
	}
	_, err := f.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning))
	wantKind(t, err, croft.Conflict)
	_, err = f.Order(t.Context(), f.host, f.inst.ID)
	wantKind(t, err, croft.NotFound)
}

// A command that does not know the outcome of its request must not keep agents from undoing it.
func TestARequestOfUnknownOutcomeIsAbandonedWhileItsProcessLives(t *testing.T) {
	f := newFixture(t)
	for name, unsettled := range map[string]func(*etcdstore.Store, croft.Instance) error{
		"create": func(s *etcdstore.Store, _ croft.Instance) error {
			_, err := s.Create(t.Context(), newInstance("late"))
			return err
		},
		"fence":   func(s *etcdstore.Store, i croft.Instance) error { _, err := s.Fence(t.Context(), i); return err },
		"discard": func(s *etcdstore.Store, i croft.Instance) error { return s.Discard(t.Context(), i) },
	} {
		t.Run(name, func(t *testing.T) {
			other, err := etcdstore.Open(t.Context(), etcdstore.Config{Embedded: f.server, SessionTTL: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = other.Close() })
			begun := must(other.Create(t.Context(), newInstance("db")))(t)
			other.LoseAnswer()
			wantKind(t, unsettled(other, begun), croft.Unavailable)
			after := must(other.Create(t.Context(), newInstance("after")))(t)
			if after.Session == begun.Session {
				t.Error("the session goes on")
			}
			for abandoned := false; !abandoned; {
				b := must(f.Evidence(t.Context()))(t)
				_, exists := b.Instances[begun.ID] // otherwise it was done, although its answer was lost
				abandoned = !exists
				for _, d := range audit.Compare(b) {
					abandoned = abandoned || d.Kind == audit.AbandonedRequest && d.Instance == begun.ID
					if d.Instance == after.ID {
						t.Fatalf("%+v, whose session lives", d)
					}
				}
				time.Sleep(20 * time.Millisecond)
			}
			for _, inst := range must(f.Evidence(t.Context()))(t).Instances {
				if err := f.Discard(t.Context(), inst); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestAssignWritesNothingOverAnOlderOrder(t *testing.T) {
	t.Parallel()
	f := scheduled(t)
	if err := f.Bury(t.Context(), f.inst, f.order(2, croft.WantGone)); err != nil {
		t.Fatal(err)
	}
	again := newInstance("again")
	again.ID = f.inst.ID
	f.inst = must(f.Create(t.Context(), again))(t)
	_, err := f.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning))
	wantKind(t, err, croft.Unavailable)
	if o := must(f.Order(t.Context(), f.host, f.inst.ID))(t); o.Want != croft.WantGone {
		t.Errorf("got %+v, want the tombstone", o)
	}
}

func TestForgetLeavesARecordThatHasJustChanged(t *testing.T) {
	t.Parallel()
	f := scheduled(t)
	f.inst = must(f.Reorder(t.Context(), f.inst, f.order(2, croft.WantGone)))(t)
	tombstone := must(f.Order(t.Context(), f.host, f.inst.ID))(t)
	slow := etcdtest.Open(t, f.server)
	slow.BeforeTxn(func() { must(f.Fence(t.Context(), f.inst))(t) })
	wantKind(t, slow.Forget(t.Context(), tombstone), croft.Conflict)
	if _, err := f.Find(t.Context(), f.inst.Project, f.inst.Name); err != nil {
		t.Error(err)
	}
	if err := slow.Forget(t.Context(), tombstone); err != nil {
		t.Fatal(err)
	}
	// An order that appears in between does not belong to this tombstone either.
	f = scheduled(t)
	if err := f.Bury(t.Context(), f.inst, f.order(2, croft.WantGone)); err != nil {
		t.Fatal(err)
	}
	tombstone = must(f.Order(t.Context(), f.host, f.inst.ID))(t)
	slow = etcdtest.Open(t, f.server)
	again := newInstance("again")
	again.ID = f.inst.ID
	slow.BeforeTxn(func() { must(f.Create(t.Context(), again))(t) })
	wantKind(t, slow.Forget(t.Context(), tombstone), croft.Conflict)
	if err := slow.Forget(t.Context(), tombstone); err != nil {
		t.Fatal(err)
	}
	must(f.Find(t.Context(), again.Project, "again"))(t)
}

func TestForgetLeavesNoObservation(t *testing.T) {
	t.Parallel()
	f := scheduled(t)
	if err := f.Observe(t.Context(), croft.Observation{Host: f.host, Instance: f.inst.ID, Generation: 1,
		State: croft.StateRunning}); err != nil {
		t.Fatal(err)
	}
	if b := must(f.HostEvidence(t.Context(), f.host))(t); len(b.Observations) != 1 ||
		b.Observations[0].State != croft.StateRunning {
		t.Errorf("the books of the host have %+v", b.Observations)
	}
	f.inst = must(f.Reorder(t.Context(), f.inst, f.order(2, croft.WantGone)))(t)
	if err := f.Forget(t.Context(), must(f.Order(t.Context(), f.host, f.inst.ID))(t)); err != nil {
		t.Fatal(err)
	}
	_, err := f.Observed(t.Context(), f.host, f.inst.ID)
	wantKind(t, err, croft.NotFound)
}

func TestAnInstanceIsNotRelocatedToADrainedHostNorOverATombstone(t *testing.T) {
	t.Parallel()
	f := scheduled(t)
	there := croft.NewHostID()
	if err := f.PutHost(t.Context(), croft.Host{ID: there, Name: "h2"}); err != nil {
		t.Fatal(err)
	}
	f.live(t, there)
	tombstone, order := f.order(2, croft.WantGone), f.order(3, croft.WantRunning)
	order.Host = there
	if err := f.Drain(t.Context(), there); err != nil {
		t.Fatal(err)
	}
	_, err := f.Relocate(t.Context(), f.inst, tombstone, order)
	wantKind(t, err, croft.Unavailable)
	if err := f.Enable(t.Context(), there); err != nil {
		t.Fatal(err)
	}
	moved := must(f.Relocate(t.Context(), f.inst, tombstone, order))(t)

	back, left := f.order(5, croft.WantRunning), f.order(4, croft.WantGone)
	left.Host = there
	_, err = f.Relocate(t.Context(), moved, left, back)
	wantKind(t, err, croft.Unavailable)
	if o := must(f.Order(t.Context(), f.host, f.inst.ID))(t); o.Want != croft.WantGone || o.Generation != 2 {
		t.Errorf("got %+v, want the tombstone", o)
	}
}
