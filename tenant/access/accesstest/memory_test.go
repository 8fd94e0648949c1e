package accesstest_test

import (
	"testing"

	"croft/tenant/access/accesstest"
)

func TestMemoryKeepsTheContract(t *testing.T) {
	accesstest.Run(t, func(*testing.T) accesstest.Store {
		m := accesstest.NewMemory()
		return accesstest.Store{Tokens: m, TokenFeed: m, Break: m.Break}
	})
}
