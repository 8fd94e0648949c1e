package libvirt

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"croft"
)

// DefaultNetwork is the network that every libvirt installation has; croft defines it where it was removed.
const DefaultNetwork = "default"

// Network is an active network of libvirt.
type Network struct {
	Name     string
	Bridge   string         // on the host, such as virbr0
	Gateway  netip.Addr     // the host's address on it; invalid: none
	Subnet   netip.Prefix   // the subnet of Gateway
	Subnets6 []netip.Prefix // the subnets of the host's IPv6 addresses on it
}

func ensureNetwork(c *libvirt.Connect, name string) (Network, error) {
	n, err := c.LookupNetworkByName(name)
	if is(err, libvirt.ERR_NO_NETWORK) {
		if name != DefaultNetwork {
			return Network{},
				croft.Errorf(croft.NotFound,
					"libvirt has no network %q: define it with virsh net-define, or name another", name)
		}
		n, err = defineDefault(c)
	}
	if err != nil {
		return Network{}, err
	}
	defer n.Free()
	if err := activate(n); err != nil {
		return Network{}, err
	}
	text, err := n.GetXMLDesc(0)
	if err != nil {
		return Network{}, err
	}
	return parseNetwork(text)
}

// activate starts a network; another process may start it at the same time.
func activate(n *libvirt.Network) error {
	if active, err := n.IsActive(); err != nil || active {
		return err
	}
	startErr := n.Create()
	if active, err := n.IsActive(); err == nil && active {
		return nil
	}
	return startErr
}

// parseNetwork reads the XML of an active network.
func parseNetwork(text string) (Network, error) {
	var x libvirtxml.Network
	if err := x.Unmarshal(text); err != nil {
		return Network{}, fmt.Errorf("its description: %w", err)
	}
	n := Network{Name: x.Name}
	if x.Bridge != nil {
		n.Bridge = x.Bridge.Name
	}
	for _, ip := range x.IPs {
		gateway, err := netip.ParseAddr(ip.Address)
		if err != nil {
			continue
		}
		if !gateway.Is4() {
			n.Subnets6 = append(n.Subnets6, netip.PrefixFrom(gateway, int(ip.Prefix)).Masked())
			continue
		}
		if n.Gateway.IsValid() {
			continue
		}
		bits := int(ip.Prefix)
		if mask := net.ParseIP(ip.Netmask).To4(); mask != nil {
			bits, _ = net.IPMask(mask).Size()
		}
		n.Gateway, n.Subnet = gateway, netip.PrefixFrom(gateway, bits).Masked()
	}
	if n.Bridge == "" {
		return Network{}, croft.Errorf(croft.Invalid, "it has no bridge on this host")
	}
	return n, nil
}

// defineDefault defines the default network as libvirt's packages do, on the first subnet that the host does
// not use. libvirt chooses the bridge's name.
func defineDefault(c *libvirt.Connect) (*libvirt.Network, error) {
	used, err := usedSubnets()
	if err != nil {
		return nil, err
	}
	subnet, err := freeSubnet(used)
	if err != nil {
		return nil, err
	}
	text, err := defaultNetworkXML(subnet)
	if err != nil {
		return nil, err
	}
	n, err := c.NetworkDefineXML(text)
	if is(err, libvirt.ERR_OPERATION_FAILED, libvirt.ERR_NETWORK_EXIST) {
		return c.LookupNetworkByName(DefaultNetwork) // another process was faster
	}
	if err != nil {
		return nil, err
	}
	return n, n.SetAutostart(true)
}

func defaultNetworkXML(subnet netip.Prefix) (string, error) {
	host := func(n byte) string {
		a := subnet.Addr().As4()
		a[3] = n
		return netip.AddrFrom4(a).String()
	}
	return (&libvirtxml.Network{
		Name:    DefaultNetwork,
		Forward: &libvirtxml.NetworkForward{Mode: "nat"},
		Bridge:  &libvirtxml.NetworkBridge{STP: "on", Delay: "0"},
		IPs: []libvirtxml.NetworkIP{{
			Address: host(1), Netmask: "255.255.255.0",
			DHCP: &libvirtxml.NetworkDHCP{Ranges: []libvirtxml.NetworkDHCPRange{{Start: host(2), End: host(254)}}},
		}},
	}).Marshal()
}

// freeSubnet returns the first of libvirt's customary subnets that does not overlap used.
func freeSubnet(used []netip.Prefix) (netip.Prefix, error) {
	for third := byte(122); third < 254; third++ {
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{192, 168, third, 0}), 24)
		free := true
		for _, u := range used {
			free = free && !u.Overlaps(subnet)
		}
		if free {
			return subnet, nil
		}
	}
	return netip.Prefix{},
		croft.Errorf(croft.Conflict,
			"all of 192.168.122.0 to 192.168.253.0 is in use on this host: define the network %q with virsh net-define",
			DefaultNetwork)
}

// usedSubnets returns the subnets of the host's addresses and routes.
func usedSubnets() ([]netip.Prefix, error) {
	routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("the host's routes: %w", err)
	}
	var used []netip.Prefix
	for _, r := range routes {
		if r.Dst == nil {
			continue
		}
		addr, ok := netip.AddrFromSlice(r.Dst.IP.To4())
		bits, _ := r.Dst.Mask.Size()
		if ok && bits > 0 { // skip the default route
			used = append(used, netip.PrefixFrom(addr, bits))
		}
	}
	return used, nil
}
