package image

import (
	"net"
	"net/netip"
	"slices"

	"croft"
)

// zone is where an address is, as seen from this host. A redirect leads to the
// internet or stays in the zone that the reference itself led to: what a server may
// have fetched from a host's own network is decided by whoever wrote the reference.
type zone string

const (
	internet  zone = "the internet"
	ownLAN    zone = "this host's own network"
	nearLink  zone = "the link-local address"
	itself    zone = "this host itself"
	noAddress zone = ""
)

// special are the ranges that are not of the internet, beside those that netip knows.
var special = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("fec0::/10"),
}

// zoneOf needs the networks that this host is in, by its own addresses.
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

// embedded is the IPv4 address that NAT64 and 6to4 lead to.
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

// ownAddresses are this host's addresses, each with its network.
func ownAddresses() []netip.Prefix {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil // loopback and private networks are known without
	}
	var own []netip.Prefix
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, p)
		}
	}
	return own
}

// ParseNetworks reads networks, or single addresses.
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
