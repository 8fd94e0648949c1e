package etcdstore_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
)

func TestAnInvitationLastsAsLongAsItsLease(t *testing.T) {
	server := etcdtest.Server(t)
	store := etcdtest.Open(t, server)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := store.PutInvitation(ctx, "one", []byte("sealed"), time.Hour); err != nil {
		t.Fatal(err)
	}
	if got := must(store.Invitation(ctx, "one"))(t); string(got) != "sealed" {
		t.Errorf("got %q", got)
	}
	_, err := store.Invitation(ctx, "two")
	wantKind(t, err, croft.NotFound)
	etcd := etcdtest.Client(t, server, etcdstore.Access{})
	leases := must(etcd.Leases(ctx))(t).Leases
	if ttl := must(etcd.TimeToLive(ctx, leases[0].ID))(t).GrantedTTL; len(leases) != 1 || ttl != 3600 {
		t.Errorf("there are %d leases, of %d s", len(leases), ttl)
	}
	revokeAll(t, etcd) // as time does
	_, err = store.Invitation(ctx, "one")
	wantKind(t, err, croft.NotFound)
}

func TestMembersTellWhereTheyAre(t *testing.T) {
	server := etcdtest.ServerWith(t, etcdstore.EmbeddedConfig{})
	if got := must(etcdtest.Open(t, server).Advertised(t.Context()))(t); !slices.Equal(got, []string{"http://127.0.0.1:0"}) {
		t.Errorf("got %q, want what it was told to listen on", got)
	}
}
