package libvirt

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"libvirt.org/go/libvirt"

	"croft"
	"croft/compute"
)

// leaseReader finds the addresses of domains, querying each network once.
type leaseReader struct {
	conn     *libvirt.Connect
	used     *usedAddresses
	networks map[string]map[string][]lease // network -> MAC -> leases
}

// fill sets the addresses of a domain that is not off: DHCP leases on libvirt networks, with the reserved address that
// it leased since it started, and the host's neighbour table on bridges.
func (r *leaseReader) fill(one *domain) error {
	if one.Power == compute.PowerOff {
		return nil
	}
	for _, n := range one.nics {
		if n.Network == "" {
			one.Addresses = append(one.Addresses, neighbours(n.Bridge, n.MAC)...)
			continue
		}
		byMAC, ok := r.networks[n.Network]
		if !ok {
			var err error
			if byMAC, err = leases(r.conn, n.Network); err != nil {
				return err
			}
			if r.networks == nil {
				r.networks = map[string]map[string][]lease{}
			}
			r.networks[n.Network] = byMAC
		}
		var addrs []netip.Addr
		for _, l := range byMAC[n.MAC] {
			addrs = append(addrs, l.addr)
		}
		own, err := netip.ParseAddr(n.Address)
		if err == nil && byMAC != nil && r.used.by(one, own, slices.Contains(addrs, own)) {
			addrs = append(addrs, own)
		}
		if len(addrs) == 0 {
			continue
		}
		one.leased = append(one.leased, addrs...)
		if one.leasedTo == nil {
			one.leasedTo = map[string][]netip.Addr{}
		}
		one.leasedTo[n.MAC] = append(one.leasedTo[n.MAC], addrs...)
	}
	one.Addresses = append(slices.Clone(one.leased), one.Addresses...)
	return nil
}

// usedAddresses remembers which reserved addresses guests have leased since they started. A guest uses its reserved
// address until it is off, also when the DHCP server lists no lease: any guest of the network can end another's lease
// by sending that one's DHCP client identifier, which no packet filter finds.
type usedAddresses struct {
	mu    sync.Mutex
	boots map[croft.InstanceID]usedAddress
}

// usedAddress is what one guest has leased since its start with this number.
type usedAddress struct {
	boot  uint
	addrs []netip.Addr
}

// by notes that a guest has leased an address, and reports whether it leased the address earlier and lists no lease.
func (u *usedAddresses) by(one *domain, addr netip.Addr, leased bool) bool {
	if one.boot == 0 {
		return false
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	was := u.boots[one.ID]
	if was.boot != one.boot {
		was = usedAddress{boot: one.boot}
	}
	known := slices.Contains(was.addrs, addr)
	if leased && !known {
		if u.boots == nil {
			u.boots = map[croft.InstanceID]usedAddress{}
		}
		was.addrs = append(was.addrs, addr)
		u.boots[one.ID] = was
	}
	return known && !leased
}

// keep forgets all domains that are not in the list.
func (u *usedAddresses) keep(list []domain) {
	present := map[croft.InstanceID]bool{}
	for _, one := range list {
		present[one.ID] = true
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	maps.DeleteFunc(u.boots, func(id croft.InstanceID, _ usedAddress) bool { return !present[id] })
}

// lease is an address assigned by a DHCP server.
type lease struct {
	addr   netip.Addr
	client string // client identifier in libvirt's format; may be empty
}

// leases returns the unexpired leases of a network's DHCP server by MAC, newest first. A network that is
// missing or inactive has none.
func leases(c *libvirt.Connect, network string) (map[string][]lease, error) {
	n, err := c.LookupNetworkByName(network)
	if is(err, libvirt.ERR_NO_NETWORK) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer n.Free()
	list, err := n.GetDHCPLeases()
	if is(err, libvirt.ERR_OPERATION_INVALID, libvirt.ERR_NO_NETWORK) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(list, func(a, b libvirt.NetworkDHCPLease) int {
		return cmp.Or(cmp.Compare(a.Type, b.Type), b.ExpiryTime.Compare(a.ExpiryTime))
	})
	byMAC := map[string][]lease{}
	for _, l := range list {
		addr, err := netip.ParseAddr(l.IPaddr)
		if err != nil || l.ExpiryTime.Unix() > 0 && l.ExpiryTime.Before(time.Now()) {
			continue
		}
		mac := strings.ToLower(l.Mac)
		byMAC[mac] = append(byMAC[mac], lease{addr, l.Clientid})
	}
	return byMAC, nil
}

// neighbour is an entry of the kernel's neighbour table on a bridge.
type neighbour struct {
	mac     string
	addr    netip.Addr
	present bool // it has answered the host within the last half minute
}

// allNeighbours returns the recent neighbours of the host on a bridge.
func allNeighbours(bridge string) []neighbour {
	link, err := netlink.LinkByName(bridge)
	if err != nil {
		return nil
	}
	list, err := netlink.NeighList(link.Attrs().Index, netlink.FAMILY_ALL)
	if err != nil {
		return nil
	}
	const known = unix.NUD_REACHABLE | unix.NUD_STALE | unix.NUD_DELAY | unix.NUD_PROBE | unix.NUD_PERMANENT
	var found []neighbour
	for _, n := range list {
		if addr, ok := netip.AddrFromSlice(n.IP); ok && n.State&known != 0 {
			found = append(found, neighbour{n.HardwareAddr.String(), addr.Unmap(),
				n.State&(unix.NUD_REACHABLE|unix.NUD_PERMANENT) != 0})
		}
	}
	return found
}

// forgetNeighbour removes the entries of a MAC on a bridge from the kernel's neighbour table, which would keep its
// addresses in use for minutes.
func forgetNeighbour(bridge, mac string) {
	link, err := netlink.LinkByName(bridge)
	if err != nil {
		return
	}
	list, _ := netlink.NeighList(link.Attrs().Index, netlink.FAMILY_ALL) // without the list they expire
	for i := range list {
		if list[i].HardwareAddr.String() == mac {
			_ = netlink.NeighDel(&list[i])
		}
	}
}

// neighbours returns the addresses that a MAC on a bridge has used with the host.
func neighbours(bridge, mac string) []netip.Addr {
	var addrs []netip.Addr
	for _, n := range allNeighbours(bridge) {
		if n.mac == mac && !n.addr.IsLinkLocalUnicast() {
			addrs = append(addrs, n.addr)
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return addrs
}
