package outbound

import (
	"cmp"
	"net/netip"
	"slices"

	"croft"
)

// Rule decides which of the addresses are called that a tenant can name, such as the address of a master in the outputs
// of a template. For addresses that an operator configured, such as the URL of a site, CheckAddress decides.
type Rule struct {
	// networks that may be called although they are not part of the internet; an operator lists them
	Allow []netip.Prefix
	// Setting is the name of the setting behind Allow, for errors. Empty: clusters.call_networks.
	Setting string
}

// apart are non-public networks that netip does not know.
var apart = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),      // this host
	netip.MustParsePrefix("100.64.0.0/10"),  // shared address space of providers (CGNAT)
	netip.MustParsePrefix("192.0.0.0/24"),   // protocol assignments
	netip.MustParsePrefix("198.18.0.0/15"),  // benchmarks
	netip.MustParsePrefix("240.0.0.0/4"),    // reserved, and broadcast
	netip.MustParsePrefix("fec0::/10"),      // site-local, deprecated
	netip.MustParsePrefix("64:ff9b:1::/48"), // IPv4 addresses behind a local translator
}

// Check rejects an address that is neither public nor in a network that an operator allows: private, loopback,
// link-local, unique local and multicast ones, addresses of metadata servers, and IPv6 addresses that map to such an
// IPv4 address. Invalid.
func (r Rule) Check(a netip.Addr) error {
	a = embedded(a.WithZone("").Unmap())
	if slices.ContainsFunc(r.Allow, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return nil
	}
	if err := CheckAddress(a); err != nil {
		return err
	}
	if a.IsLoopback() || a.IsPrivate() || !a.IsGlobalUnicast() ||
		slices.ContainsFunc(apart, func(p netip.Prefix) bool { return p.Contains(a) }) {
		return croft.Errorf(croft.Invalid, "%s is no address of the internet, so it is not called for a tenant: an "+
			"operator can allow its network in %s", a, cmp.Or(r.Setting, "clusters.call_networks"))
	}
	return nil
}

// embedded returns the IPv4 address in a NAT64 or 6to4 address.
func embedded(a netip.Addr) netip.Addr {
	b := a.As16()
	switch {
	case nat64.Contains(a):
		return netip.AddrFrom4([4]byte(b[12:]))
	case netip.MustParsePrefix("2002::/16").Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return a
}
