package schedule_test

import (
	"net/netip"
	"testing"

	"croft"
	"croft/schedule"
)

func TestAddress(t *testing.T) {
	v4, v6 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	for _, c := range []struct {
		name string
		o    *croft.Observation
		want string
	}{
		{"nothing seen yet", nil, ""},
		{"none", &croft.Observation{State: croft.StateRunning}, ""},
		{"IPv4 before IPv6", &croft.Observation{State: croft.StateRunning, Addresses: []netip.Addr{v6, v4}},
			"10.0.0.1"},
		{"IPv6 where there is no other", &croft.Observation{State: croft.StateRunning, Addresses: []netip.Addr{v6}},
			"fd00::1"},
		{"one that a stopped guest had does not count", &croft.Observation{State: croft.StateStopped,
			Addresses: []netip.Addr{v4}}, ""},
		{"one that is reserved for a guest that boots does not count", &croft.Observation{State: croft.StateBooting,
			Addresses: []netip.Addr{v4}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			st := croft.Status{Observation: c.o}
			if got := schedule.Address(&st); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if all := schedule.Addresses(&st); len(all) > 0 != (c.want != "") {
				t.Errorf("all addresses are %v", all)
			}
		})
	}
}
