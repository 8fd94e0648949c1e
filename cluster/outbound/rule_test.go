package outbound_test

import (
	"net/netip"
	"testing"

	"croft"
	"croft/cluster/outbound"
)

func TestWhatATenantNamesIsOfTheInternetOrAllowed(t *testing.T) {
	allowing := outbound.Rule{Allow: []netip.Prefix{netip.MustParsePrefix("10.20.0.0/16"),
		netip.MustParsePrefix("fd00:1::/32"), netip.MustParsePrefix("127.0.0.2/32")}}
	for address, want := range map[string]struct{ strict, allowing bool }{
		"203.0.113.7": {true, true}, "2a00::1": {true, true}, "::ffff:203.0.113.7": {true, true},
		"64:ff9b::cb00:7107": {true, true}, "10.20.1.1": {false, true}, "::ffff:10.20.1.1": {false, true},
		"64:ff9b::a14:101": {false, true}, "fd00:1::5": {false, true}, "127.0.0.2": {false, true},
		"10.21.1.1": {}, "172.16.0.1": {}, "192.168.1.1": {}, "127.0.0.1": {}, "::1": {}, "169.254.169.254": {},
		"fe80::1": {}, "fd00:2::5": {}, "fd00:ec2::254": {}, "100.64.0.1": {}, "100.100.100.200": {}, "224.0.0.1": {},
		"ff02::1": {}, "0.0.0.0": {}, "::": {}, "255.255.255.255": {}, "64:ff9b::7f00:1": {}, "2002:7f00:1::": {},
		"2002:a9fe:a9fe::": {}, "64:ff9b:1::a00:1": {}, "::ffff:127.0.0.1": {}, "fec0::1": {},
	} {
		a := netip.MustParseAddr(address)
		for rule, called := range map[*outbound.Rule]bool{{}: want.strict, &allowing: want.allowing} {
			if err := rule.Check(a); (err == nil) != called || err != nil && croft.KindOf(err) != croft.Invalid {
				t.Errorf("%s with %v: %v", address, rule.Allow, err)
			}
		}
	}
}
