package etcdstore_test

import (
	"testing"

	"croft"
	"croft/etcdstore/etcdtest"
)

func TestAHostThatIsFencedGetsNoOrders(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	death := etcdtest.Must(f.Registry.BeginDeath(t.Context(), f.host))(t)
	if again := etcdtest.Must(f.Registry.BeginDeath(t.Context(), f.host))(t); again != death {
		t.Errorf("begun twice: %+v and %+v", death, again)
	}
	etcdtest.WantKind(t, f.Registry.Enable(t.Context(), f.host), croft.Conflict)
	_, err := f.Instances.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning))
	etcdtest.WantKind(t, err, croft.Unavailable)
	if h := etcdtest.Must(f.Registry.Hosts(t.Context(), f.host))(t)[f.host]; h.IsDead() || h.Death == nil || !h.Alive {
		t.Errorf("it is declared dead before it is off: %+v", h)
	}
	dead := etcdtest.Must(f.Registry.DeclareDead(t.Context(), f.host, death, croft.FencedOff))(t)
	_, err = f.Registry.DeclareDead(t.Context(), f.host, death, croft.ConfirmedOff)
	etcdtest.WantKind(t, err, croft.Conflict)
	etcdtest.WantKind(t, f.Registry.EndDeath(t.Context(), f.host, death), croft.Conflict)
	if err := f.Registry.EndDeath(t.Context(), f.host, dead); err != nil {
		t.Fatal(err)
	}
	if h := etcdtest.Must(f.Registry.Hosts(t.Context(), f.host))(t)[f.host]; h.Death != nil || h.Drained {
		t.Errorf("it is not taken back: %+v", h)
	}
	_, err = f.Registry.BeginDeath(t.Context(), croft.NewHostID())
	etcdtest.WantKind(t, err, croft.NotFound)
}

func TestAHostThatWasDrainedBeforeItsFenceStaysDrained(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if err := f.Registry.Drain(t.Context(), f.host); err != nil {
		t.Fatal(err)
	}
	death := etcdtest.Must(f.Registry.BeginDeath(t.Context(), f.host))(t)
	if err := f.Registry.EndDeath(t.Context(), f.host, death); err != nil {
		t.Fatal(err)
	}
	if h := etcdtest.Must(f.Registry.Hosts(t.Context(), f.host))(t)[f.host]; !h.Drained {
		t.Error("it takes new instances")
	}
}

func TestAHostThatIsDrainedWhileItIsDeadStaysDrained(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	before := etcdtest.Must(f.Registry.BeginDeath(t.Context(), f.host))(t)
	for range 2 {
		if err := f.Registry.Drain(t.Context(), f.host); err != nil {
			t.Fatal(err)
		}
	}
	death := etcdtest.Must(f.Registry.BeginDeath(t.Context(), f.host))(t)
	if !death.Drained || death.CreateRevision != before.CreateRevision {
		t.Fatalf("the death is %+v", death)
	}
	if err := f.Registry.EndDeath(t.Context(), f.host, death); err != nil {
		t.Fatal(err)
	}
	if h := etcdtest.Must(f.Registry.Hosts(t.Context(), f.host))(t)[f.host]; !h.Drained || h.Death != nil {
		t.Errorf("it takes new instances: %+v", h)
	}
}

// An observation by an agent that does not know of the death of its host is refused, and so is a loss by a process that
// does not know that the host was taken back.
func TestWritesCompareTheDeathOfAHost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.inst = etcdtest.Must(f.Instances.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning)))(t)
	before := etcdtest.Must(f.Orders.Order(t.Context(), f.host, f.inst.ID))(t)
	death := etcdtest.Must(f.Registry.BeginDeath(t.Context(), f.host))(t)
	death = etcdtest.Must(f.Registry.DeclareDead(t.Context(), f.host, death, croft.FencedOff))(t)
	seen := croft.Observation{Host: f.host, Instance: f.inst.ID, Generation: 1, OrderCreated: before.CreateRevision,
		State: croft.StateRunning}
	etcdtest.WantKind(t, f.Orders.Observe(t.Context(), seen), croft.Conflict)
	after := etcdtest.Must(f.Orders.Order(t.Context(), f.host, f.inst.ID))(t)
	seen.HostDeath = after.HostDeath
	if err := f.Orders.Observe(t.Context(), seen); err != nil || after.HostDeath != death.CreateRevision {
		t.Errorf("an agent that knows of it: %v, %d", err, after.HostDeath)
	}
	if err := f.Registry.EndDeath(t.Context(), f.host, death); err != nil {
		t.Fatal(err)
	}
	_, err := f.Instances.Lose(t.Context(), f.inst, croft.Loss{Reason: "late", Death: death.CreateRevision},
		f.order(2, croft.WantLeft))
	etcdtest.WantKind(t, err, croft.Conflict)
	etcdtest.WantKind(t, f.Orders.Observe(t.Context(), seen), croft.Conflict)
}

// Where a host was declared dead, no instance waits until it has removed its former guest.
func TestNothingRemainsOnADeadHost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.inst = etcdtest.Must(f.Instances.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning)))(t)
	death := etcdtest.Must(f.Registry.BeginDeath(t.Context(), f.host))(t)
	if remains := etcdtest.Must(f.Orders.Remains(t.Context(), f.host, f.inst.ID))(t); !remains {
		t.Error("nothing remains while it is unknown whether the host is off")
	}
	etcdtest.Must(f.Registry.DeclareDead(t.Context(), f.host, death, croft.FencedOff))(t)
	if remains := etcdtest.Must(f.Orders.Remains(t.Context(), f.host, f.inst.ID))(t); remains {
		t.Error("something remains on a dead host")
	}
}

func TestALeftoverIsRemovedByAnOrderOfItsOwn(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.inst = etcdtest.Must(f.Instances.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning)))(t)
	etcdtest.Must(f.Instances.Lose(t.Context(), f.inst, croft.Loss{Host: f.host}, f.order(2, croft.WantLeft)))(t)
	left := etcdtest.Must(f.Orders.Leftovers(t.Context(), f.host))(t)
	if len(left) != 1 || left[0].Instance.State != croft.StateLost || left[0].Order.Want != croft.WantLeft {
		t.Fatalf("left are %+v", left)
	}
	if err := f.Orders.RemoveLeftover(t.Context(), *left[0].Order); err != nil {
		t.Fatal(err)
	}
	etcdtest.WantKind(t, f.Orders.RemoveLeftover(t.Context(), *left[0].Order), croft.Conflict)
	if o := etcdtest.Must(f.Orders.Order(t.Context(), f.host, f.inst.ID))(t); o.Want != croft.WantGone ||
		o.Generation != 3 {
		t.Errorf("the order is %+v", o)
	}
	if left := etcdtest.Must(f.Orders.Leftovers(t.Context(), f.host))(t); len(left) != 0 {
		t.Errorf("left are %+v", left)
	}
}
