package libvirt

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"croft"
	"croft/compute/hypervisor/libvirt/domainxml"
	"croft/compute/hypervisor/libvirt/packetfilter"
)

const (
	// filterTimeout limits writing a packet filter, which takes milliseconds.
	filterTimeout = 20 * time.Second
)

// filter is the packet filter that restricts guests to their addresses.
type filter struct {
	off     bool // spoofing is allowed
	domains *domainReader
	mu      sync.Mutex // held from reading the state until the packet filter is written
}

// portNames returns the names for the host interfaces of a domain, by MAC. Without a packet filter libvirt
// chooses them.
func (f *filter) portNames(p croft.PartitionID, nics []markNIC) map[string]string {
	names := map[string]string{}
	if f.off {
		return names
	}
	for _, n := range nics {
		if mac, err := net.ParseMAC(n.MAC); err == nil {
			names[n.MAC] = packetfilter.TableOf(p).PortName(mac)
		}
	}
	return names
}

// update synchronizes the packet filter of a partition with its domains. always writes it even if it is known
// to be current.
func (f *filter) update(c *libvirt.Connect, p croft.PartitionID, always bool) error {
	if f.off {
		return nil
	}
	f.mu.Lock() // a stale read must not overwrite newer rules
	defer f.mu.Unlock()
	list, err := f.domains.all(c)
	if err != nil {
		return err
	}
	facts, err := lookAtNetworks(c, list)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), filterTimeout)
	defer cancel()
	table := packetfilter.TableOf(p)
	rules := rulesOf(p, list, facts, hostAddresses)
	if len(rules.Ports) == 0 {
		return table.Remove(ctx)
	}
	if !always && table.Counts(ctx, rules) {
		return nil
	}
	return table.Replace(ctx, rules)
}

// rulesOf returns the rules that restrict the guests of a partition to their addresses.
//
// Where libvirt's DHCP server assigns IPv4 addresses, a guest may use its reserved address. Where the host has an IPv6
// prefix, it may use the addresses derived from its MAC (EUI-64) and those leased by the DHCP server. On other
// networks, and on host bridges, croft does not manage addresses, and the guest may use all addresses except addresses
// of croft's other guests, of the host and of its routers there.
func rulesOf(p croft.PartitionID, list []domain, facts map[string]networkFacts,
	host func(bridge string) []netip.Addr) packetfilter.Rules {
	var rules packetfilter.Rules
	kept := map[netip.Addr]bool{}
	bridges := map[string]bool{}
	for _, one := range list {
		for _, n := range one.nics {
			mac, err := net.ParseMAC(n.MAC)
			if err != nil {
				continue
			}
			f := facts[n.Network]
			port := portOf(n, mac, f, one.leasedTo[n.MAC])
			port.Owner = string(one.Partition) + "/" + string(one.Project)
			for _, text := range one.Open {
				if o, err := croft.ParseOpenPort(text); err == nil {
					port.Reached = append(port.Reached, o)
				}
			}
			for _, a := range port.Own {
				if !a.IsLinkLocalUnicast() {
					kept[a] = true
				}
			}
			port.Name = packetfilter.TableOf(one.Partition).PortName(mac)
			if one.Partition != p {
				rules.Others = append(rules.Others, port)
			} else {
				rules.Ports = append(rules.Ports, port)
				if port.Open4 || port.Open6 {
					bridges[f.Bridge+n.Bridge] = true
				}
			}
		}
	}
	if len(bridges) > 0 {
		for bridge := range bridges {
			for _, a := range host(bridge) {
				kept[a] = true
			}
		}
		rules.Kept = slices.SortedFunc(maps.Keys(kept), netip.Addr.Compare)
	}
	return rules
}

// portOf returns the port of an interface, without its name.
func portOf(n markNIC, mac net.HardwareAddr, f networkFacts, leased []netip.Addr) packetfilter.Port {
	port := packetfilter.Port{MAC: mac, Open4: true, Open6: true}
	if addr, err := netip.ParseAddr(n.Address); err == nil {
		port.Own = append(port.Own, addr)
		port.Asks = f.pool.hosts[n.MAC] == addr
		port.Open4, port.Open6 = false, false
	}
	if len(f.Subnets6) > 0 {
		port.Open6 = false
		port.Own = append(port.Own, eui64(netip.MustParsePrefix("fe80::/64"), mac))
		for _, subnet := range f.Subnets6 {
			if subnet.Bits() == 64 {
				port.Own = append(port.Own, eui64(subnet, mac))
			}
		}
		for _, a := range leased {
			if a.Is6() {
				port.Own = append(port.Own, a)
			}
		}
	}
	return port
}

// eui64 returns the address that a network card derives for itself in a subnet (RFC 4291).
func eui64(subnet netip.Prefix, mac net.HardwareAddr) netip.Addr {
	b := subnet.Masked().Addr().As16()
	copy(b[8:], []byte{mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
	return netip.AddrFrom16(b)
}

// hostAddresses returns the addresses of the host on a bridge, and of the routers it knows there.
func hostAddresses(bridge string) []netip.Addr {
	link, err := netlink.LinkByName(bridge)
	if err != nil {
		return nil // no bridge, no neighbours
	}
	var all []netip.Addr
	add := func(ip net.IP) {
		if a, ok := netip.AddrFromSlice(ip); ok {
			all = append(all, a.Unmap())
		}
	}
	addrs, _ := netlink.AddrList(link, netlink.FAMILY_ALL)
	for _, a := range addrs {
		add(a.IP)
	}
	routes, _ := netlink.RouteList(link, unix.AF_UNSPEC)
	for _, r := range routes {
		add(r.Gw)
	}
	return all
}

// adopt updates the interfaces in a domain definition of an earlier croft or of another setting: it names the
// ports so that the packet filter finds them, and removes libvirt's own filters.
func (f *filter) adopt(c *libvirt.Connect, dom *libvirt.Domain, k mark) error {
	text, err := dom.GetXMLDesc(libvirt.DOMAIN_XML_INACTIVE | libvirt.DOMAIN_XML_SECURE)
	if err != nil {
		return err
	}
	text, changed, err := renamePorts(text, f.portNames(k.Partition, k.NICs))
	if err != nil || !changed {
		return err
	}
	again, err := c.DomainDefineXMLFlags(text, 0)
	if err != nil {
		return err
	}
	return again.Free()
}

// renamePorts sets the interface names in a domain's XML, by MAC, and removes the filters.
func renamePorts(text string, names map[string]string) (renamed string, changed bool, err error) {
	var x libvirtxml.Domain
	if err := x.Unmarshal(text); err != nil {
		return "", false, err
	}
	if x.Devices == nil {
		return text, false, nil
	}
	for i := range x.Devices.Interfaces {
		nic := &x.Devices.Interfaces[i]
		have, want := "", ""
		if nic.Target != nil {
			have = nic.Target.Dev
		}
		if nic.MAC != nil {
			want = names[nic.MAC.Address]
		}
		if have == want && nic.FilterRef == nil {
			continue
		}
		changed = true
		nic.FilterRef, nic.Target = nil, domainxml.Target(want)
	}
	if !changed {
		return text, false, nil
	}
	renamed, err = x.Marshal()
	return renamed, true, err
}
