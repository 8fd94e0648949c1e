package etcdstore_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
	"croft/trust"
)

func TestAHostThatJoinedIsKnownUntilItIsForgotten(t *testing.T) {
	t.Parallel()
	store := etcdtest.Open(t, etcdtest.Server(t))
	ctx, host := t.Context(), croft.NewHostID()
	if _, err := store.Trust.Joined(ctx, host); croft.KindOf(err) != croft.NotFound {
		t.Errorf("before it joined: %v", err)
	}
	now := time.Now().UTC().Truncate(time.Second)
	stamp := func(by string) trust.Stamp {
		return trust.Stamp{By: by, Made: now, Until: now.Add(time.Hour)}
	}
	if err := store.Trust.Renewed(ctx, host, "etcd", stamp("a")); croft.KindOf(err) != croft.NotFound {
		t.Errorf("renewed before it joined: %v", err)
	}
	for range 2 { // the first answer may be lost
		if err := store.Trust.RecordJoin(ctx, host, false, map[string]trust.Stamp{"etcd": stamp("a"),
			"hosts": stamp("b")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Trust.Renewed(ctx, host, "etcd", stamp("c")); err != nil {
		t.Fatal(err)
	}
	got := etcdtest.Must(store.Trust.Joined(ctx, host))(t)
	want := map[string]trust.Stamp{"etcd": stamp("c"), "hosts": stamp("b")}
	if diff := cmp.Diff(want, got.Certificates); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if err := store.Registry.PutHost(ctx, croft.Host{ID: host, Name: "host1"}); err != nil {
		t.Fatal(err)
	}
	if err := store.Trust.RecordJoin(ctx, host, false, nil); croft.KindOf(err) != croft.Conflict {
		t.Errorf("somebody else with its ID: %v", err)
	}
	if err := store.Trust.RecordJoin(ctx, host, true, nil); err != nil {
		t.Errorf("the host itself, once more: %v", err)
	}
	if all := etcdtest.Must(store.Trust.AllJoined(ctx))(t); len(all) != 1 {
		t.Errorf("joined: %v", all)
	}
	if err := store.Registry.ForgetHost(ctx, host); err != nil {
		t.Fatal(err)
	}
	if err := store.Trust.Renewed(ctx, host, "etcd", stamp("d")); croft.KindOf(err) != croft.NotFound {
		t.Errorf("renewed after it was forgotten: %v", err)
	}
	if all := etcdtest.Must(store.Trust.AllJoined(ctx))(t); len(all) != 0 {
		t.Errorf("joined: %v", all)
	}
}

func TestWhereHostsJoinAndWhomToTrust(t *testing.T) {
	t.Parallel()
	store := etcdtest.Open(t, etcdtest.Server(t))
	ctx, host := t.Context(), croft.NewHostID()
	if _, err := store.Trust.Authority(ctx); croft.KindOf(err) != croft.NotFound {
		t.Errorf("before anybody said: %v", err)
	}
	if err := store.Trust.PutAuthority(ctx, []byte("PEM")); err != nil {
		t.Fatal(err)
	}
	if got := etcdtest.Must(store.Trust.Authority(ctx))(t); string(got) != "PEM" {
		t.Errorf("got %s", got)
	}
	want := trust.JoinServer{Addresses: []string{"10.0.0.1:8777"}, Trust: trust.Direct}
	if err := store.Trust.PutJoinServer(ctx, host, want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]trust.JoinServer{want}, etcdtest.Must(store.Trust.JoinServers(ctx))(t)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if err := store.Trust.PutJoinServer(ctx, host, trust.JoinServer{}); err != nil {
		t.Fatal(err)
	}
	if got := etcdtest.Must(store.Trust.JoinServers(ctx))(t); len(got) != 0 {
		t.Errorf("got %v", got)
	}
	gate := trust.JoinServer{Agents: []string{"10.0.0.2:8777"}}
	if err := store.Trust.PutJoinServer(ctx, host, gate); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]trust.JoinServer{gate}, etcdtest.Must(store.Trust.JoinServers(ctx))(t)); diff != "" {
		t.Errorf("where nobody joins: -want +got:\n%s", diff)
	}
}

// TestJoinServersOfNeighbouringVersions imitates the previous version, which knows only the former key, and the next
// version, which knows only the new one.
func TestJoinServersOfNeighbouringVersions(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	store := etcdtest.Open(t, server)
	raw := etcdtest.Client(t, server, etcdstore.Credentials{})
	ctx, host := t.Context(), croft.NewHostID()
	prefix := "/croft/" + string(store.Partition())
	joins, former := prefix+"/joins/"+string(host), prefix+"/control/"+string(host)
	put := func(key, address string) {
		t.Helper()
		if _, err := raw.Put(ctx, key, `{"addresses":["`+address+`"],"trust":"direct"}`); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(key string) {
		t.Helper()
		if _, err := raw.Delete(ctx, key); err != nil {
			t.Fatal(err)
		}
	}
	want := func(what string, addresses ...string) {
		t.Helper()
		var got []string
		for _, j := range etcdtest.Must(store.Trust.JoinServers(ctx))(t) {
			got = append(got, j.Addresses...)
		}
		if diff := cmp.Diff(addresses, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", what, diff)
		}
	}
	put(former, "before:1")
	want("written by the version before", "before:1")
	if err := store.Trust.PutJoinServer(ctx, host, trust.JoinServer{Addresses: []string{"now:1"},
		Trust: trust.Direct}); err != nil {
		t.Fatal(err)
	}
	want("written by this one over it", "now:1")
	if got := etcdtest.Must(raw.Get(ctx, former))(t); len(got.Kvs) != 1 ||
		string(got.Kvs[0].Value) != `{"addresses":["now:1"],"trust":"direct"}` {
		t.Errorf("the version before reads %v", got.Kvs)
	}
	put(former, "before:2")
	want("written by the version before over it", "before:2")
	if err := store.Trust.PutJoinServer(ctx, host, trust.JoinServer{Addresses: []string{"now:2"},
		Trust: trust.Direct}); err != nil {
		t.Fatal(err)
	}
	remove(former)
	want("removed by the version before")
	put(joins, "after:1")
	want("written by the version after", "after:1")
	if err := store.Registry.ForgetHost(ctx, host); err != nil {
		t.Fatal(err)
	}
	want("of a host that was forgotten")
}

func TestWhereAgentsAreServed(t *testing.T) {
	t.Parallel()
	at := []string{"10.0.0.1:8777"}
	for _, c := range []struct {
		name string
		is   trust.JoinServer
		want []string
	}{
		{"a join server that says so", trust.JoinServer{Agents: at}, at},
		{"one of a strict cloud that was written by an older version",
			trust.JoinServer{Addresses: at, Trust: trust.Strict}, at},
		{"one whose hosts reach etcd", trust.JoinServer{Addresses: at, Trust: trust.Direct}, nil},
	} {
		if diff := cmp.Diff(c.want, c.is.ServesAgents()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", c.name, diff)
		}
	}
}
