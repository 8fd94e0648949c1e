package pooltest_test

import (
	"testing"

	"croft/pool"
	"croft/pool/pooltest"
)

func TestMemoryKeepsTheContract(t *testing.T) {
	pooltest.TestStore(t, func(*testing.T) (func() pool.Store, func()) {
		m := pooltest.NewMemory()
		return func() pool.Store { return m }, m.Depose
	})
}
