package etcdstore_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
	"croft/internal/testing/patient"
)

// leading returns the index of the leader.
func leading(t *testing.T, c *etcdtest.EtcdCluster, store *etcdstore.Store) int {
	t.Helper()
	for _, m := range etcdtest.Must(store.Cluster.EtcdMembers(t.Context()))(t) {
		if m.Role == croft.MemberLeads {
			return slices.IndexFunc(c.Members, func(o croft.EtcdMember) bool { return o.Host == m.Host })
		}
	}
	t.Fatal("nobody leads")
	return 0
}

// A host stays alive and a watch continues while the leader is stopped, the history is compacted, and all leases are
// lost. The problems are reported meanwhile.
func TestLeasesAndWatchesOutliveTheMemberThatLeads(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartCluster(t, 3)
	store := c.OpenAll(t)
	h := croft.Host{ID: croft.NewHostID(), Name: "one"}
	if err := store.Registry.PutHost(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	work.Go(func() { _ = store.Registry.StayAlive(ctx, h.ID) })
	var mu sync.Mutex
	var served int
	work.Go(func() {
		_ = store.Cluster.WatchEtcdMembers(ctx, func(all []croft.EtcdMember) {
			mu.Lock()
			served = len(all)
			mu.Unlock()
		})
	})
	serving := func(n int) func() bool {
		return func() bool { mu.Lock(); defer mu.Unlock(); return served == n }
	}
	alive := func() bool {
		hosts, err := store.Registry.Hosts(t.Context(), h.ID)
		return err == nil && hosts[h.ID].Alive
	}
	patient.Until(t, "the host is alive", alive)
	patient.Until(t, "three serve", serving(3))

	lost := leading(t, c, store)
	c.Stop(t, lost)
	patient.Until(t, "another one leads", func() bool {
		_, err := store.Instances.Create(t.Context(), etcdtest.NewInstance("web"))
		return err == nil
	})
	if !alive() {
		t.Error("the host died with the member")
	}
	if said := strings.Join(store.Cluster.Problems(t.Context()), "\n"); !strings.Contains(said,
		c.Members[lost].Clients[0]+" does not answer") {
		t.Errorf("it says %q, want which member is away", said)
	}
	other := (lost + 1) % 3
	etcd := etcdtest.Client(t, c.Servers[other], etcdstore.Credentials{})
	now := etcdtest.Must(etcd.Get(t.Context(), "/"))(t)
	if _, err := etcd.Compact(t.Context(), now.Header.Revision); err != nil {
		t.Fatal(err)
	}
	revokeAll(t, etcd)
	patient.Until(t, "the host is alive once more", alive)

	c.Start(t, lost)
	if err := c.Open(t, lost).Cluster.PutEtcdMember(t.Context(), croft.EtcdMember{Host: croft.NewHostID(),
		Name: "fourth"}); err != nil {
		t.Fatal(err)
	}
	patient.Until(t, "the watch tells of one more", serving(4))
}

// One full member makes etcd read-only; this is reported, and the suggested remedy works.
func TestOneMemberThatIsFullIsSaidAndMended(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartCluster(t, 2)
	c.JoinWith(t, etcdserver.Config{MaxBytes: 2 << 20})
	store := c.Open(t, 0)
	etcd := etcdtest.Client(t, c.Servers[0], etcdstore.Credentials{})
	patient.Until(t, "the third is full", func() bool {
		_, err := etcd.Put(t.Context(), "/filler", strings.Repeat("x", 256<<10))
		return errors.Is(err, rpctypes.ErrNoSpace)
	})
	_, err := store.Instances.Create(t.Context(), etcdtest.NewInstance("web"))
	etcdtest.WantKind(t, err, croft.Unavailable)
	said := strings.Join(store.Cluster.Problems(t.Context()), "\n")
	etcdtest.WantSays(t, said, "out of space", c.Members[2].Clients[0]+" has filled")
	if strings.Contains(said, c.Members[1].Clients[0]+" has filled") {
		t.Errorf("it says %q of a member that has room", said)
	}

	now := etcdtest.Must(etcd.Get(t.Context(), "/filler"))(t)
	if _, err := etcd.Compact(t.Context(), now.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	for _, m := range c.Members {
		if _, err := etcd.Defragment(t.Context(), m.Clients[0]); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := etcd.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	etcdtest.Must(store.Instances.Create(t.Context(), etcdtest.NewInstance("web")))(t)
}
