package scheduletest_test

import (
	"testing"

	"go.uber.org/goleak"

	"croft"
	"croft/schedule/scheduletest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemoryKeepsTheContract(t *testing.T) {
	scheduletest.TestStore(t, func(*testing.T) (scheduletest.Store, croft.PartitionID) {
		return scheduletest.NewMemory(), croft.NewPartitionID()
	})
}
