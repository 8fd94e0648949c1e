package scheduletest_test

import (
	"testing"

	"go.uber.org/goleak"

	"croft"
	"croft/schedule/scheduletest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemoryKeepsTheContract(t *testing.T) {
	scheduletest.TestStore(t, func(*testing.T) scheduletest.Store {
		m := scheduletest.NewMemory()
		return scheduletest.Store{Partition: croft.NewPartitionID(), Records: m, Holds: m, View: m, Registry: m,
			Groups: m,
			Agents: m, Orders: m, Losses: m}
	})
}
