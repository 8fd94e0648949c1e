package etcdstore_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
)

func TestAHostThatJoinedIsKnownUntilItIsForgotten(t *testing.T) {
	t.Parallel()
	store := etcdtest.Open(t, etcdtest.Server(t))
	ctx, host := t.Context(), croft.NewHostID()
	if _, err := store.Joined(ctx, host); croft.KindOf(err) != croft.NotFound {
		t.Errorf("before it joined: %v", err)
	}
	now := time.Now().UTC().Truncate(time.Second)
	stamp := func(by string) etcdstore.Stamp {
		return etcdstore.Stamp{By: by, Made: now, Until: now.Add(time.Hour)}
	}
	if err := store.Renewed(ctx, host, "etcd", stamp("a")); croft.KindOf(err) != croft.NotFound {
		t.Errorf("renewed before it joined: %v", err)
	}
	for range 2 { // the first answer may be lost
		if err := store.Admit(ctx, host, false, map[string]etcdstore.Stamp{"etcd": stamp("a"), "hosts": stamp("b")}); err != nil {
			t.Fatal(err)
		}
	}
	if err := store.Renewed(ctx, host, "etcd", stamp("c")); err != nil {
		t.Fatal(err)
	}
	got := must(store.Joined(ctx, host))(t)
	want := map[string]etcdstore.Stamp{"etcd": stamp("c"), "hosts": stamp("b")}
	if diff := cmp.Diff(want, got.Certificates); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if err := store.PutHost(ctx, croft.Host{ID: host, Name: "host1"}); err != nil {
		t.Fatal(err)
	}
	if err := store.Admit(ctx, host, false, nil); croft.KindOf(err) != croft.Conflict {
		t.Errorf("somebody else with its ID: %v", err)
	}
	if err := store.Admit(ctx, host, true, nil); err != nil {
		t.Errorf("the host itself, once more: %v", err)
	}
	if all := must(store.AllJoined(ctx))(t); len(all) != 1 {
		t.Errorf("joined: %v", all)
	}
	if err := store.ForgetHost(ctx, host); err != nil {
		t.Fatal(err)
	}
	if err := store.Renewed(ctx, host, "etcd", stamp("d")); croft.KindOf(err) != croft.NotFound {
		t.Errorf("renewed after it was forgotten: %v", err)
	}
	if all := must(store.AllJoined(ctx))(t); len(all) != 0 {
		t.Errorf("joined: %v", all)
	}
}

func TestWhereControlListensAndWhomToTrust(t *testing.T) {
	t.Parallel()
	store := etcdtest.Open(t, etcdtest.Server(t))
	ctx, host := t.Context(), croft.NewHostID()
	if _, err := store.Authority(ctx); croft.KindOf(err) != croft.NotFound {
		t.Errorf("before anybody said: %v", err)
	}
	if err := store.PutAuthority(ctx, []byte("PEM")); err != nil {
		t.Fatal(err)
	}
	if got := must(store.Authority(ctx))(t); string(got) != "PEM" {
		t.Errorf("got %s", got)
	}
	want := etcdstore.Control{Addresses: []string{"10.0.0.1:8777"}, Trust: etcdstore.TrustDirect}
	if err := store.PutControl(ctx, host, want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]etcdstore.Control{want}, must(store.Controls(ctx))(t)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if err := store.PutControl(ctx, host, etcdstore.Control{}); err != nil {
		t.Fatal(err)
	}
	if got := must(store.Controls(ctx))(t); len(got) != 0 {
		t.Errorf("got %v", got)
	}
	gate := etcdstore.Control{Agents: []string{"10.0.0.2:8777"}}
	if err := store.PutControl(ctx, host, gate); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]etcdstore.Control{gate}, must(store.Controls(ctx))(t)); diff != "" {
		t.Errorf("where nobody joins: -want +got:\n%s", diff)
	}
}

func TestWhereAgentsAreServed(t *testing.T) {
	t.Parallel()
	at := []string{"10.0.0.1:8777"}
	for _, c := range []struct {
		name string
		is   etcdstore.Control
		want []string
	}{
		{"a control process that says so", etcdstore.Control{Agents: at}, at},
		{"one of a strict cloud that was written by an older version", etcdstore.Control{Addresses: at, Trust: etcdstore.TrustStrict}, at},
		{"one whose hosts reach etcd", etcdstore.Control{Addresses: at, Trust: etcdstore.TrustDirect}, nil},
	} {
		if diff := cmp.Diff(c.want, c.is.ServesAgents()); diff != "" {
			t.Errorf("%s: -want +got:\n%s", c.name, diff)
		}
	}
}
