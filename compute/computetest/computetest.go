// Package computetest holds the contract that an agent's orders, records and claims satisfy, as tests to run
// against each implementation.
package computetest

import (
	"testing"
)

// Run tests a cloud. open returns a cloud with a new host; it may contain other objects.
func Run(t *testing.T, open func(*testing.T) Cloud) {
	for _, c := range []struct {
		name string
		test func(*stage)
	}{
		{"orders wake as they are, as they change and as they go", testWatch},
		{"orders that come and go while the connection is lost wake too", testWatchBroken},
		{"an order is read as it was written", testOrder},
		{"an observation needs an order, and is read as it was written", testObserve},
		{"a late observation does not count for a later order with the same UUID", testLateObserve},
		{"a tombstone that was carried out takes all with it", testForget},
		{"the tombstone of an instance that lives elsewhere leaves that alone", testForgetMoved},
		{"whether the host before has an order is told while the instance moves", testMoved},
		{"a host before that is forgotten is not waited for", testMovedFromForgotten},
		{"the host's record is read as it was written", testPutHost},
		{"a host is alive from when it is known until its agent ends", testServe},
		{"a host is alive again after its connection was lost", testServeBroken},
		{"an agent of another place stands by until the first one has left", testRival},
		{"an agent that may not have the agent lock gives it up", testLockRefused},
		{"an agent notices that its host is declared dead, and observes only with that knowledge", testDeath},
		{"the record of an instance here is read as it was written", testInstance},
		{"the books of a host are its orders, observations and their records", testHostBooks},
		{"a lost order and a lost observation are dropped, others are not", testDrop},
		{"a provider becomes what it is said to be, and its claims are read", testInventory},
		{"the claim of an instance that is to go is released, also twice", testRelease},
		{"a claim without a record is released", testReleaseLeaked},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(&stage{Cloud: open(t), t: t}) })
	}
}
