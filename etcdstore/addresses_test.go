package etcdstore_test

import (
	"errors"
	"maps"
	"testing"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
	"croft/hosts/audit"
	"croft/schedule"
)

const chosen = "10.0.0.9"

// addressed returns a fixture whose instance has the chosen address on its host.
func addressed(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t)
	inst := etcdtest.NewInstance("addressed")
	inst.Spec.FixedAddress = chosen
	f.inst = etcdtest.Must(f.Instances.Create(t.Context(), inst))(t)
	f.inst = etcdtest.Must(f.Instances.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning)))(t)
	f.wantHolders(t, f.host)
	return f
}

// wantHolders asserts that the instance has the chosen address on these hosts, that nothing else has it, and that an
// audit finds no fault.
func (f *fixture) wantHolders(t *testing.T, hosts ...croft.HostID) {
	t.Helper()
	want := map[croft.HostID]croft.InstanceID{}
	for _, host := range hosts {
		want[host] = f.inst.ID
	}
	if got := etcdtest.Must(f.Instances.AddressHolders(t.Context(), chosen))(t); !maps.Equal(got, want) {
		t.Errorf("the address is given to %v, want %v", got, want)
	}
	if found := f.compare(t); len(found) > 0 {
		t.Errorf("an audit finds %+v", found)
	}
}

// at returns an order of the instance for its present host.
func (f *fixture) at(generation int64, want croft.Want) croft.Order {
	o := f.order(generation, want)
	o.Host, o.MovedFrom = f.inst.Host, f.inst.MovedFrom
	return o
}

func TestAChosenAddressIsFreedWithItsInstanceOnly(t *testing.T) {
	t.Parallel()
	for what, end := range map[string]func(t *testing.T, f *fixture) (left []croft.HostID){
		"a stopped instance": func(t *testing.T, f *fixture) []croft.HostID {
			etcdtest.Must(f.Instances.Reorder(t.Context(), f.inst, f.at(2, croft.WantStopped)))(t)
			return []croft.HostID{f.host}
		},
		"an instance that its host has still to remove": func(t *testing.T, f *fixture) []croft.HostID {
			etcdtest.Must(f.Instances.Reorder(t.Context(), f.inst, f.at(2, croft.WantGone)))(t)
			return []croft.HostID{f.host}
		},
		"a removed instance": func(t *testing.T, f *fixture) []croft.HostID {
			etcdtest.Must(f.Instances.Reorder(t.Context(), f.inst, f.at(2, croft.WantGone)))(t)
			o := etcdtest.Must(f.Orders.Order(t.Context(), f.host, f.inst.ID))(t)
			if err := f.Orders.Forget(t.Context(), o); err != nil {
				t.Error(err)
			}
			return nil
		},
		"an instance that was removed by force": func(t *testing.T, f *fixture) []croft.HostID {
			if err := f.Instances.Bury(t.Context(), f.inst, f.at(2, croft.WantGone)); err != nil {
				t.Error(err)
			}
			return nil
		},
		"a lost instance": func(t *testing.T, f *fixture) []croft.HostID {
			etcdtest.Must(f.Instances.Lose(t.Context(), f.inst, croft.Loss{Host: f.host}, f.at(2, croft.WantLeft)))(t)
			return nil
		},
		"a moved instance": func(t *testing.T, f *fixture) []croft.HostID {
			to := f.addHost(t, "h2")
			order := f.order(3, croft.WantRunning)
			order.Host = to
			f.inst = etcdtest.Must(f.Instances.Relocate(t.Context(), f.inst, f.at(2, croft.WantGone), order))(t)
			return []croft.HostID{to}
		},
		"an instance that has moved with its disk": func(t *testing.T, f *fixture) []croft.HostID {
			to := f.addHost(t, "h2")
			f.carry(t, to)
			return []croft.HostID{to}
		},
		"an instance that moves with its disk": func(t *testing.T, f *fixture) []croft.HostID {
			to := f.addHost(t, "h2")
			f.depart(t, to)
			return []croft.HostID{f.host, to}
		},
		"an instance whose move was ended": func(t *testing.T, f *fixture) []croft.HostID {
			f.depart(t, f.addHost(t, "h2"))
			if err := f.Instances.Uncarry(t.Context(), f.inst, "ended"); err != nil {
				t.Error(err)
			}
			return []croft.HostID{f.host}
		},
		"an instance that is removed while it moves": func(t *testing.T, f *fixture) []croft.HostID {
			f.depart(t, f.addHost(t, "h2"))
			etcdtest.Must(f.Instances.Reorder(t.Context(), f.inst, f.at(9, croft.WantGone)))(t)
			return []croft.HostID{f.host}
		},
		"an instance that is removed by force while it moves": func(t *testing.T, f *fixture) []croft.HostID {
			f.depart(t, f.addHost(t, "h2"))
			if err := f.Instances.Bury(t.Context(), f.inst, f.at(9, croft.WantGone)); err != nil {
				t.Error(err)
			}
			return nil
		},
		"an instance that is lost while it moves": func(t *testing.T, f *fixture) []croft.HostID {
			f.depart(t, f.addHost(t, "h2"))
			etcdtest.Must(f.Instances.Lose(t.Context(), f.inst, croft.Loss{Host: f.host}, f.at(9, croft.WantLeft)))(t)
			return nil
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := addressed(t)
			f.wantHolders(t, end(t, f)...)
		})
	}
}

// depart orders the instance to move with its disk to another host.
func (f *fixture) depart(t *testing.T, to croft.HostID) {
	t.Helper()
	moving := etcdtest.Must(f.Instances.SetMoving(t.Context(), f.inst, to))(t)
	leaving, arriving := f.carryOrders(moving, to)
	f.inst = etcdtest.Must(f.Instances.Carry(t.Context(), moving, leaving, arriving))(t)
}

func TestAChosenAddressIsGivenOnceOnAHost(t *testing.T) {
	t.Parallel()
	f := addressed(t)
	to := f.addHost(t, "h2")
	other := etcdtest.NewInstance("other")
	other.Spec.FixedAddress = chosen
	other = etcdtest.Must(f.Instances.Create(t.Context(), other))(t)
	order := schedule.NewOrder(f.Partition(), other, f.host, croft.WantRunning)
	wantTaken := func(err error) {
		t.Helper()
		etcdtest.WantKind(t, err, croft.NoCapacity)
		if !errors.Is(err, schedule.ErrAddressTaken) {
			t.Errorf("got %v, want that the address is taken", err)
		}
	}
	_, err := f.Instances.Assign(t.Context(), other, order)
	wantTaken(err)
	_, err = f.Instances.Hold(t.Context(), other, f.host)
	wantTaken(err)
	order.Host = to // which has a network of its own
	other = etcdtest.Must(f.Instances.Assign(t.Context(), other, order))(t)

	order = f.order(3, croft.WantRunning)
	order.Host = to
	_, err = f.Instances.Relocate(t.Context(), f.inst, f.at(2, croft.WantGone), order)
	wantTaken(err)
	moving := etcdtest.Must(f.Instances.SetMoving(t.Context(), f.inst, to))(t)
	leaving, arriving := f.carryOrders(moving, to)
	_, err = f.Instances.Carry(t.Context(), moving, leaving, arriving)
	wantTaken(err)
	if err := f.Instances.Bury(t.Context(), other, croft.Order{}); err != nil {
		t.Fatal(err)
	}
	f.wantHolders(t, f.host)
}

func TestAddressesWithoutInstancesAreFoundAndMended(t *testing.T) {
	t.Parallel()
	f := addressed(t)
	raw := f.raw(t)
	ghost := croft.NewInstanceID()
	raw.put(t, "addresses/10.0.0.10/"+string(f.host), string(ghost))
	raw.put(t, "addresses/10.0.0.11/"+string(f.host), string(f.inst.ID))
	found := f.compare(t)
	if len(found) != 2 || found[0].Kind != audit.LostAddress || !found[0].Mendable || !found[1].Mendable {
		t.Fatalf("found %+v, want two lost addresses", found)
	}
	for _, d := range found {
		if err := f.Records.Drop(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	f.wantHolders(t, f.host)
}

func TestInstancesWithoutTheirAddressAreFoundAndMended(t *testing.T) {
	t.Parallel()
	f := addressed(t)
	raw := f.raw(t)
	key := "addresses/" + chosen + "/" + string(f.host)
	raw.remove(t, key)
	found := f.compare(t)
	if len(found) != 1 || found[0].Kind != audit.MissingAddress || !found[0].Mendable ||
		found[0].Instance != f.inst.ID {
		t.Fatalf("found %+v, want a missing address", found)
	}
	stale := f.inst
	stale.Revision--
	etcdtest.WantKind(t, f.Records.PutAddress(t.Context(), stale), croft.Conflict)
	if err := f.Records.PutAddress(t.Context(), f.inst); err != nil {
		t.Fatal(err)
	}
	f.wantHolders(t, f.host)
	if found := f.compare(t); len(found) != 0 {
		t.Errorf("mended, and found %+v", found)
	}
	raw.put(t, key, string(croft.NewInstanceID()))
	found = f.compare(t)
	if len(found) != 2 || found[0].Kind == found[1].Kind || found[0].Mendable == found[1].Mendable {
		t.Errorf("found %+v, want a lost address, and a missing one that cannot be mended before", found)
	}
	err := f.Records.PutAddress(t.Context(), f.inst)
	etcdtest.WantKind(t, err, croft.Conflict)
	etcdtest.WantSays(t, err.Error(), "is kept for another instance")
}

func TestChosenAddressesWaitForACloudThatKnowsThem(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	putHome(t, f.server, f.Partition(), "1.7")
	command, err := etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: []string{f.server.Endpoint()}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = command.Close() }()
	inst := etcdtest.NewInstance("addressed")
	inst.Spec.FixedAddress = chosen
	_, err = command.Instances.Create(t.Context(), inst)
	etcdtest.WantKind(t, err, croft.Invalid)
	etcdtest.WantSays(t, err.Error(), "too old for chosen addresses: leave out --address, or upgrade the cloud")
	putHome(t, f.server, f.Partition(), "1.8")
	etcdtest.Must(f.Instances.Create(t.Context(), inst))(t)
}
