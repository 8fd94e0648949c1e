package control

import (
	"net/netip"
	"testing"

	"croft"
	"croft/internal/endpoint"
)

// TestOnlyGuestsAreConnectedTo: a host that reports a false address must not make the API connect into the cloud's own
// network.
func TestOnlyGuestsAreConnectedTo(t *testing.T) {
	t.Parallel()
	cases := map[string]bool{"10.1.2.3": true, "192.168.122.7": true, "2001:db8::7": true, "127.0.0.1": false,
		"::1": false, "::ffff:127.0.0.1": false, "169.254.169.254": false, "0.0.0.0": false, "224.0.0.1": false}
	for _, own := range endpoint.OwnAddresses() {
		cases[own] = false
	}
	for address, want := range cases {
		st := croft.Status{Observation: &croft.Observation{State: croft.StateRunning,
			Addresses: []netip.Addr{netip.MustParseAddr(address)}}}
		if err := checkAddress(st); (err == nil) != want {
			t.Errorf("%s: got %v, want it allowed: %v", address, err, want)
		}
	}
}
