package image

import (
	"net"
	"net/netip"
	"slices"

	"croft"
)

// zone classifies an address as seen from this host. A redirect may lead to the internet or within the zone
// of the reference: only the author of the reference, not a server, may choose to fetch from a host's own
// network.
type zone string

const (
	internet  zone = "the internet"
	ownLAN    zone = "this host's own network"
	nearLink  zone = "the link-local address"
	itself    zone = "this host itself"
	noAddress zone = ""
)

// special are the ranges outside the internet that netip does not know.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("fec0::/10"),
}

// zoneOf takes the networks of this host's own addresses as own.
func zoneOf(a netip.Addr, own []netip.Prefix) zone {
	a = embedded(a.Unmap()).WithZone("")
	within := func(p netip.Prefix) bool { return p.Contains(a) }
	switch {
	case a.IsLoopback() || a.IsUnspecified():
		return itself
	case slices.ContainsFunc(own, func(p netip.Prefix) bool { return p.Addr() == a }):
		return itself
	case a.IsLinkLocalUnicast():
		return nearLink
	case a.IsPrivate() || a.IsMulticast() || slices.ContainsFunc(special, within) || slices.ContainsFunc(own, within):
		return ownLAN
	}
	return internet
}

// embedded returns the IPv4 address in a NAT64 or 6to4 address.
func embedded(a netip.Addr) netip.Addr {
	b := a.As16()
	switch {
	case netip.MustParsePrefix("64:ff9b::/96").Contains(a):
		return netip.AddrFrom4([4]byte(b[12:]))
	case netip.MustParsePrefix("2002::/16").Contains(a):
		return netip.AddrFrom4([4]byte(b[2:6]))
	}
	return a
}

// ownAddresses returns this host's addresses, each with its network.
func ownAddresses() []netip.Prefix {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil // loopback and private networks are known anyway
	}
	var own []netip.Prefix
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, p)
		}
	}
	return own
}

// ParseNetworks parses networks, or single addresses.
func ParseNetworks(texts []string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if a, err2 := netip.ParseAddr(text); err2 == nil {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			return nil, croft.Errorf(croft.Invalid, "%q is no network such as 10.0.0.0/8, and no address", text)
		}
		all = append(all, p.Masked())
	}
	return all, nil
}
