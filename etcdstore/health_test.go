package etcdstore_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
)

func TestAFullStoreIsSaidAndMended(t *testing.T) {
	t.Parallel()
	server := etcdtest.ServerWith(t, etcdserver.Config{MaxBytes: 2 << 20})
	store := etcdtest.Open(t, server)
	etcd := etcdtest.Fill(t, server)
	_, err := store.Instances.Create(t.Context(), etcdtest.NewInstance("web"))
	etcdtest.WantKind(t, err, croft.Unavailable)
	etcdtest.WantSays(t, err.Error(), "out of space", "compact", "defrag", "disarm")
	etcdtest.WantKind(t, store.Usable(t.Context()), croft.Unavailable)
	etcdtest.WantSays(t, strings.Join(store.Cluster.Problems(t.Context()), "\n"), "out of space", "has filled")

	// The remedy named in the message works.
	now, err := etcd.Get(t.Context(), "/filler")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Compact(t.Context(), now.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.Defragment(t.Context(), server.Endpoint()); err != nil {
		t.Fatal(err)
	}
	if _, err := etcd.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	if err := store.Usable(t.Context()); err != nil {
		t.Errorf("after the cure: %v", err)
	}
	if problems := store.Cluster.Problems(t.Context()); len(problems) > 0 {
		t.Errorf("after the cure: %q", problems)
	}
	etcdtest.Must(store.Instances.Create(t.Context(), etcdtest.NewInstance("web")))(t)
}

// The process reported that it was ready while no watch delivered anything.
func TestAStoreWhoseWatchesDeliverNothingIsNotUsable(t *testing.T) {
	t.Parallel()
	store := etcdtest.Open(t, etcdtest.Server(t))
	if err := store.Usable(t.Context()); err != nil {
		t.Fatal(err)
	}
	store.StopWatches()
	err := store.Usable(t.Context())
	etcdtest.WantKind(t, err, croft.Unavailable)
	etcdtest.WantSays(t, err.Error(), "watch", "nothing was delivered")
}

// A member that accepts connections and never answers is reported, while the other member serves.
func TestAMemberThatDoesNotAnswerIsTold(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	silent := "http://" + l.Addr().String()
	store, err := etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: []string{server.Endpoint(), silent},
		DialTimeout: 20 * time.Second, Mint: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	problems := store.Cluster.Problems(t.Context())
	if len(problems) != 1 {
		t.Fatalf("problems: %q, want one", problems)
	}
	etcdtest.WantSays(t, problems[0], silent, "does not answer")
}

// A scheduler that was suspended past the end of its lease reports it once, and then has another session.
func TestALostSessionIsToldAndReplaced(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	store := etcdtest.Open(t, server)
	etcdtest.Must(store.Instances.Create(t.Context(), etcdtest.NewInstance("before")))(t)
	revokeAll(t, etcdtest.Client(t, server, etcdstore.Credentials{}))
	if _, err := store.Instances.Create(t.Context(), etcdtest.NewInstance("during")); err != nil {
		etcdtest.WantKind(t, err, croft.Unavailable)
		etcdtest.WantSays(t, err.Error(), "lease", "try again")
	}
	etcdtest.Must(store.Instances.Create(t.Context(), etcdtest.NewInstance("after")))(t)
}

// An agent whose lease is revoked takes another, and its host is alive again.
func TestALostLeaseOfAnAgentIsReplaced(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	etcd := etcdtest.Client(t, f.server, etcdstore.Credentials{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	alive := func() bool {
		hosts, err := f.Registry.Hosts(ctx, f.host)
		return err == nil && hosts[f.host].Alive
	}
	if !alive() {
		t.Fatal("the host is not alive to begin with")
	}
	before := etcdtest.Must(etcd.Leases(ctx))(t)
	revokeAll(t, etcd)
	err := f.Instances.WatchInstances(ctx, func() {
		now, err := etcd.Leases(ctx)
		if err == nil && len(now.Leases) > 0 && now.Leases[0].ID != before.Leases[0].ID && alive() {
			cancel()
		}
	})
	if t.Context().Err() != nil {
		t.Fatal(err)
	}
}

func revokeAll(t *testing.T, etcd *clientv3.Client) {
	t.Helper()
	all, err := etcd.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, lease := range all.Leases {
		if _, err := etcd.Revoke(t.Context(), lease.ID); err != nil {
			t.Fatal(err)
		}
	}
}
