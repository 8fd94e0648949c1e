package libvirt

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"libvirt.org/go/libvirtxml"
)

// pool is the configuration of the DHCP and DNS server in a network's XML.
type pool struct {
	ranges  []addrRange
	hosts   map[string]netip.Addr // by MAC, lower case
	names   map[string]string     // that the DHCP server gives to MACs, lower case
	records []record              // of the DNS
}

// addrRange is inclusive.
type addrRange struct{ first, last netip.Addr }

// parsePool reads the IPv4 DHCP configuration from a network's XML.
func parsePool(text string) (pool, error) {
	var x libvirtxml.Network
	if err := x.Unmarshal(text); err != nil {
		return pool{}, fmt.Errorf("its description: %w", err)
	}
	p := pool{hosts: map[string]netip.Addr{}, names: map[string]string{}, records: parseRecords(x.DNS)}
	for _, ip := range x.IPs {
		if ip.DHCP == nil || ip.Family == "ipv6" {
			continue
		}
		for _, r := range ip.DHCP.Ranges {
			first, err1 := netip.ParseAddr(r.Start)
			last, err2 := netip.ParseAddr(r.End)
			if err1 == nil && err2 == nil && first.Is4() && last.Is4() && !last.Less(first) {
				p.ranges = append(p.ranges, addrRange{first, last})
			}
		}
		for _, h := range ip.DHCP.Hosts {
			addr, _ := netip.ParseAddr(h.IP) // a host entry may have a name without an IP
			p.hosts[strings.ToLower(h.MAC)] = addr
			p.names[strings.ToLower(h.MAC)] = h.Name
		}
	}
	return p, nil
}

// choose returns a free address for a MAC: its previous one, or one derived from the MAC while that is free.
func (p pool) choose(mac string, own netip.Addr, taken map[netip.Addr]bool) (netip.Addr, bool) {
	reserved := map[netip.Addr]bool{}
	for _, addr := range p.hosts {
		reserved[addr] = true
	}
	var size uint64
	for _, r := range p.ranges {
		size += r.size()
	}
	if own.IsValid() && !reserved[own] && p.contains(own) {
		return own, true
	}
	sum := sha256.Sum256([]byte(mac))
	start := binary.BigEndian.Uint64(sum[:]) % size
	for i := range size {
		addr := p.at((start + i) % size)
		if !reserved[addr] && !taken[addr] {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

func (p pool) contains(addr netip.Addr) bool {
	for _, r := range p.ranges {
		if r.contains(addr) {
			return true
		}
	}
	return false
}

func (r addrRange) contains(addr netip.Addr) bool {
	return addr.Is4() && !addr.Less(r.first) && !r.last.Less(addr)
}

// guestRanges returns the ranges of a pool without the addresses of the network that no guest can have: its gateway,
// its first address, and the broadcast address.
func guestRanges(p pool, n Network) []addrRange {
	ranges := p.ranges
	if !n.Subnet.IsValid() {
		return ranges
	}
	first := number(n.Subnet.Addr())
	for _, own := range []netip.Addr{n.Subnet.Addr(), n.Gateway, fromNumber(first | (1<<(32-n.Subnet.Bits()) - 1))} {
		var rest []addrRange
		for _, r := range ranges {
			if !r.contains(own) {
				rest = append(rest, r)
				continue
			}
			if r.first != own {
				rest = append(rest, addrRange{r.first, own.Prev()})
			}
			if r.last != own {
				rest = append(rest, addrRange{own.Next(), r.last})
			}
		}
		ranges = rest
	}
	return ranges
}

// at returns the n-th address across all ranges.
func (p pool) at(n uint64) netip.Addr {
	for _, r := range p.ranges {
		if n < r.size() {
			return fromNumber(number(r.first) + uint32(n))
		}
		n -= r.size()
	}
	return netip.Addr{}
}

func (r addrRange) size() uint64 { return uint64(number(r.last)) - uint64(number(r.first)) + 1 }

func number(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

func fromNumber(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}
