package etcdstore_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/etcdstore/etcdtest"
	"croft/tenant"
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
	// The rest on the old host is removed, but not the record.
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

func TestAHoldIsNotUsedOnADrainedHost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	held := etcdtest.Must(f.Instances.Hold(t.Context(), f.inst, f.host))(t)
	if err := f.Registry.Drain(t.Context(), f.host); err != nil {
		t.Fatal(err)
	}
	_, err := f.Instances.Use(t.Context(), held, f.order(1, croft.WantRunning))
	etcdtest.WantKind(t, err, croft.Unavailable)
	if err := f.Registry.Enable(t.Context(), f.host); err != nil {
		t.Fatal(err)
	}
	etcdtest.Must(f.Instances.Use(t.Context(), held, f.order(1, croft.WantRunning)))(t)
}

// elsewhere returns a host other than the fixture's, alive with an agent of a schema version.
func (f *fixture) elsewhere(t *testing.T, version string) croft.HostID {
	t.Helper()
	to := croft.NewHostID()
	if err := f.Registry.PutHost(t.Context(), croft.Host{ID: to, Name: string(to)}); err != nil {
		t.Fatal(err)
	}
	f.raw(t).put(t, "alive/"+string(to), "2026-01-02T03:04:05Z "+version)
	return to
}

// moving returns the orders that move the fixture's instance to a host.
func (f *fixture) moving(to croft.HostID) (tombstone, order croft.Order) {
	tombstone, order = f.order(f.inst.Generation+1, croft.WantGone), f.order(f.inst.Generation+2, croft.WantRunning)
	tombstone.Host, order.Host = f.inst.Host, to
	return tombstone, order
}

func TestWhatChangesBeforeAnInstanceIsRelocatedKeepsItWhereItIs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(f *fixture, raw bare, to croft.HostID)
		want   croft.Kind
	}{
		{"somebody else writes its record", func(f *fixture, _ bare, _ croft.HostID) {
			etcdtest.Must(f.Instances.Fence(t.Context(), f.inst))(t)
		}, croft.Conflict},
		{"its record goes", func(f *fixture, raw bare, _ croft.HostID) {
			raw.remove(t, "instances/"+string(f.inst.ID))
		}, croft.Conflict},
		{"the agent of the other host dies", func(_ *fixture, raw bare, to croft.HostID) {
			raw.remove(t, "alive/"+string(to))
		}, croft.Unavailable},
		{"the other host is drained", func(_ *fixture, raw bare, to croft.HostID) {
			raw.put(t, "drained/"+string(to), "")
		}, croft.Unavailable},
		{"the other host gets an older order", func(f *fixture, raw bare, to croft.HostID) {
			raw.put(t, "orders/"+string(to)+"/"+string(f.inst.ID), "{}")
		}, croft.Unavailable},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := scheduled(t)
			raw, to := f.raw(t), f.elsewhere(t, "1.2")
			mover := etcdtest.Open(t, f.server)
			mover.BeforeTxn(func() { c.change(f, raw, to) })
			tombstone, order := f.moving(to)
			_, err := mover.Instances.Relocate(t.Context(), f.inst, tombstone, order)
			etcdtest.WantKind(t, err, c.want)
			if o := etcdtest.Must(f.Orders.Order(t.Context(), f.host, f.inst.ID))(t); o.Want != croft.WantRunning {
				t.Errorf("its host is ordered %s", o.Want)
			}
			if inst, err := f.Instances.Instance(t.Context(), f.inst.ID); err == nil && inst.Host != f.host {
				t.Errorf("its record names the host %s, want %s", inst.Host, f.host)
			}
		})
	}
}

func TestAMoveTakesTheMembershipsAlong(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	inst := etcdtest.NewInstance("member")
	a := croft.Affinity{Group: "g", Rule: croft.Apart}
	inst.Spec.Affinities = []croft.Affinity{a}
	f.inst = etcdtest.Must(f.Instances.Create(t.Context(), inst))(t)
	f.inst = etcdtest.Must(f.Instances.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning)))(t)
	to := f.elsewhere(t, "1.2")
	tombstone, order := f.moving(to)
	etcdtest.Must(f.Instances.Relocate(t.Context(), f.inst, tombstone, order))(t)
	got, _, err := f.Groups.Members(t.Context(), inst.Project, "g")
	if err != nil {
		t.Fatal(err)
	}
	want := []croft.GroupMember{{Affinity: a, Host: to, Instance: inst.ID, Name: "member"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// Agents of schema 1.1 can wait for only one former host.
func TestAnAgentOfTheVersionBeforeIsNotGivenMoreFormerHostsThanItKnows(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		version string // schema version of the agent of the next host; empty: there is no agent
		removed bool   // the former host has carried out its tombstone
		want    croft.Kind
		says    string
	}{
		{"a former host has an order still", "1.1", false, croft.Unavailable, "of an older version"},
		{"the former host has removed the instance", "1.1", true, "", ""},
		{"the agent knows of several", "1.2", false, "", ""},
		{"there is no agent", "", false, croft.Unavailable, "is silent"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := scheduled(t)
			tombstone, order := f.moving(f.elsewhere(t, "1.2"))
			f.inst = etcdtest.Must(f.Instances.Relocate(t.Context(), f.inst, tombstone, order))(t)
			if c.removed {
				tombstone = etcdtest.Must(f.Orders.Order(t.Context(), f.host, f.inst.ID))(t)
				if err := f.Orders.Forget(t.Context(), tombstone); err != nil {
					t.Fatal(err)
				}
			}
			to := f.elsewhere(t, c.version)
			if c.version == "" {
				f.raw(t).remove(t, "alive/"+string(to))
			}
			tombstone, order = f.moving(to)
			moved, err := f.Instances.Relocate(t.Context(), f.inst, tombstone, order)
			etcdtest.WantKind(t, err, c.want)
			if err != nil {
				etcdtest.WantSays(t, err.Error(), c.says)
			} else if want := !c.removed; slices.Contains(moved.Former(), f.host) != want {
				t.Errorf("former hosts are %v; want the first among them: %v", moved.Former(), want)
			}
		})
	}
}

func TestTheTargetOfAMoveIsWrittenToAnUnchangedRecordOnly(t *testing.T) {
	t.Parallel()
	f := scheduled(t)
	to := croft.NewHostID()
	late := etcdtest.Open(t, f.server)
	late.BeforeTxn(func() { f.inst = etcdtest.Must(f.Instances.Fence(t.Context(), f.inst))(t) })
	_, err := late.Instances.SetMoving(t.Context(), f.inst, to)
	etcdtest.WantKind(t, err, croft.Conflict)
	if inst := etcdtest.Must(f.Instances.Instance(t.Context(), f.inst.ID))(t); inst.Moving != "" ||
		inst.Revision != f.inst.Revision {
		t.Errorf("got %+v, want it as it was", inst)
	}
	_, err = f.Instances.SetMoving(t.Context(), croft.Instance{ID: croft.NewInstanceID()}, to)
	etcdtest.WantKind(t, err, croft.Conflict) // it was never written
	set := etcdtest.Must(f.Instances.SetMoving(t.Context(), f.inst, to))(t)
	if stored := etcdtest.Must(f.Instances.Instance(t.Context(), f.inst.ID))(t); stored.Moving != to ||
		stored.Revision != set.Revision {
		t.Errorf("stored is %+v, want the target %s at revision %d", stored, to, set.Revision)
	}
}

// The charge of an instance is the same on every host, stopped or not, until its record is removed.
func TestAMoveAndAStopAreChargedNothing(t *testing.T) {
	t.Parallel()
	f := scheduled(t)
	used := func() tenant.Amounts {
		t.Helper()
		return etcdtest.Must(f.Projects.Accounts(t.Context(), f.inst.Project))(t)[0].Used
	}
	before := used()
	if before[tenant.CountInstances] != 1 || len(before) < 2 {
		t.Fatalf("charged with %s", before)
	}
	there := croft.NewHostID()
	if err := f.Registry.PutHost(t.Context(), croft.Host{ID: there, Name: "h2"}); err != nil {
		t.Fatal(err)
	}
	f.live(t, there)
	tombstone, order := f.order(2, croft.WantGone), f.order(3, croft.WantRunning)
	order.Host = there
	moved := etcdtest.Must(f.Instances.Relocate(t.Context(), f.inst, tombstone, order))(t)
	if diff := cmp.Diff(before, used()); diff != "" {
		t.Errorf("a move (-want +got):\n%s", diff)
	}
	stop := order
	stop.Want, stop.Generation = croft.WantStopped, 4
	etcdtest.Must(f.Instances.Reorder(t.Context(), moved, stop))(t)
	if diff := cmp.Diff(before, used()); diff != "" {
		t.Errorf("a stop (-want +got):\n%s", diff)
	}
	if wrong := etcdtest.Must(f.Projects.Check(t.Context()))(t); len(wrong) > 0 {
		t.Errorf("records say otherwise: %+v", wrong)
	}
}
