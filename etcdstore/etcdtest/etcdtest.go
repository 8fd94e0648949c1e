// Package etcdtest starts real etcd servers for tests.
package etcdtest

import (
	"testing"
	"time"

	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
)

// Start runs an embedded etcd in its own directory and returns a store on it, with its own partition. Both end
// with the test.
func Start(t testing.TB) *etcdstore.Store {
	t.Helper()
	return Open(t, Server(t))
}

// Server runs an embedded etcd and returns it; it ends with the test.
func Server(t testing.TB) *etcdserver.Server {
	t.Helper()
	server, err := etcdserver.Start(t.Context(), etcdserver.Config{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", Unsynced: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return server
}

// Embedded returns a store on its own server, without a connection between them, as in a process with both. Both end
// with the test.
func Embedded(t testing.TB) *etcdstore.Store {
	t.Helper()
	return open(t, etcdstore.Config{Embedded: Server(t)})
}

// Open returns another store on a server, as another process would.
func Open(t testing.TB, server *etcdserver.Server) *etcdstore.Store {
	t.Helper()
	return open(t, etcdstore.Config{Endpoints: []string{server.Endpoint()}})
}

func open(t testing.TB, c etcdstore.Config) *etcdstore.Store {
	t.Helper()
	c.DialTimeout, c.Mint = 20*time.Second, true
	store, err := etcdstore.Open(t.Context(), c)
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
