package etcdstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/cluster"
	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
	"croft/schedule"
	"croft/tenant"
)

// Tenants fill etcd with implementations until no more are accepted. Removals, fences and renewals of leases still
// succeed.
func TestRemovalsHaveRoomWhenNothingNewHas(t *testing.T) {
	t.Parallel()
	server := etcdtest.ServerWith(t, etcdserver.Config{MaxBytes: 64 << 20})
	s := etcdtest.Open(t, server)
	ctx := t.Context()
	etcdtest.Must(s.Projects.Create(ctx, tenant.Tenant{Name: "evil",
		Limits: tenant.Limits{tenant.StoredBytes: tenant.Unlimited}}))(t)
	etcdtest.Must(s.Clusters.PutSite(ctx, cluster.Site{Name: "local", Type: "local"}))(t)
	etcdtest.Must(s.Clusters.PutAppliance(ctx, cluster.Appliance{Name: "big", Project: "evil"}))(t)
	inst := etcdtest.Must(s.Instances.Create(ctx, etcdtest.NewInstance("web")))(t)
	var made []cluster.ImplementationID
	var err error
	for i := 0; err == nil; i++ {
		if i > 400 {
			t.Fatal("etcd took 200 MiB of 64")
		}
		id := cluster.NewImplementationID()
		_, err = s.Clusters.AddImplementation(ctx, cluster.Implementation{ID: id, Appliance: "big", Site: "local",
			Template: strings.Repeat(fmt.Sprintf("%7d\n", i), cluster.MaxTemplate/8)})
		if err == nil {
			made = append(made, id)
		}
	}
	etcdtest.WantKind(t, err, croft.NoCapacity)
	etcdtest.WantSays(t, err.Error(), "new records are refused", "reserved for removals")
	_, err = s.Instances.Create(ctx, etcdtest.NewInstance("more"))
	etcdtest.WantKind(t, err, croft.Unavailable)
	etcdtest.WantKind(t, s.SSHKeys.AddKey(ctx, schedule.Key{Project: "evil", Name: "key"}), croft.NoCapacity)

	if _, err := s.Instances.Fence(ctx, inst); err != nil {
		t.Errorf("a request is not fenced: %v", err)
	}
	other := etcdtest.Open(t, server) // with its own lease
	if err := other.Registry.Drain(ctx, croft.HostID("0e2f6a64-4a1a-4d8e-9a4e-0d3f1f7f0a11")); croft.KindOf(
		err,
	) == croft.Unavailable {
		t.Errorf("an operator's order is refused: %v", err)
	}
	for _, id := range made {
		if err := s.Clusters.RemoveImplementation(ctx, id); err != nil {
			t.Fatalf("a removal is refused: %v", err)
		}
	}
	if err := s.Clusters.RemoveAppliance(ctx, "big"); err != nil {
		t.Errorf("a removal is refused: %v", err)
	}
	etcd := etcdtest.Client(t, server, etcdstore.Credentials{})
	now := etcdtest.Must(etcd.Get(ctx, "/croft/home"))(t)
	etcdtest.Must(etcd.Compact(ctx, now.Header.Revision))(t)
	for begun := time.Now(); ; {
		etcdtest.Must(etcd.Put(ctx, "/beat", time.Now().String()))(t) // like agents do; a write makes pages free
		err := s.SSHKeys.AddKey(ctx, schedule.Key{Project: "evil", Name: "key"})
		if err == nil {
			break
		}
		if time.Since(begun) > time.Minute {
			t.Fatalf("after the removals: %v", err)
		}
		etcdtest.WantKind(t, err, croft.NoCapacity)
	}
}
