// Package system tests whole clouds: agents with simulated guests, schedulers, a real etcd and a real Placement in
// one process, under random requests and random faults from a printed seed. Every call between two parts may fail
// before it is made, fail after it was done, or be the last one its process makes. Afterwards the invariants of
// docs/ARCHITECTURE.md hold.
package system
