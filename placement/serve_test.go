package placement_test

import (
	"context"
	"net/http/httptest"
	"testing"

	"go.uber.org/goleak"

	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
	"croft/placement"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs a server on a new etcd and returns its address.
func serve(t testing.TB) string {
	t.Helper()
	return serveOn(t, etcdtest.Start(t))
}

// serveOn runs another server on a store. It ends with the test.
func serveOn(t testing.TB, store *etcdstore.Store) string {
	t.Helper()
	return serveWith(t, placement.Config{Store: store.Placement(etcdserver.TxnOps)})
}

// serveWith runs a server as configured. It ends with the test.
func serveWith(t testing.TB, c placement.Config) string {
	t.Helper()
	server, err := placement.New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	if err := server.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(server.Handler())
	t.Cleanup(func() {
		web.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return web.URL
}
