package libvirt

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
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

// pick chooses the address that a MAC is to have on a network, for as long as the
// instance lives. So it keeps the address while it is stopped. libvirt knows of it once
// it is reserved; until then the driver and the mark of the domain keep it from others.
//
// An address that it had before, nic.Address, it gets again or none: people know it by
// that. Networks whose addresses libvirt does not give are left alone, and the address
// is invalid.
func (d *Driver) pick(c *libvirt.Connect, nic markNIC) (netip.Addr, error) {
	var none netip.Addr
	n, err := c.LookupNetworkByName(nic.Network)
	if err != nil {
		return none, err
	}
	defer n.Free()
	d.reserving.Lock()
	defer d.reserving.Unlock()
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
	if addr, ok := d.picked[nic.Network][nic.MAC]; ok {
		return addr, nil
	}
	taken, own, err := d.inUse(c, text, nic)
	if err != nil {
		return none, err
	}
	addr, ok := p.choose(nic.MAC, own, taken)
	if !ok {
		return none,
			croft.Errorf(croft.NoCapacity,
				"the network %q has no free address: widen its DHCP range with virsh net-edit", nic.Network)
	}
	if nic.Address != "" && addr.String() != nic.Address {
		return none,
			croft.Errorf(croft.Conflict,
				"its address %s on the network %q is not free any more: free it, or rebuild the instance", nic.Address,
				nic.Network)
	}
	if d.picked[nic.Network] == nil {
		d.picked[nic.Network] = map[string]netip.Addr{}
	}
	d.picked[nic.Network][nic.MAC] = addr
	return addr, nil
}

// reserve has a network's DHCP server give a MAC the address that was picked for it, and
// nobody else. dnsmasq pings an address that is not reserved, and waits three seconds
// for no answer, before it offers it. libvirt makes the firewall of the network anew for
// each reservation, which takes a third of a second; so it is made while the guest boots,
// and until then the packet filter drops the guest's question for an address.
//
// Conflict: somebody in another process has taken the address.
func (d *Driver) reserve(c *libvirt.Connect, nic markNIC) error {
	addr, err := netip.ParseAddr(nic.Address)
	if err != nil || nic.Network == "" {
		return nil // it has none of libvirt's
	}
	n, err := c.LookupNetworkByName(nic.Network)
	if err != nil {
		return err
	}
	defer n.Free()
	d.reserving.Lock()
	defer d.reserving.Unlock()
	for range reserveAttempts {
		text, err := n.GetXMLDesc(0)
		if err != nil {
			return err
		}
		p, err := parsePool(text)
		if err != nil {
			return err
		}
		for mac, other := range p.hosts {
			switch {
			case mac == nic.MAC && other == addr:
				return nil
			case mac == nic.MAC || other == addr:
				delete(d.picked[nic.Network], nic.MAC)
				return croft.Errorf(croft.Conflict,
					"its address %s on the network %q: the network gives %s to %s: free it, or rebuild the instance",
					addr, nic.Network, other, mac)
			}
		}
		err = updateHost(n, libvirt.NETWORK_UPDATE_COMMAND_ADD_LAST, nic.MAC, addr)
		if !is(err, libvirt.ERR_OPERATION_INVALID) {
			return err
		}
	}
	return croft.Errorf(croft.Conflict, "others changed the network %q all the time", nic.Network)
}

// reserveAll makes the reservations of a domain that libvirt does not have yet.
func (d *Driver) reserveAll(c *libvirt.Connect, k mark) error {
	for _, nic := range k.NICs {
		if err := d.reserve(c, nic); err != nil {
			return fmt.Errorf("reserve an address: %w", err)
		}
	}
	return d.refilter(c, k.Partition, false) // from now on it may ask for it
}

// reserveMissing makes the reservations that domains of a partition do not have: those
// that are stopped, and those whose start was interrupted.
func (d *Driver) reserveMissing(ctx context.Context, p croft.PartitionID) error {
	ids, err := call(ctx, d, task{verb: "look for addresses that are not reserved"},
		func(c *libvirt.Connect) ([]croft.InstanceID, error) {
			list, err := d.domains(c)
			if err != nil {
				return nil, err
			}
			facts, err := lookAtNetworks(c, list)
			if err != nil {
				return nil, err
			}
			return unreserved(p, list, facts), nil
		})
	if err != nil {
		return err
	}
	for _, id := range ids {
		// About the instance, so that its removal comes before or after.
		err := do(ctx, d, about("reserve the address of", id), func(c *libvirt.Connect) error {
			return with(c, id, func(_ *libvirt.Domain, k mark) error { return d.reserveAll(c, k) })
		})
		if err != nil && croft.KindOf(err) != croft.NotFound {
			return err
		}
	}
	return nil
}

// unreserved are the domains of a partition with an address that its network does not
// know of.
func unreserved(p croft.PartitionID, list []domain, facts map[string]networkFacts) []croft.InstanceID {
	var ids []croft.InstanceID
	for _, one := range list {
		missing := func(n markNIC) bool {
			f, known := facts[n.Network]
			_, reserved := f.pool.hosts[n.MAC]
			return known && n.Address != "" && !reserved
		}
		if one.Partition == p && slices.ContainsFunc(one.nics, missing) {
			ids = append(ids, one.ID)
		}
	}
	return ids
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
	delete(d.picked[nic.Network], nic.MAC)
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

// inUse returns the addresses of a network that others have, use or are to have, and
// the one that the MAC itself has had from it.
func (d *Driver) inUse(c *libvirt.Connect, text string, nic markNIC) (taken map[netip.Addr]bool, own netip.Addr,
	err error) {
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
	for mac, addr := range d.picked[nic.Network] {
		taken[addr] = taken[addr] || mac != nic.MAC
	}
	list, err := d.domains(c) // picked by the driver before a restart, or by another
	if err != nil {
		return nil, own, err
	}
	for _, one := range list {
		for _, n := range one.nics {
			if addr, err := netip.ParseAddr(n.Address); err == nil && n.Network == nic.Network && n.MAC != nic.MAC {
				taken[addr] = true
			}
		}
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
	if before, err := netip.ParseAddr(nic.Address); err == nil && !taken[before] {
		own = before
	}
	if taken[own] {
		own = netip.Addr{}
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
