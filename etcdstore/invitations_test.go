package etcdstore_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
	"croft/internal/testing/patient"
	"croft/trust"
)

func TestAnInvitationLastsAsLongAsItsLease(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	store := etcdtest.Open(t, server)
	ctx, cancel := context.WithTimeout(t.Context(), patient.Longest)
	defer cancel()
	if err := store.Trust.PutInvitation(ctx, trust.Invitation{Name: "one", Sealed: []byte("sealed")},
		time.Hour); err != nil {
		t.Fatal(err)
	}
	if got := etcdtest.Must(store.Trust.Invitation(ctx, "one"))(t); string(got.Sealed) != "sealed" {
		t.Errorf("got %q", got.Sealed)
	}
	for _, name := range []string{"two", "", "../authority"} {
		_, err := store.Trust.Invitation(ctx, name)
		etcdtest.WantKind(t, err, croft.NotFound)
	}
	etcd := etcdtest.Client(t, server, etcdstore.Credentials{})
	leases := etcdtest.Must(etcd.Leases(ctx))(t).Leases
	if ttl := etcdtest.Must(etcd.TimeToLive(ctx, leases[0].ID))(t).GrantedTTL; len(leases) != 1 || ttl != 3600 {
		t.Errorf("there are %d leases, of %d s", len(leases), ttl)
	}
	revokeAll(t, etcd) // as if they had expired
	_, err := store.Trust.Invitation(ctx, "one")
	etcdtest.WantKind(t, err, croft.NotFound)
}

func TestARevokedInvitationIsGone(t *testing.T) {
	t.Parallel()
	store := etcdtest.Start(t)
	for i, name := range []string{"aa1", "aa2", "b"} {
		life := time.Hour * time.Duration(3-i)
		if err := store.Trust.PutInvitation(t.Context(), trust.Invitation{Name: name, Note: "for " + name,
			Sealed: []byte(name)}, life); err != nil {
			t.Fatal(err)
		}
	}
	names := func() (all []string) {
		for _, i := range etcdtest.Must(store.Trust.Invitations(t.Context()))(t) {
			all = append(all, i.Name+" "+i.Note)
		}
		return all
	}
	if got, want := names(), []string{"b for b", "aa2 for aa2", "aa1 for aa1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q: what runs out first first", got, want)
	}
	for name, kind := range map[string]croft.Kind{"a": croft.Conflict, "c": croft.NotFound, "": croft.NotFound} {
		_, err := store.Trust.RevokeInvitation(t.Context(), name)
		etcdtest.WantKind(t, err, kind)
	}
	if got := etcdtest.Must(store.Trust.RevokeInvitation(t.Context(), "aa2"))(t); got.Note != "for aa2" {
		t.Errorf("revoked %+v", got)
	}
	_, err := store.Trust.Invitation(t.Context(), "aa2")
	etcdtest.WantKind(t, err, croft.NotFound)
	if got := names(); len(got) != 2 {
		t.Errorf("left: %q", got)
	}
}

func TestMembersTellWhereTheyAre(t *testing.T) {
	t.Parallel()
	server := etcdtest.ServerWith(t, etcdserver.Config{})
	if got := etcdtest.Must(etcdtest.Open(t, server).Cluster.Advertised(t.Context()))(t); !slices.Equal(got,
		[]string{"http://127.0.0.1:0"}) {
		t.Errorf("got %q, want what it was told to listen on", got)
	}
}
