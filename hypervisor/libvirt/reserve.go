package libvirt

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"croft"
)

// reserveAttempts is how often an address is chosen anew because somebody else,
// in another process, took it first.
const reserveAttempts = 8

// pool is what a network's description says of its DHCP server.
type pool struct {
	ranges []addrRange
	hosts  map[string]netip.Addr // by MAC in lower case
}

// addrRange is inclusive.
type addrRange struct{ first, last netip.Addr }

// reserve gives a MAC an address of its own on a network, for as long as the
// instance lives. So it keeps the address while it is stopped, and its first boot
// is some three seconds faster: dnsmasq pings an address that is not reserved, and
// waits for no answer, before it offers it.
//
// An address that it had before, nic.Address, it gets again or none: its packet
// filter knows no other. Networks whose addresses libvirt does not give are left
// alone, and the address is invalid.
func (d *Driver) reserve(c *libvirt.Connect, nic markNIC) (netip.Addr, error) {
	var none netip.Addr
	n, err := c.LookupNetworkByName(nic.Network)
	if err != nil {
		return none, err
	}
	defer n.Free()
	d.reserving.Lock()
	defer d.reserving.Unlock()
	for range reserveAttempts {
		text, err := n.GetXMLDesc(0)
		if err != nil {
			return none, err
		}
		p, err := parsePool(text)
		if err != nil {
			return none, err
		}
		if addr, ok := p.hosts[nic.MAC]; ok || len(p.ranges) == 0 {
			return addr, nil
		}
		taken, own, err := inUse(c, text, nic)
		if err != nil {
			return none, err
		}
		addr, ok := p.choose(nic.MAC, own, taken)
		if !ok {
			return none, croft.Errorf(croft.NoCapacity, "the network %q has no free address: widen its DHCP range with virsh net-edit", nic.Network)
		}
		if nic.Address != "" && addr.String() != nic.Address {
			return none, croft.Errorf(croft.Conflict, "its address %s on the network %q is not free any more: free it, or rebuild the instance", nic.Address, nic.Network)
		}
		err = updateHost(n, libvirt.NETWORK_UPDATE_COMMAND_ADD_LAST, nic.MAC, addr)
		if !is(err, libvirt.ERR_OPERATION_INVALID) {
			return addr, err
		}
	}
	return none, croft.Errorf(croft.Conflict, "others changed the network %q all the time", nic.Network)
}

// unreserve takes the reservation of a MAC back, if there is one.
func (d *Driver) unreserve(c *libvirt.Connect, nic markNIC) error {
	n, err := c.LookupNetworkByName(nic.Network)
	if is(err, libvirt.ERR_NO_NETWORK) {
		return nil
	}
	if err != nil {
		return err
	}
	defer n.Free()
	d.reserving.Lock()
	defer d.reserving.Unlock()
	text, err := n.GetXMLDesc(0)
	if err != nil {
		return err
	}
	p, err := parsePool(text)
	if err != nil {
		return err
	}
	addr, ok := p.hosts[nic.MAC]
	if !ok {
		return nil
	}
	err = updateHost(n, libvirt.NETWORK_UPDATE_COMMAND_DELETE, nic.MAC, addr)
	if is(err, libvirt.ERR_OPERATION_INVALID) {
		return nil // somebody else took it back
	}
	return err
}

// updateHost changes the running network and its definition, whichever there is.
func updateHost(n *libvirt.Network, command libvirt.NetworkUpdateCommand, mac string, addr netip.Addr) error {
	var flags libvirt.NetworkUpdateFlags
	active, err := n.IsActive()
	if err != nil {
		return err
	}
	persistent, err := n.IsPersistent()
	if err != nil {
		return err
	}
	if active {
		flags |= libvirt.NETWORK_UPDATE_AFFECT_LIVE
	}
	if persistent {
		flags |= libvirt.NETWORK_UPDATE_AFFECT_CONFIG
	}
	host := fmt.Sprintf("<host mac='%s' ip='%s'/>", mac, addr)
	return n.Update(command, libvirt.NETWORK_SECTION_IP_DHCP_HOST, -1, host, flags)
}

// parsePool reads the IPv4 DHCP server of a network's description.
func parsePool(text string) (pool, error) {
	var x libvirtxml.Network
	if err := x.Unmarshal(text); err != nil {
		return pool{}, fmt.Errorf("its description: %w", err)
	}
	p := pool{hosts: map[string]netip.Addr{}}
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
			addr, _ := netip.ParseAddr(h.IP) // a host may have a name alone
			p.hosts[strings.ToLower(h.MAC)] = addr
		}
	}
	return p, nil
}

// inUse returns the addresses of a network that others have or use, and the one
// that the MAC itself has had from it.
func inUse(c *libvirt.Connect, text string, nic markNIC) (taken map[netip.Addr]bool, own netip.Addr, err error) {
	taken = map[netip.Addr]bool{}
	byMAC, err := leases(c, nic.Network)
	if err != nil {
		return nil, own, err
	}
	for mac, list := range byMAC {
		for _, l := range list {
			if mac != nic.MAC {
				taken[l.addr] = true
			} else if !own.IsValid() && l.addr.Is4() {
				own = l.addr
			}
		}
	}
	if before, err := netip.ParseAddr(nic.Address); err == nil && !taken[before] {
		own = before
	}
	network, err := parseNetwork(text)
	if err != nil {
		return nil, own, err
	}
	taken[network.Gateway] = true
	for _, n := range allNeighbours(network.Bridge) {
		if n.mac != nic.MAC {
			taken[n.addr] = true
		}
	}
	return taken, own, nil
}

// choose returns an address for a MAC that nobody has: the one it had, or one that
// depends on the MAC alone as long as it is free.
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
		if !addr.Less(r.first) && !r.last.Less(addr) {
			return true
		}
	}
	return false
}

// at returns the n-th address of all ranges.
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
