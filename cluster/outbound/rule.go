package outbound

import (
	"cmp"
	"net/netip"
	"slices"

	"croft"
)

// Rule decides which addresses are called that a tenant can name, such as that of a master in the outputs of a
// template. What an operator configured, such as the URL of a site, CheckAddress decides about.
type Rule struct {
	// networks that are called although they are not part of the internet; an operator lists them
	Allow []netip.Prefix
	// Setting is the setting that Allow comes from, for errors. Empty: clusters.call_networks.
	Setting string
}

// apart are networks beside the internet that netip does not know.
var apart = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),      // this host
	netip.MustParsePrefix("100.64.0.0/10"),  // shared by the customers of a provider
	netip.MustParsePrefix("192.0.0.0/24"),   // of protocols
	netip.MustParsePrefix("198.18.0.0/15"),  // of benchmarks
	netip.MustParsePrefix("240.0.0.0/4"),    // reserved, and broadcast
	netip.MustParsePrefix("fec0::/10"),      // of sites, formerly
	netip.MustParsePrefix("64:ff9b:1::/48"), // any IPv4 address, behind a translator of this network
}

// Check refuses an address that is neither of the internet nor in a network that an operator allows: private, loopback,
// link-local and unique local ones, those of groups and of metadata servers, and IPv6 addresses that lead to such an
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

// embedded returns the IPv4 address that an address of a translator or of a 6to4 tunnel leads to.
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
