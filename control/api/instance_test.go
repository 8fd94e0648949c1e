package api_test

import (
	"net/netip"
	"testing"

	"croft"
	"croft/control/api"
)

// An observation of a guest that boots has the address that is reserved for it, where nothing answers yet.
func TestAnInstanceHasAddressesOnlyWhileItRuns(t *testing.T) {
	for state, want := range map[croft.State]int{croft.StateBooting: 0, croft.StateRunning: 1, croft.StateStopped: 0} {
		i := api.InstanceOf(croft.Status{Instance: croft.Instance{State: croft.StateScheduled},
			Observation: &croft.Observation{State: state, Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.1")}}})
		if len(i.Addresses) != want || (i.Address == "10.0.0.1") != (want == 1) {
			t.Errorf("an instance that is %s has the address %q, of %v", state, i.Address, i.Addresses)
		}
	}
}
