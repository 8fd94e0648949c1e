package etcdstore_test

import (
	"testing"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
	"croft/placement/ledger"
	"croft/schedule/scheduletest"
)

func TestStoreKeepsTheContractOfSchedule(t *testing.T) {
	t.Parallel()
	scheduletest.TestStore(t, func(t *testing.T) (scheduletest.Store, croft.PartitionID) {
		store := etcdtest.Start(t)
		return store, store.Partition()
	})
}

func TestStoreWithoutAConnectionKeepsTheContractOfSchedule(t *testing.T) {
	t.Parallel()
	scheduletest.TestStore(t, func(t *testing.T) (scheduletest.Store, croft.PartitionID) {
		store := etcdtest.Embedded(t)
		return store, store.Partition()
	})
}

func TestStoreWithoutAConnectionIsUnavailableOnceItsServerHasEnded(t *testing.T) {
	t.Parallel()
	server, err := etcdserver.Start(t.Context(), etcdserver.Config{Dir: t.TempDir(),
		Listen: "127.0.0.1:0", Unsynced: true})
	if err != nil {
		t.Fatal(err)
	}
	store, err := etcdstore.Open(t.Context(), etcdstore.Config{Embedded: server, Mint: true})
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
	_, err = store.Placement(0).Commit(t.Context(), ledger.Txn{})
	wantKind(t, err, croft.Unavailable)
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}
