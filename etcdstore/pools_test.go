package etcdstore_test

import (
	"testing"

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
