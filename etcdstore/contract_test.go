package etcdstore_test

import (
	"testing"

	"croft"
	"croft/etcdstore/etcdtest"
	"croft/schedule/scheduletest"
)

func TestStoreKeepsTheContractOfSchedule(t *testing.T) {
	scheduletest.TestStore(t, func(t *testing.T) (scheduletest.Store, croft.PartitionID) {
		store := etcdtest.Start(t)
		return store, store.Partition()
	})
}
