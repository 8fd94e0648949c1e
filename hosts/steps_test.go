package hosts_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/hosts"
)

// diary is a cloud with at most one instance. It records reads and writes in order, and fails the planned
// ones.
type diary struct {
	inst  *croft.Instance // nil: no instance
	on    croft.HostID    // the host of the instance's claim
	hosts []croft.Host
	steps []string
	// whether former hosts still have guests or disks of the instance
	remains bool
	fails   map[string]func() error // by step; a step whose function returns nil is executed
}

type (
	allHosts  = hosts.Store // a type, because the field would have the name of a method
	allClaims = hosts.Claims

	diaryHosts struct {
		allHosts // nil, as the next: methods not defined here are never called
		*diary
	}
	diaryInstances struct {
		hosts.Orders // nil
		hosts.Instances
		*diary
	}
	diaryClaims struct {
		allClaims
		*diary
	}
)

var errPlanned = croft.Errorf(croft.Unavailable, "planned")

func planned() error { return errPlanned }

func (d *diary) step(words ...string) error {
	s := strings.Join(words, " ")
	d.steps = append(d.steps, s)
	if fail := d.fails[s]; fail != nil {
		return fail()
	}
	return nil
}

func (d *diary) fleet(t *testing.T) *hosts.Fleet {
	t.Helper()
	f, err := hosts.New(hosts.Config{Partition: "p", Hosts: diaryHosts{diary: d}, Members: &office{},
		Instances: diaryInstances{diary: d}, Orders: diaryInstances{diary: d}, Claims: diaryClaims{diary: d}})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// want compares the steps and clears them.
func (d *diary) want(t *testing.T, steps ...string) {
	t.Helper()
	if !slices.Equal(d.steps, steps) {
		t.Errorf("done: %q, want %q", d.steps, steps)
	}
	d.steps = nil
}

func (d diaryHosts) Hosts(context.Context, ...croft.HostID) (map[croft.HostID]croft.Host, error) {
	return hostOffice{office: &office{known: d.hosts}}.Hosts(context.Background())
}

func (d diaryHosts) Drain(_ context.Context, h croft.HostID) error { return d.step("drain", string(h)) }

func (d diaryHosts) ForgetHost(_ context.Context, h croft.HostID) error {
	return d.step("forget", string(h))
}

func (d diaryHosts) BeginDeath(_ context.Context, h croft.HostID) (croft.Death, error) {
	return croft.Death{}, d.step("begin death", string(h))
}

func (d diaryHosts) DeclareDead(_ context.Context, h croft.HostID, death croft.Death,
	how croft.FenceResult) (croft.Death, error) {
	death.Declared, death.How = time.Unix(1, 0), how
	return death, d.step("declare dead", string(h))
}

func (d diaryHosts) EndDeath(_ context.Context, h croft.HostID, _ croft.Death) error {
	return d.step("end death", string(h))
}

func (d diaryInstances) List(context.Context, croft.Project) ([]croft.Status, error) {
	if d.inst == nil {
		return nil, d.step("list")
	}
	return []croft.Status{{Instance: *d.inst}}, d.step("list")
}

func (d diaryInstances) Overview(ctx context.Context, p croft.Project) ([]*croft.Status, error) {
	all, err := d.List(ctx, p)
	return overviewOf(all), err
}

func (d diaryInstances) Some(_ context.Context, ids []croft.InstanceID) ([]croft.Status, error) {
	if d.inst == nil {
		return nil, nil
	}
	return someOf([]croft.Status{{Instance: *d.inst}}, ids), nil
}

func (d diaryInstances) Reorder(_ context.Context, inst croft.Instance, o croft.Order) (croft.Instance, error) {
	return inst, d.step("order", string(o.Want), "on", string(o.Host))
}

func (d diaryInstances) Bury(_ context.Context, _ croft.Instance, o croft.Order) error {
	return d.step("bury on", string(o.Host))
}

func (d diaryInstances) Lose(_ context.Context, inst croft.Instance, why croft.Loss, o croft.Order) (croft.Instance,
	error) {
	if err := d.step("lose on", string(o.Host)); err != nil {
		return inst, err
	}
	inst.State, inst.Lost, inst.Host, inst.Moving = croft.StateLost, &why, "", ""
	*d.inst = inst
	return inst, nil
}

func (d diaryInstances) Remains(context.Context, croft.HostID, croft.InstanceID) (bool, error) {
	return d.remains, nil
}

func (d diaryInstances) Fence(context.Context, croft.Instance) (croft.Instance, error) {
	if err := d.step("fence"); err != nil {
		return croft.Instance{}, err
	}
	return *d.inst, nil
}

func (d diaryInstances) SetMoving(_ context.Context, inst croft.Instance, to croft.HostID) (croft.Instance, error) {
	if err := d.step("moving to", string(to)); err != nil {
		return inst, err
	}
	d.inst.Moving = to
	return *d.inst, nil
}

func (d diaryInstances) Relocate(_ context.Context, inst croft.Instance, tombstone, order croft.Order) (croft.Instance,
	error) {
	if err := d.step("order", string(order.Want), "on", string(order.Host), "not on",
		string(tombstone.Host)); err != nil {
		return inst, err
	}
	d.inst.Host, d.inst.Moving = order.Host, ""
	return *d.inst, nil
}

func (d diaryInstances) Instance(_ context.Context, id croft.InstanceID) (croft.Instance, error) {
	switch err := d.step("read"); {
	case err != nil:
		return croft.Instance{}, err
	case d.inst == nil || d.inst.ID != id:
		return croft.Instance{}, croft.Errorf(croft.NotFound, "no instance %s", id)
	}
	return *d.inst, nil
}

func (d diaryClaims) Claims(context.Context, croft.HostID) (map[croft.InstanceID]croft.Resources, error) {
	return nil, nil
}

func (d diaryClaims) Candidates(context.Context, string, int) ([]croft.Candidate, error) {
	var all []croft.Candidate
	for _, h := range d.hosts {
		all = append(all, croft.Candidate{Allocations: map[croft.HostID]croft.Resources{h.ID: {croft.VCPU: 1}}})
	}
	return all, nil
}

func (d diaryClaims) ClaimOf(_ context.Context, id croft.InstanceID) (croft.Claim, error) {
	return croft.Claim{Instance: id, Allocations: map[croft.HostID]croft.Resources{d.on: {croft.VCPU: 1}}}, nil
}

func (d diaryClaims) Reclaim(_ context.Context, _ croft.Claim, _ croft.Owner, c croft.Candidate) error {
	for host := range c.Allocations {
		if err := d.step("claim on", string(host)); err != nil {
			return err
		}
		d.on = host
	}
	return nil
}

func (d diaryClaims) Release(ctx context.Context, _ croft.InstanceID, may croft.Permit) error {
	on, err := may(ctx)
	if err != nil {
		return err
	}
	words := []string{"release"}
	for _, h := range on {
		words = append(words, string(h))
	}
	return d.step(words...)
}

func (d diaryClaims) RemoveProvider(_ context.Context, h croft.HostID) error {
	return d.step("remove provider", string(h))
}

// moving is a cloud of two hosts with an instance on a that is to move to b.
func moving() (*diary, hosts.Host) {
	known := []croft.Host{{ID: "a", Name: "one", Alive: true, Drained: true}, {ID: "b", Name: "two", Alive: true}}
	inst := croft.Instance{
		ID: "web", Name: "web", Host: "a", State: croft.StateScheduled,
		Spec: croft.Spec{
			InstanceSettings: croft.InstanceSettings{Ephemeral: true}, Resources: croft.Resources{croft.VCPU: 1}},
	}
	d := &diary{inst: &inst, on: "a", hosts: known, fails: map[string]func() error{}}
	return d, hosts.Host{Host: known[0], Instances: []croft.Status{{Instance: inst}}}
}

// With the order first, a guest would run without a claim on its host.
func TestAMoveClaimsBeforeItOrders(t *testing.T) {
	d, h := moving()
	all, err := d.fleet(t).MoveAll(t.Context(), h)
	if err != nil || len(all) != 1 || all[0].To.ID != "b" {
		t.Errorf("got %+v, %v", all, err)
	}
	d.want(t, "moving to b", "claim on b", "order running on b not on a")
}

// keeping records the claims of an instance that claims on a and may have left a guest on c.
type keeping struct {
	diaryClaims
	claimed *[]croft.HostID
}

func (k keeping) ClaimOf(_ context.Context, id croft.InstanceID) (croft.Claim, error) {
	one := croft.Resources{croft.VCPU: 1}
	return croft.Claim{Instance: id, Allocations: map[croft.HostID]croft.Resources{"a": one, "c": one, "e": one}}, nil
}

func (k keeping) Reclaim(_ context.Context, _ croft.Claim, _ croft.Owner, c croft.Candidate) error {
	*k.claimed = slices.Sorted(maps.Keys(c.Allocations))
	return nil
}

// Without its claim, the room of a guest that is still to be removed could be given to another one.
func TestAMoveKeepsTheClaimWhereTheGuestMayBe(t *testing.T) {
	for _, test := range []struct {
		name    string
		vacates bool
		former  croft.HostID
		remains bool
		claimed []croft.HostID
	}{
		{"its host has it until it has gone", true, "", false, []croft.HostID{"a", "b"}},
		{"an agent of an older version would never give it back", false, "", false, []croft.HostID{"b"}},
		{"so does a former host that still has something of it", true, "c", true, []croft.HostID{"a", "b", "c"}},
		{"and none that has nothing any more", true, "c", false, []croft.HostID{"a", "b"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			d, h := moving()
			for i := range d.hosts {
				d.hosts[i].Vacates = test.vacates
			}
			d.hosts = append(d.hosts, croft.Host{ID: "c", Name: "three", Alive: true, Drained: true, Vacates: true})
			d.inst.MovedFrom, d.remains = test.former, test.remains
			h.Instances[0].Instance.MovedFrom = test.former
			var claimed []croft.HostID
			f := d.fleet(t)
			f.Claims = keeping{diaryClaims{diary: d}, &claimed}
			if _, err := f.MoveAll(t.Context(), h); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(claimed, test.claimed) {
				t.Errorf("claimed on %v, want %v", claimed, test.claimed)
			}
		})
	}
}

func TestAMoveThatIsLostGivesItsClaimBack(t *testing.T) {
	const relocate = "order running on b not on a"
	begun := []string{"moving to b", "claim on b", relocate}
	for _, c := range []struct {
		name  string
		begin func(d *diary)
		steps []string
		on    croft.HostID
	}{
		{"to a host that was drained", func(d *diary) { d.fails[relocate] = planned },
			[]string{"fence", "moving to b", "claim on a", "moving to "}, "a"},
		{"whose answer was lost", func(d *diary) {
			d.fails[relocate] = func() error { d.inst.Host, d.inst.Moving = "b", ""; return errPlanned }
		}, []string{"fence"}, "b"},
		{"and whose fence fails", func(d *diary) { d.fails[relocate], d.fails["fence"] = planned, planned },
			// the end of the move is written by comparison too
			[]string{"fence", "moving to b", "claim on a", "moving to "}, "a"},
		{"to somebody's change of the record", func(d *diary) {
			d.fails[relocate] = func() error { return croft.Errorf(croft.Conflict, "planned") }
		}, []string{"read", "moving to b", "claim on a", "moving to "}, "a"},
		{"to its end", func(d *diary) {
			d.fails[relocate] = func() error { d.inst = nil; return croft.Errorf(croft.Conflict, "planned") }
		}, []string{"read", "read", "release a b"}, "b"},
		{"to its end, which is under way", func(d *diary) {
			d.fails[relocate] = func() error {
				d.inst.State = croft.StateDestroying
				return croft.Errorf(croft.Conflict, "planned")
			}
		}, []string{"read"}, "b"},
		{"to who moved it on", func(d *diary) {
			d.fails[relocate] = func() error {
				d.inst.Host, d.inst.Moving = "b", ""
				return croft.Errorf(croft.Conflict, "planned")
			}
		}, []string{"read"}, "b"},
		{"to who ended it", func(d *diary) {
			d.fails[relocate] = func() error { d.inst.Moving = ""; return croft.Errorf(croft.Conflict, "planned") }
		}, []string{"read", "moving to ", "claim on a"}, "a"},
		{"to nobody knows what", func(d *diary) {
			d.fails[relocate] = func() error { return croft.Errorf(croft.Conflict, "planned") }
			d.fails["read"] = func() error { return errors.New("nobody can tell") }
		}, []string{"read"}, "b"},
		{"to who ended it before its answer was lost", func(d *diary) {
			d.fails[relocate] = func() error { d.inst.Moving = ""; return errPlanned }
		}, []string{"fence", "read", "moving to ", "claim on a"}, "a"},
		{"to its end, and the host is silent", func(d *diary) {
			d.fails[relocate] = func() error { d.inst.State = croft.StateDestroying; return errPlanned }
		}, []string{"fence", "read"}, "b"},
		{"to who moves it elsewhere", func(d *diary) {
			d.fails[relocate] = func() error { d.inst.Moving = "c"; return croft.Errorf(croft.Conflict, "planned") }
		}, []string{"read"}, "b"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, h := moving()
			c.begin(d)
			all, err := d.fleet(t).MoveAll(t.Context(), h)
			if err != nil && !errors.Is(err, croft.Unavailable) {
				t.Error(err)
			}
			if moved := len(all) == 1 && all[0].To.ID == "b"; moved != (c.name == "whose answer was lost") {
				t.Errorf("told: %+v", all)
			}
			if c.name == "to nobody knows what" && !strings.Contains(all[0].Stays, "nobody can tell") {
				t.Errorf("told: %+v", all)
			}
			d.want(t, append(slices.Clone(begun), c.steps...)...)
			if d.on != c.on {
				t.Errorf("its claim is on %s, want %s", d.on, c.on)
			}
		})
	}
}

func TestAMoveThatIsLostSaysWhatItCouldNotGiveBack(t *testing.T) {
	d, h := moving()
	d.fails["order running on b not on a"] = func() error { return croft.Errorf(croft.Conflict, "planned") }
	d.fails["claim on a"] = planned
	_, err := d.fleet(t).MoveAll(t.Context(), h)
	if !errors.Is(err, errPlanned) || !strings.Contains(err.Error(), "claim on its own host") || d.inst.Moving != "b" {
		t.Errorf("got %v, moving to %q; want what is left, and a record that tells of it", err, d.inst.Moving)
	}
}

// Without draining first, an instance that arrives after the others were marked as lost would be forgotten.
func TestAHostIsDrainedBeforeItIsForgotten(t *testing.T) {
	steps := []string{"drain a", "list", "lose on a", "fence", "release", "remove provider a", "forget a"}
	forget := func(t *testing.T, d *diary) error {
		t.Helper()
		_, err := d.fleet(t).Forget(t.Context(), "one", true)
		if len(d.steps) == 0 || d.steps[0] != "list" {
			t.Fatalf("done: %q; want the host to be found first", d.steps)
		}
		d.steps = d.steps[1:]
		return err
	}
	t.Run("every step in its order", func(t *testing.T) {
		d, _ := moving()
		if err := forget(t, d); err != nil {
			t.Error(err)
		}
		d.want(t, steps...)
	})
	for i, broken := range steps {
		if broken == "list" {
			continue // read to find the host, too
		}
		t.Run("nothing after a failure of "+broken, func(t *testing.T) {
			d, _ := moving()
			d.fails[broken] = planned
			if err := forget(t, d); !errors.Is(err, errPlanned) {
				t.Errorf("got %v", err)
			}
			d.want(t, steps[:i+1]...)
		})
	}
}
