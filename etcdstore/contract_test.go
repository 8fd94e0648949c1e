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

// scheduling returns the parts of a store that a scheduler uses.
func scheduling(s *etcdstore.Store) scheduletest.Store {
	return scheduletest.Store{Partition: s.Partition(), Records: s.Instances, Holds: s.Instances, View: s.Instances,
		Registry: s.Registry, Groups: s.Groups, Agents: s.Registry, Orders: s.Orders, Losses: s.Instances}
}

func TestStoreKeepsTheContractOfSchedule(t *testing.T) {
	t.Parallel()
	scheduletest.TestStore(t, func(t *testing.T) scheduletest.Store { return scheduling(etcdtest.Start(t)) })
}

func TestStoreWithoutAConnectionKeepsTheContractOfSchedule(t *testing.T) {
	t.Parallel()
	scheduletest.TestStore(t, func(t *testing.T) scheduletest.Store { return scheduling(etcdtest.Embedded(t)) })
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
	etcdtest.WantKind(t, err, croft.Unavailable)
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}
