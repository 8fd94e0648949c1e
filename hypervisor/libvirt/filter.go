package libvirt

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"croft"
	"croft/hypervisor/libvirt/packetfilter"
)

const (
	// filterTimeout bounds the writing of a packet filter, which takes milliseconds.
	filterTimeout = 20 * time.Second
	// lookAtFilter is how often the packet filter is looked at: programs that set up a
	// firewall may flush all that there is.
	lookAtFilter = 15 * time.Second
)

// portNames are the names that the host's interfaces of a domain get, by MAC. Without
// a packet filter libvirt names them.
func (d *Driver) portNames(p croft.PartitionID, nics []markNIC) map[string]string {
	names := map[string]string{}
	if d.config.AllowSpoofing {
		return names
	}
	for _, n := range nics {
		if mac, err := net.ParseMAC(n.MAC); err == nil {
			names[n.MAC] = packetfilter.TableOf(p).PortName(mac)
		}
	}
	return names
}

// refilter brings the packet filter of a partition to what its domains are. With
// always it is written even where it is known to be so.
func (d *Driver) refilter(c *libvirt.Connect, p croft.PartitionID, always bool) error {
	if d.config.AllowSpoofing {
		return nil
	}
	d.filtering.Lock() // so that nobody overwrites what is newer than what it has read
	defer d.filtering.Unlock()
	list, err := d.domains(c)
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

// keepFilter keeps up the packet filter of Config.Partition, and its reservations, while
// ctx lives.
func (d *Driver) keepFilter(ctx context.Context) {
	if d.config.Partition == "" {
		return
	}
	told := false
	for ctx.Err() == nil {
		err := do(ctx, d, task{verb: "look at the packet filter"}, func(c *libvirt.Connect) error {
			return d.refilter(c, d.config.Partition, false)
		})
		if err == nil {
			err = d.reserveMissing(ctx, d.config.Partition)
		}
		if err != nil && ctx.Err() == nil && !told {
			d.log.Warn("packet filter and reserved addresses of the guests may not be up to date, trying again", "op",
				"watch", "err", err)
		}
		told = err != nil
		select {
		case <-ctx.Done():
		case <-d.refresh:
		case <-time.After(lookAtFilter):
		}
	}
}

// networkFacts are what the packet filter has to know of a network of libvirt.
type networkFacts struct {
	Network
	pool pool
}

// lookAtNetworks reads the networks that domains are on. One that is not there any
// more is left out.
func lookAtNetworks(c *libvirt.Connect, list []domain) (map[string]networkFacts, error) {
	facts := map[string]networkFacts{}
	for _, one := range list {
		for _, n := range one.nics {
			if _, known := facts[n.Network]; known || n.Network == "" {
				continue
			}
			f, err := lookAtNetwork(c, n.Network)
			if err == nil {
				facts[n.Network] = f
			} else if !is(err, libvirt.ERR_NO_NETWORK) && croft.KindOf(err) != croft.Invalid {
				return nil, err
			}
		}
	}
	return facts, nil
}

func lookAtNetwork(c *libvirt.Connect, name string) (f networkFacts, err error) {
	n, err := c.LookupNetworkByName(name)
	if err != nil {
		return f, err
	}
	defer n.Free()
	text, err := n.GetXMLDesc(0)
	if err != nil {
		return f, err
	}
	if f.Network, err = parseNetwork(text); err != nil {
		return f, err
	}
	f.pool, err = parsePool(text)
	return f, err
}

// rulesOf are what holds the guests of a partition to their addresses.
//
// Where libvirt's DHCP server gives IPv4 addresses, the guest has the one that is
// reserved for it. Where the host has an IPv6 prefix, it has those that it makes of
// its MAC (EUI-64) and those that the DHCP server has given it. On a network where
// neither is so, and on a bridge of the host, addresses are not croft's, and the guest
// may use all but those of croft's other guests, of the host and of its routers there.
func rulesOf(p croft.PartitionID, list []domain, facts map[string]networkFacts,
	host func(bridge string) []netip.Addr) packetfilter.Rules {
	var rules packetfilter.Rules
	table := packetfilter.TableOf(p)
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
			port.Name = table.PortName(mac)
			for _, a := range port.Own {
				if !a.IsLinkLocalUnicast() {
					kept[a] = true
				}
			}
			if one.Partition == p {
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

// portOf is the port of an interface, without its name.
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

// eui64 is the address that a network card makes for itself in a subnet (RFC 4291).
func eui64(subnet netip.Prefix, mac net.HardwareAddr) netip.Addr {
	b := subnet.Masked().Addr().As16()
	copy(b[8:], []byte{mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]})
	return netip.AddrFrom16(b)
}

// hostAddresses are those of the host on a bridge, and of the routers that it knows
// there.
func hostAddresses(bridge string) []netip.Addr {
	link, err := netlink.LinkByName(bridge)
	if err != nil {
		return nil // with it, everybody who was there is gone
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

// adopt gives the definition of a domain that an earlier croft made, or one with
// another setting, the interfaces of now: its ports are named so that the packet
// filter finds them, and libvirt's own filters are not used any more.
func (d *Driver) adopt(c *libvirt.Connect, dom *libvirt.Domain, k mark) error {
	text, err := dom.GetXMLDesc(libvirt.DOMAIN_XML_INACTIVE | libvirt.DOMAIN_XML_SECURE)
	if err != nil {
		return err
	}
	text, changed, err := renamePorts(text, d.portNames(k.Partition, k.NICs))
	if err != nil || !changed {
		return err
	}
	again, err := c.DomainDefineXMLFlags(text, 0)
	if err != nil {
		return err
	}
	return again.Free()
}

// renamePorts gives the interfaces in a domain's description their names, by MAC, and
// takes their filters.
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
		nic.FilterRef, nic.Target = nil, target(want)
	}
	if !changed {
		return text, false, nil
	}
	renamed, err = x.Marshal()
	return renamed, true, err
}

// target names the host's interface; libvirt names it where the name is empty.
func target(name string) *libvirtxml.DomainInterfaceTarget {
	if name == "" {
		return nil
	}
	return &libvirtxml.DomainInterfaceTarget{Dev: name}
}
