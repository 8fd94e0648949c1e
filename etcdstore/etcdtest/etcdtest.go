// Package etcdtest starts real etcd servers for tests.
package etcdtest

import (
	"testing"
	"time"

	"croft/etcdstore"
)

// Start runs an embedded etcd in a directory of the test's own and returns a
// store on it, with a partition of its own. Both end with the test.
func Start(t testing.TB) *etcdstore.Store {
	t.Helper()
	return Open(t, Server(t))
}

// Server runs an embedded etcd and returns it; it ends with the test.
func Server(t testing.TB) *etcdstore.Embedded {
	t.Helper()
	server, err := etcdstore.StartEmbedded(t.Context(), etcdstore.EmbeddedConfig{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", Unsynced: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return server
}

// Open returns one more store on a server, as another process would have.
func Open(t testing.TB, server *etcdstore.Embedded) *etcdstore.Store {
	t.Helper()
	store, err := etcdstore.Open(t.Context(), etcdstore.Config{
		Endpoints: []string{server.Endpoint()}, DialTimeout: 20 * time.Second, Mint: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}
