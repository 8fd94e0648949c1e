package linklocal

import (
	"bytes"
	"errors"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"croft"
)

// Neighbour returns the MAC to which the kernel sends for addr on the interface, as found by ARP or neighbour
// discovery; nil: unknown.
func Neighbour(device string, addr netip.Addr) (net.HardwareAddr, error) {
	link, err := linkOf(device)
	if err != nil {
		return nil, err
	}
	family := netlink.FAMILY_V4
	if addr.Is6() {
		family = netlink.FAMILY_V6
	}
	list, err := netlink.NeighList(link.Attrs().Index, family)
	if err != nil {
		return nil, croft.Errorf(croft.Unavailable, "list the neighbours on %s: %w", device, err)
	}
	const unknown = unix.NUD_INCOMPLETE | unix.NUD_FAILED | unix.NUD_NOARP | unix.NUD_NONE
	for _, n := range list {
		if found, ok := netip.AddrFromSlice(n.IP); ok && found.Unmap() == addr && n.State&^unknown != 0 &&
			len(n.HardwareAddr) > 0 {
			return n.HardwareAddr, nil
		}
	}
	return nil, nil
}

// Port returns the port of a bridge at which its forwarding table has a MAC; empty: unknown or ambiguous.
func Port(bridge string, card net.HardwareAddr) (string, error) {
	link, err := linkOf(bridge)
	if err != nil {
		return "", err
	}
	list, err := netlink.NeighListExecute(netlink.Ndmsg{Family: unix.AF_BRIDGE})
	if err != nil {
		return "", croft.Errorf(croft.Unavailable, "list the forwarding table of %s: %w", bridge, err)
	}
	at := 0
	for _, n := range list {
		if n.MasterIndex != link.Attrs().Index || !bytes.Equal(n.HardwareAddr, card) {
			continue
		}
		if at != 0 && at != n.LinkIndex { // the MAC is in two VLANs
			return "", nil
		}
		at = n.LinkIndex
	}
	if at == 0 {
		return "", nil
	}
	port, err := netlink.LinkByIndex(at)
	if _, absent := errors.AsType[netlink.LinkNotFoundError](err); absent {
		return "", nil // it has just been removed
	}
	if err != nil {
		return "", croft.Errorf(croft.Unavailable, "find port %d of %s: %w", at, bridge, err)
	}
	return port.Attrs().Name, nil
}

// HasIPv6 reports whether the interface has an IPv6 address other than except and the link-local ones that
// every interface assigns to itself.
func HasIPv6(device string, except netip.Addr) (bool, error) {
	link, err := linkOf(device)
	if err != nil {
		return false, err
	}
	list, err := netlink.AddrList(link, netlink.FAMILY_V6)
	if err != nil {
		return false, croft.Errorf(croft.Unavailable, "list the addresses of %s: %w", device, err)
	}
	for _, a := range list {
		if addr, ok := netip.AddrFromSlice(a.IP); ok && addr.IsGlobalUnicast() && addr != except {
			return true, nil
		}
	}
	return false, nil
}

func linkOf(device string) (netlink.Link, error) {
	link, err := netlink.LinkByName(device)
	if _, absent := errors.AsType[netlink.LinkNotFoundError](err); absent {
		return nil, croft.Errorf(croft.NotFound, "there is no network interface %s", device)
	}
	if err != nil {
		return nil, croft.Errorf(croft.Unavailable, "find the network interface %s: %w", device, err)
	}
	return link, nil
}
