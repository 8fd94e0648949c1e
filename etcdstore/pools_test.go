package etcdstore_test

import (
	"context"
	"testing"
	"time"

	"croft/etcdstore/etcdtest"
	"croft/pool"
	"croft/pool/pooltest"
)

func TestStoreKeepsTheContractOfPools(t *testing.T) {
	pooltest.TestStore(t, func(t *testing.T) (func() pool.Store, func()) {
		server := etcdtest.Server(t)
		first := etcdtest.Open(t, server)
		lose := func() {
			if err := etcdtest.Delete(t.Context(), server.Endpoint(), first.Partition(), "pools/leader"); err != nil {
				t.Error(err)
			}
		}
		return func() pool.Store { return etcdtest.Open(t, server) }, lose
	})
}

// A server that was killed comes back to its place: it need not wait for its own lease.
func TestAServerTakesOverFromItsPlace(t *testing.T) {
	server := etcdtest.Server(t)
	first, second := etcdtest.Open(t, server), etcdtest.Open(t, server)
	began, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- first.Lead(t.Context(), pool.Server{Name: "one", Place: "here"}, func(ctx context.Context, _ pool.Term) error {
			close(began)
			<-ctx.Done()
			return nil
		})
	}()
	<-began
	begun := time.Now()
	if err := second.Lead(t.Context(), pool.Server{Name: "one", Place: "here"}, func(context.Context, pool.Term) error { return nil }); err != nil {
		t.Error(err)
	}
	if took := time.Since(begun); took > 4*time.Second {
		t.Errorf("it took %s, as long as a lease", took)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
