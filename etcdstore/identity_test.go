package etcdstore_test

import (
	"context"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"croft"
	"croft/etcdstore/etcdtest"
	"croft/tenant"
	"croft/tenant/access"
)

func TestAProjectIsNotCreatedBelowAParentThatWasReplacedMeanwhile(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	s, other := etcdtest.Open(t, server), etcdtest.Open(t, server)
	create := func(p tenant.Tenant) tenant.Tenant {
		return etcdtest.Must(other.Projects.Create(t.Context(), p))(t)
	}
	create(tenant.Tenant{Name: "north"})
	create(tenant.Tenant{Name: "south", Limits: tenant.Limits{"VCPU": 1}})
	create(tenant.Tenant{Name: "team", Parent: "north"})
	s.BeforeNthTxn(3, func() { // two transactions read the chain of the parent, this one writes
		if err := other.Projects.Remove(t.Context(), "team"); err != nil {
			t.Error(err)
		}
		create(tenant.Tenant{Name: "team", Parent: "south"})
	})
	_, err := s.Projects.Create(t.Context(), tenant.Tenant{Name: "dev", Parent: "team"})
	etcdtest.WantKind(t, err, croft.Conflict)
	if wrong := etcdtest.Must(other.Projects.Check(t.Context()))(t); len(wrong) > 0 {
		t.Errorf("counters and records differ: %+v", wrong)
	}
	create(tenant.Tenant{Name: "dev", Parent: "team"})
	inst := etcdtest.NewInstance("a")
	inst.Project, inst.Spec.Resources = "dev", croft.Resources{croft.VCPU: 2}
	_, err = other.Instances.Create(t.Context(), inst)
	etcdtest.WantKind(t, err, croft.OverQuota)
}

// A server of the API has read that a project is full, by its own limit. Then another process removes the project, and
// its name is used without a record.
func TestANameWhoseFullProjectWasRemovedHasRoomAtOnce(t *testing.T) {
	t.Parallel()
	p := newPlacing(t)
	etcdtest.Must(p.Projects.Create(t.Context(), tenant.Tenant{Name: "ci",
		Limits: tenant.Limits{tenant.CountInstances: 0}}))(t)
	inst := wanted(t, "first")
	inst.Project = "ci"
	_, err := p.place(t.Context(), p.placer, inst)
	etcdtest.WantKind(t, err, croft.OverQuota)
	if err := etcdtest.Open(t, p.server).Projects.Remove(t.Context(), "ci"); err != nil {
		t.Fatal(err)
	}
	inst = wanted(t, "second")
	inst.Project = "ci"
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second) // it was never placed
	defer cancel()
	if _, err = p.place(ctx, p.placer, inst); err != nil {
		t.Errorf("nothing limits ci any more: %v", err)
	}
}

func TestAProjectKeepsItsIdentityAndItsSuccessorHasAnother(t *testing.T) {
	t.Parallel()
	s := etcdtest.Start(t)
	find := func() tenant.Tenant {
		all := etcdtest.Must(s.Projects.List(t.Context(), access.Everything()))(t)
		return tenant.NewTree(all).Sorted()[0]
	}
	first := etcdtest.Must(s.Projects.Create(t.Context(), tenant.Tenant{Name: "web"}))(t)
	if first.ID == "" || find().ID != first.ID {
		t.Fatalf("created as %q, listed as %q", first.ID, find().ID)
	}
	first.Note = "changed"
	changed := etcdtest.Must(s.Projects.Change(t.Context(), first))(t)
	if changed.ID != first.ID || find().ID != first.ID {
		t.Errorf("it was %s, the change returns %s, and it is listed as %s", first.ID, changed.ID, find().ID)
	}
	if err := s.Projects.Remove(t.Context(), "web"); err != nil {
		t.Fatal(err)
	}
	again := etcdtest.Must(s.Projects.Create(t.Context(), tenant.Tenant{Name: "web", Created: first.Created}))(t)
	if again.ID == first.ID {
		t.Errorf("the next project with its name is %s too", again.ID)
	}
}

// sameMAC returns two UUIDs whose instances have the same MAC, which takes about 2^16 tries.
func sameMAC() (one, other croft.InstanceID) {
	seen := map[string]croft.InstanceID{}
	for n := uint64(0); ; n++ {
		id := croft.InstanceID(uuid.NewSHA1(uuid.Nil, binary.BigEndian.AppendUint64(nil, n)).String())
		mac := id.MAC(0).String()
		if seen[mac] != "" {
			return seen[mac], id
		}
		seen[mac] = id
	}
}

func TestNoTwoInstancesHaveOneMAC(t *testing.T) {
	t.Parallel()
	p := newPlacing(t)
	one, other := sameMAC()
	place := func(inst croft.Instance) (croft.Instance, error) { return p.place(t.Context(), p.placer, inst) }
	record := func(inst croft.Instance) (croft.Instance, error) { return p.Instances.Create(t.Context(), inst) }
	with := func(id croft.InstanceID, name string) croft.Instance {
		inst := wanted(t, name)
		inst.ID = id
		return inst
	}
	refused := func(how func(croft.Instance) (croft.Instance, error)) {
		t.Helper()
		_, err := how(with(other, "thief"))
		etcdtest.WantKind(t, err, croft.Conflict)
		etcdtest.WantSays(t, err.Error(), "the MAC address "+one.MAC(0).String())
		if strings.Contains(err.Error(), string(one)) {
			t.Errorf("the refusal names another's instance: %v", err)
		}
	}
	had := etcdtest.Must(record(with(one, "neighbour")))(t)
	refused(place)
	refused(record)
	if err := p.Instances.Discard(t.Context(), had); err != nil {
		t.Fatal(err)
	}
	thief := etcdtest.Must(record(with(other, "thief")))(t) // the MAC is free again
	if err := p.Instances.Discard(t.Context(), thief); err != nil {
		t.Fatal(err)
	}
	etcdtest.Must(place(with(one, "neighbour")))(t)
	refused(place)
	refused(record)
}
