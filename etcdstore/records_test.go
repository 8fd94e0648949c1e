package etcdstore_test

import (
	"testing"

	"croft"
	"croft/audit"
	"croft/etcdstore/etcdtest"
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

// compare returns the differences in memberships.
func (f *fixture) compare(t *testing.T) (found []audit.Difference) {
	t.Helper()
	for _, d := range audit.Compare(etcdtest.Must(f.Records.Evidence(t.Context()))(t)) {
		if d.Affinity != nil {
			found = append(found, d)
		}
	}
	return found
}
