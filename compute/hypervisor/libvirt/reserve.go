package libvirt

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"libvirt.org/go/libvirt"

	"croft"
)

// reserveAttempts limits the retries with another address after a conflict with another process.
const reserveAttempts = 8

// reservations assigns addresses of libvirt's networks to interfaces.
type reservations struct {
	domains *domainReader

	mu     sync.Mutex                       // held while addresses are assigned and released
	picked map[string]map[string]netip.Addr // assigned addresses, by network and MAC
}

// pick chooses the address of a MAC on a network for the lifetime of the instance: a stopped instance keeps it. libvirt
// knows it once it is reserved; until then the driver and the domain's mark keep others from using it.
//
// A previous address, nic.Address, is assigned again or not replaced, because users know the instance by it.
// On networks whose addresses libvirt does not assign, pick returns the invalid address.
func (r *reservations) pick(c *libvirt.Connect, nic markNIC) (netip.Addr, error) {
	var none netip.Addr
	n, err := c.LookupNetworkByName(nic.Network)
	if err != nil {
		return none, err
	}
	defer n.Free()
	r.mu.Lock()
	defer r.mu.Unlock()
	text, err := n.GetXMLDesc(0)
	if err != nil {
		return none, err
	}
	p, err := parsePool(text)
	if err != nil {
		return none, err
	}
	addr, ok := p.hosts[nic.MAC]
	if !ok {
		addr, ok = r.picked[nic.Network][nic.MAC]
	}
	switch {
	case nic.Chosen && ok && addr.String() != nic.Address:
		return none, errChosen(nic)
	case nic.Chosen && !ok:
		if addr, err = r.chosen(c, text, p, nic); err != nil {
			return none, err
		}
		r.note(nic, addr)
		return addr, nil
	case ok, len(p.ranges) == 0:
		return addr, nil
	}
	taken, own, err := r.inUse(c, text, nic)
	if err != nil {
		return none, err
	}
	addr, ok = p.choose(nic.MAC, own, taken)
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
	r.note(nic, addr)
	return addr, nil
}

// note keeps an address from other interfaces until it is reserved. The caller holds r.mu.
func (r *reservations) note(nic markNIC, addr netip.Addr) {
	if r.picked[nic.Network] == nil {
		r.picked[nic.Network] = map[string]netip.Addr{}
	}
	r.picked[nic.Network][nic.MAC] = addr
}

// chosen returns the chosen address of an interface if the network gives it to guests, and no other interface has it. A
// lease holds the address only while a domain with its MAC runs: other leases are released. The caller holds r.mu.
func (r *reservations) chosen(c *libvirt.Connect, text string, p pool, nic markNIC) (netip.Addr, error) {
	addr, err := netip.ParseAddr(nic.Address)
	network, bad := parseNetwork(text)
	if err != nil || bad != nil || !slices.ContainsFunc(guestRanges(p, network), func(r addrRange) bool {
		return r.contains(addr)
	}) {
		return addr, errChosen(nic)
	}
	taken, err := r.assigned(c, nic)
	if err != nil {
		return addr, err
	}
	for _, reserved := range p.hosts {
		taken[reserved] = true
	}
	for _, n := range allNeighbours(network.Bridge) {
		taken[n.addr] = taken[n.addr] || n.present && n.mac != nic.MAC
	}
	if taken[addr] {
		return addr, errChosen(nic)
	}
	byMAC, err := leases(c, nic.Network)
	if err != nil {
		return addr, err
	}
	for mac, list := range byMAC {
		for _, l := range list {
			if l.addr != addr || mac == nic.MAC {
				continue
			}
			if runs, err := hasRunningDomain(c, mac); err != nil {
				return addr, err
			} else if runs {
				return addr, errChosen(nic)
			}
			if err := release(network, mac, l); err != nil {
				return addr, err
			}
		}
	}
	return addr, nil
}

// hasRunningDomain reports whether a domain with a MAC runs, also one that is not croft's.
func hasRunningDomain(c *libvirt.Connect, mac string) (bool, error) {
	doms, err := c.ListAllDomains(libvirt.CONNECT_LIST_DOMAINS_ACTIVE)
	if err != nil {
		return false, err
	}
	defer func() {
		for i := range doms {
			_ = doms[i].Free()
		}
	}()
	for i := range doms {
		text, err := doms[i].GetXMLDesc(0)
		if is(err, libvirt.ERR_NO_DOMAIN) {
			continue
		}
		if err != nil {
			return false, err
		}
		if strings.Contains(strings.ToLower(text), "<mac address='"+mac+"'") {
			return true, nil
		}
	}
	return false, nil
}

// errChosen is the error for a chosen address that an interface cannot have.
func errChosen(nic markNIC) error {
	return croft.Errorf(croft.Conflict, "the address %s is not free on the network %q of its host: another guest or "+
		"machine has it, or the network does not give it: free it, and the instance starts, or remove the instance and "+
		"ask for another address", nic.Address, nic.Network)
}

// ranges returns the addresses that a network gives to guests, as FIRST-LAST.
func (r *reservations) ranges(c *libvirt.Connect, network string) (all []string, err error) {
	n, err := c.LookupNetworkByName(network)
	if err != nil {
		return nil, err
	}
	defer n.Free()
	text, err := n.GetXMLDesc(0)
	if err != nil {
		return nil, err
	}
	p, err := parsePool(text)
	if err != nil {
		return nil, err
	}
	described, err := parseNetwork(text)
	for _, r := range guestRanges(p, described) {
		all = append(all, r.first.String()+"-"+r.last.String())
	}
	return all, err
}

// reserve makes a network's DHCP server assign the picked address to the MAC and to no other. For an address without a
// reservation dnsmasq sends a ping and waits three seconds for an answer before it offers it. libvirt rewrites the
// network's firewall for each reservation, which takes a third of a second; so the reservation is made while the guest
// boots, and until then the packet filter drops the guest's DHCP requests.
//
// Conflict: another process has taken the address.
func (r *reservations) reserve(c *libvirt.Connect, nic markNIC) error {
	addr, err := netip.ParseAddr(nic.Address)
	if err != nil || nic.Network == "" {
		return nil // not an address of libvirt's
	}
	n, err := c.LookupNetworkByName(nic.Network)
	if err != nil {
		return err
	}
	defer n.Free()
	r.mu.Lock()
	defer r.mu.Unlock()
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
			case mac == nic.MAC && other == addr && p.names[mac] == dhcpName(mac):
				return nil
			case mac == nic.MAC && other == addr: // by an older version of croft
				err := updateHost(n, libvirt.NETWORK_UPDATE_COMMAND_MODIFY, nic.MAC, addr)
				if is(err, libvirt.ERR_OPERATION_INVALID) {
					return nil // it is the network's, or was removed
				}
				return err
			case mac == nic.MAC || other == addr:
				delete(r.picked[nic.Network], nic.MAC)
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

// unreserve removes the reservation of a MAC, if any.
func (r *reservations) unreserve(c *libvirt.Connect, nic markNIC) error {
	n, err := c.LookupNetworkByName(nic.Network)
	if is(err, libvirt.ERR_NO_NETWORK) {
		return nil
	}
	if err != nil {
		return err
	}
	defer n.Free()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.picked[nic.Network], nic.MAC)
	text, err := n.GetXMLDesc(0)
	if err != nil {
		return err
	}
	p, err := parsePool(text)
	if err != nil {
		return err
	}
	if network, err := parseNetwork(text); err == nil {
		forgetNeighbour(network.Bridge, nic.MAC)
	}
	addr, ok := p.hosts[nic.MAC]
	if !ok {
		addr, _ = netip.ParseAddr(nic.Address) // an address that is not reserved may have a name
	}
	if err := removeRecord(n, p.recordOf(addr)); err != nil || !ok {
		return err
	}
	err = updateHost(n, libvirt.NETWORK_UPDATE_COMMAND_DELETE, nic.MAC, addr)
	if is(err, libvirt.ERR_OPERATION_INVALID) {
		return nil // already removed
	}
	return err
}

// dhcpName returns the name that the DHCP server gives to a MAC. With one it ignores the name that the guest says, by
// which the guest would be found in the DNS by all guests of the network, as localhost, wpad, or the name of another.
func dhcpName(mac string) string { return "vm-" + strings.ReplaceAll(mac, ":", "") }

// updateHost changes the reservation of a MAC.
func updateHost(n *libvirt.Network, command libvirt.NetworkUpdateCommand, mac string, addr netip.Addr) error {
	name := ""
	if command != libvirt.NETWORK_UPDATE_COMMAND_DELETE {
		name = fmt.Sprintf(" name='%s'", dhcpName(mac))
	}
	return changeNetwork(n, command, libvirt.NETWORK_SECTION_IP_DHCP_HOST,
		fmt.Sprintf("<host mac='%s'%s ip='%s'/>", mac, name, addr))
}

// changeNetwork changes the live network and its definition, whichever exist.
func changeNetwork(n *libvirt.Network, command libvirt.NetworkUpdateCommand, section libvirt.NetworkUpdateSection,
	element string) error {
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
	return n.Update(command, section, -1, element, flags)
}

// assigned returns the addresses of a network that croft has assigned to other interfaces.
func (r *reservations) assigned(c *libvirt.Connect, nic markNIC) (map[netip.Addr]bool, error) {
	taken := map[netip.Addr]bool{}
	for mac, addr := range r.picked[nic.Network] {
		taken[addr] = taken[addr] || mac != nic.MAC
	}
	list, err := r.domains.all(c) // picked before a restart, or by another driver
	if err != nil {
		return nil, err
	}
	for _, one := range list {
		for _, n := range one.nics {
			if addr, err := netip.ParseAddr(n.Address); err == nil && n.Network == nic.Network && n.MAC != nic.MAC {
				taken[addr] = true
			}
		}
	}
	return taken, nil
}

// inUse returns the addresses of a network that others hold, use or are assigned, and the address that the network has
// assigned to the MAC itself.
func (r *reservations) inUse(c *libvirt.Connect, text string, nic markNIC) (taken map[netip.Addr]bool, own netip.Addr,
	err error) {
	if taken, err = r.assigned(c, nic); err != nil {
		return nil, own, err
	}
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
