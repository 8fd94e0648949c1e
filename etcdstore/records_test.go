package etcdstore_test

import (
	"testing"

	"croft"
	"croft/etcdstore/etcdtest"
	"croft/hosts/audit"
)

func TestOnlyWhatIsLostIsDropped(t *testing.T) {
	t.Parallel()
	f := scheduled(t)
	for _, d := range []audit.Difference{
		{Kind: audit.LostName, Project: f.inst.Project, Name: f.inst.Name, Revision: 1},
		{Kind: audit.LostOrder, Host: f.host, Instance: f.inst.ID, Revision: f.inst.Revision},
		{Kind: audit.LostObservation, Host: f.host, Instance: f.inst.ID},
	} {
		if err := f.Records.Drop(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	if st := etcdtest.Must(f.Instances.Find(t.Context(), f.inst.Project, f.inst.Name))(t); st.Order == nil {
		t.Error("an order that is not lost is gone")
	}
	etcdtest.WantKind(t, f.Records.Drop(t.Context(), audit.Difference{Kind: audit.StrayGuest}), croft.Invalid)
}

func TestMembershipsAreFoundAndMended(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	raw := f.raw(t)
	inst := etcdtest.NewInstance("member")
	a := croft.Affinity{Group: "g", Rule: croft.Apart}
	inst.Spec.Affinities = []croft.Affinity{a}
	f.inst = etcdtest.Must(f.Instances.Create(t.Context(), inst))(t)
	f.inst = etcdtest.Must(f.Instances.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning)))(t)
	if found := f.compare(t); len(found) != 0 {
		t.Fatalf("a group as it should be: %+v", found)
	}
	key := raw.keys(t, "groups/")[0][len(raw.prefix):]
	etcdtest.Must(raw.Delete(t.Context(), raw.prefix+key))(t)
	raw.put(t, "groups/default/g/anti-affinity/"+string(f.host)+"/"+string(croft.NewInstanceID()), "ghost")
	found := f.compare(t)
	if len(found) != 2 {
		t.Fatalf("found %+v, want a lost membership and a missing one", found)
	}
	for _, d := range found {
		var err error
		if d.Kind == audit.LostMember {
			err = f.Records.Drop(t.Context(), d)
		} else {
			err = f.Records.PutMember(t.Context(), f.inst)
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
	etcdtest.WantKind(t, f.Records.PutMember(t.Context(), stale), croft.Conflict)
}

func TestSeatsAreFoundAndMended(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	raw := f.raw(t)
	const rule = "at-most-2-per-rack"
	inst := etcdtest.NewInstance("member")
	inst.Spec.Affinities = []croft.Affinity{{Group: "g", Rule: rule}}
	f.inst = etcdtest.Must(f.Instances.Create(t.Context(), inst))(t)
	f.inst.Seats = []croft.Seat{{Group: "g", Clause: rule, Location: "s/r/k", Number: 2}}
	f.inst = etcdtest.Must(f.Instances.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning)))(t)
	if found := f.compare(t); len(found) != 0 {
		t.Fatalf("a group as it should be: %+v", found)
	}
	key := "seats/default/g/at-most-2-per-rack/s.r.k/2"
	if keys := raw.keys(t, "seats/"); len(keys) != 1 || keys[0] != raw.prefix+key {
		t.Fatalf("the seats are %s, want %s", keys, key)
	}
	raw.remove(t, key)
	if found := f.compare(t); len(found) != 1 || found[0].Kind != audit.MissingSeat || found[0].Mendable {
		t.Errorf("found %+v, want a missing seat", found)
	}
	raw.put(t, key, string(f.inst.ID))
	ghost := croft.NewInstanceID()
	raw.put(t, "seats/default/g/at-most-2-per-rack/s.r.k/1", string(ghost))
	found := f.compare(t)
	if len(found) != 1 || found[0].Kind != audit.LostSeat || !found[0].Mendable || found[0].Instance != ghost {
		t.Fatalf("found %+v, want a lost seat", found)
	}
	if err := f.Records.Drop(t.Context(), found[0]); err != nil {
		t.Fatal(err)
	}
	if found := f.compare(t); len(found) != 0 {
		t.Errorf("mended, and found %+v", found)
	}
	raw.put(t, "seats/research/g/at-most-2-per-rack/s.r.k/1", string(f.inst.ID))
	raw.put(t, "seats/default/h/at-most-2-per-rack/s.r.k/1", string(f.inst.ID))
	if found := f.compare(t); len(found) != 2 {
		t.Errorf("found %+v, want the seats in another project and another group", found)
	}
}

// compare returns the differences in memberships, seats and chosen addresses.
func (f *fixture) compare(t *testing.T) (found []audit.Difference) {
	t.Helper()
	for _, d := range audit.Compare(etcdtest.Must(f.Records.Evidence(t.Context()))(t)) {
		if d.Affinity != nil || d.Seat != (croft.Seat{}) || d.Address != "" {
			found = append(found, d)
		}
	}
	return found
}

func TestDropRemovesWhatIsLostUnlessItChanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	raw := f.raw(t)
	a := croft.Affinity{Group: "g", Rule: croft.Apart}
	for _, c := range []struct {
		kind audit.Kind
		key  func(id string) string // of the remaining record
		also func(id string) string // removed together with it
		// belongs is a key with which the remaining record belongs to an instance, or to an order
		belongs func(id string) string
		always  bool // even if it was written again
	}{
		{kind: audit.LostName, key: func(id string) string { return "names/default/" + id }},
		{kind: audit.LostOrder, key: func(id string) string { return "orders/" + string(f.host) + "/" + id },
			also:    func(id string) string { return "observed/" + string(f.host) + "/" + id },
			belongs: func(id string) string { return "instances/" + id }},
		{kind: audit.LostMember,
			key: func(id string) string { return "groups/default/g/anti-affinity/" + string(f.host) + "/" + id }},
		{kind: audit.LostSeat,
			key: func(id string) string { return "seats/default/g/same-site/s1/" + id }},
		{kind: audit.LostAddress, key: func(id string) string { return "addresses/" + id + "/" + string(f.host) }},
		{kind: audit.LostUserData, key: func(id string) string { return "userdata/" + id },
			belongs: func(id string) string { return "instances/" + id }},
		{kind: audit.LostObservation, key: func(id string) string { return "observed/" + string(f.host) + "/" + id },
			belongs: func(id string) string { return "orders/" + string(f.host) + "/" + id }, always: true},
	} {
		lose := func(t *testing.T) (audit.Difference, string) {
			t.Helper()
			id := croft.NewInstanceID()
			if c.also != nil {
				raw.put(t, c.also(string(id)), "{}")
			}
			return audit.Difference{Kind: c.kind, Host: f.host, Instance: id, Project: croft.DefaultProject,
				Name: string(id), Affinity: &a, Address: string(id),
				Seat:     croft.Seat{Group: "g", Clause: "same-site", Location: "s1", Instance: id},
				Revision: raw.put(t, c.key(string(id)), "{}")}, string(id)
		}
		drop := func(t *testing.T, d audit.Difference, id string, want bool, before func()) {
			t.Helper()
			late := etcdtest.Open(t, f.server)
			late.BeforeTxn(before)
			if err := late.Records.Drop(t.Context(), d); err != nil {
				t.Error(err)
			}
			for _, key := range []func(string) string{c.key, c.also} {
				if key != nil && raw.has(t, key(id)) != want {
					t.Errorf("%s is there: %v, want %v", key(id), !want, want)
				}
			}
		}
		t.Run(string(c.kind)+" is removed", func(t *testing.T) {
			d, id := lose(t)
			drop(t, d, id, false, func() {})
		})
		t.Run(string(c.kind)+" that was written anew", func(t *testing.T) {
			d, id := lose(t)
			drop(t, d, id, !c.always, func() { raw.put(t, c.key(id), "{}") })
		})
		if c.belongs == nil {
			continue
		}
		t.Run(string(c.kind)+" that is lost no more stays", func(t *testing.T) {
			d, id := lose(t)
			drop(t, d, id, true, func() { raw.put(t, c.belongs(id), "{}") })
			raw.remove(t, c.belongs(id)) // it is not a record
		})
	}
}

func TestANameIsWrittenForARecordAloneAndOverNoOther(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	raw := f.raw(t)
	key := "names/default/" + f.inst.Name
	for _, c := range []struct {
		name   string
		change func(t *testing.T)
		want   croft.Kind
		id     string // the new holder of the name; empty: none
	}{
		{"it is free", func(t *testing.T) { raw.remove(t, key) }, "", string(f.inst.ID)},
		{"another instance has it", func(t *testing.T) { raw.put(t, key, "another") }, croft.Conflict, "another"},
		{"the instance is gone", func(t *testing.T) {
			raw.remove(t, key)
			raw.remove(t, "instances/"+string(f.inst.ID))
		}, croft.Conflict, ""},
		{"the UUID was given to an instance of another project", func(t *testing.T) {
			raw.put(t, "instances/"+string(f.inst.ID), `{"project": "next"}`)
		}, croft.Conflict, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			late := etcdtest.Open(t, f.server)
			late.BeforeTxn(func() { c.change(t) })
			etcdtest.WantKind(t, late.Records.PutName(t.Context(), f.inst), c.want)
			got := ""
			if raw.has(t, key) {
				got = string(raw.get(t, key))
			}
			if got != c.id {
				t.Errorf("the name is that of %q, want %q", got, c.id)
			}
		})
	}
}
