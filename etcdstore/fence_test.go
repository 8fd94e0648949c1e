package etcdstore_test

import (
	"testing"
	"time"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
	"croft/hosts/audit"
)

func TestASchedulerWhoseSessionEndedOrdersNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := etcdtest.Open(t, f.server)
	f.inst = etcdtest.Must(other.Instances.Create(t.Context(), etcdtest.NewInstance("db")))(t)
	if err := other.Close(); err != nil { // the state that a suspended process finds when it continues
		t.Fatal(err)
	}
	_, err := f.Instances.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning))
	etcdtest.WantKind(t, err, croft.Conflict)
	_, err = f.Orders.Order(t.Context(), f.host, f.inst.ID)
	etcdtest.WantKind(t, err, croft.NotFound)
}

// A command that does not know the outcome of its request must not keep agents from undoing the request.
func TestARequestOfUnknownOutcomeIsAbandonedWhileItsProcessLives(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for name, unsettled := range map[string]func(*etcdstore.Store, croft.Instance) error{
		"create": func(s *etcdstore.Store, _ croft.Instance) error {
			_, err := s.Instances.Create(t.Context(), etcdtest.NewInstance("late"))
			return err
		},
		"fence": func(s *etcdstore.Store, i croft.Instance) error {
			_, err := s.Instances.Fence(t.Context(), i)
			return err
		},
		"discard": func(s *etcdstore.Store, i croft.Instance) error { return s.Instances.Discard(t.Context(), i) },
	} {
		t.Run(name, func(t *testing.T) {
			other, err := etcdstore.Open(t.Context(), etcdstore.Config{Embedded: f.server, SessionTTL: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = other.Close() })
			begun := etcdtest.Must(other.Instances.Create(t.Context(), etcdtest.NewInstance("db")))(t)
			other.LoseAnswer()
			etcdtest.WantKind(t, unsettled(other, begun), croft.Unavailable)
			after := etcdtest.Must(other.Instances.Create(t.Context(), etcdtest.NewInstance("after")))(t)
			if after.Session == begun.Session {
				t.Error("the session goes on")
			}
			for abandoned := false; !abandoned; {
				b := etcdtest.Must(f.Records.Evidence(t.Context()))(t)
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
			for _, inst := range etcdtest.Must(f.Records.Evidence(t.Context()))(t).Instances {
				if err := f.Instances.Discard(t.Context(), inst); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestAssignWritesNothingOverAnOlderOrder(t *testing.T) {
	t.Parallel()
	f := scheduled(t)
	if err := f.Instances.Bury(t.Context(), f.inst, f.order(2, croft.WantGone)); err != nil {
		t.Fatal(err)
	}
	again := etcdtest.NewInstance("again")
	again.ID = f.inst.ID
	f.inst = etcdtest.Must(f.Instances.Create(t.Context(), again))(t)
	_, err := f.Instances.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning))
	etcdtest.WantKind(t, err, croft.Unavailable)
	if o := etcdtest.Must(f.Orders.Order(t.Context(), f.host, f.inst.ID))(t); o.Want != croft.WantGone {
		t.Errorf("got %+v, want the tombstone", o)
	}
}

func TestForgetLeavesARecordThatHasJustChanged(t *testing.T) {
	t.Parallel()
	f := scheduled(t)
	f.inst = etcdtest.Must(f.Instances.Reorder(t.Context(), f.inst, f.order(2, croft.WantGone)))(t)
	tombstone := etcdtest.Must(f.Orders.Order(t.Context(), f.host, f.inst.ID))(t)
	slow := etcdtest.Open(t, f.server)
	slow.BeforeTxn(func() { etcdtest.Must(f.Instances.Fence(t.Context(), f.inst))(t) })
	etcdtest.WantKind(t, slow.Orders.Forget(t.Context(), tombstone), croft.Conflict)
	if _, err := f.Instances.Find(t.Context(), f.inst.Project, f.inst.Name); err != nil {
		t.Error(err)
	}
	if err := slow.Orders.Forget(t.Context(), tombstone); err != nil {
		t.Fatal(err)
	}
	// An order that is written in between does not belong to this tombstone either.
	f = scheduled(t)
	if err := f.Instances.Bury(t.Context(), f.inst, f.order(2, croft.WantGone)); err != nil {
		t.Fatal(err)
	}
	tombstone = etcdtest.Must(f.Orders.Order(t.Context(), f.host, f.inst.ID))(t)
	slow = etcdtest.Open(t, f.server)
	again := etcdtest.NewInstance("again")
	again.ID = f.inst.ID
	slow.BeforeTxn(func() { etcdtest.Must(f.Instances.Create(t.Context(), again))(t) })
	etcdtest.WantKind(t, slow.Orders.Forget(t.Context(), tombstone), croft.Conflict)
	if err := slow.Orders.Forget(t.Context(), tombstone); err != nil {
		t.Fatal(err)
	}
	etcdtest.Must(f.Instances.Find(t.Context(), again.Project, "again"))(t)
}

func TestForgetLeavesNoObservation(t *testing.T) {
	t.Parallel()
	f := scheduled(t)
	if err := f.Orders.Observe(t.Context(), croft.Observation{Host: f.host, Instance: f.inst.ID, Generation: 1,
		State: croft.StateRunning}); err != nil {
		t.Fatal(err)
	}
	if b := etcdtest.Must(f.Records.HostEvidence(t.Context(), f.host))(t); len(b.Observations) != 1 ||
		b.Observations[0].State != croft.StateRunning {
		t.Errorf("the books of the host have %+v", b.Observations)
	}
	f.inst = etcdtest.Must(f.Instances.Reorder(t.Context(), f.inst, f.order(2, croft.WantGone)))(t)
	if err := f.Orders.Forget(t.Context(), etcdtest.Must(f.Orders.Order(t.Context(), f.host,
		f.inst.ID))(t)); err != nil {
		t.Fatal(err)
	}
	_, err := f.Orders.Observed(t.Context(), f.host, f.inst.ID)
	etcdtest.WantKind(t, err, croft.NotFound)
}
