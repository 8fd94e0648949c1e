package libvirt

import (
	"cmp"
	"context"
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

// leaseReader finds the addresses of domains, asking each network once.
type leaseReader struct {
	conn     *libvirt.Connect
	networks map[string]map[string][]lease // network -> MAC -> leases
}

// fill gives a domain that is not off its addresses: DHCP leases where it is on a
// network of libvirt, the host's neighbours where it is on a bridge.
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
		for _, l := range byMAC[n.MAC] {
			one.leased = append(one.leased, l.addr)
			if one.leasedTo == nil {
				one.leasedTo = map[string][]netip.Addr{}
			}
			one.leasedTo[n.MAC] = append(one.leasedTo[n.MAC], l.addr)
		}
	}
	one.Addresses = append(slices.Clone(one.leased), one.Addresses...)
	return nil
}

// lease is an address that a DHCP server has given.
type lease struct {
	addr   netip.Addr
	client string // the identifier that the guest gave, as libvirt writes it; may be empty
}

// leases returns what a network's DHCP server has given and what has not expired, by MAC, the newest lease first. A
// network that is not there or not active has none.
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

// neighbour is what the host's kernel knows of somebody on one of its bridges.
type neighbour struct {
	mac  string
	addr netip.Addr
}

// allNeighbours returns those who have talked to the host on a bridge of late.
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
			found = append(found, neighbour{n.HardwareAddr.String(), addr.Unmap()})
		}
	}
	return found
}

// neighbours returns the addresses that a MAC on a bridge has used to talk to the host.
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

func sortByID(list []domain) {
	slices.SortFunc(list, func(a, b domain) int { return cmp.Compare(a.ID, b.ID) })
}

// How long what is known of the owners counts, and how long it counts against an
// address that is not among them. Events end both earlier.
const (
	ownersLast    = time.Second
	strangersLast = 20 * time.Millisecond
)

// ownerTable remembers for a moment whose each leased address is.
type ownerTable struct {
	mu         sync.Mutex
	owners     map[netip.Addr]croft.InstanceID
	read       time.Time
	ports      map[croft.InstanceID]portsRead
	generation int // of the invalidations
}

func (t *ownerTable) invalidate() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.read, t.ports = time.Time{}, nil
	t.generation++
}

// get answers from memory; known says that this is an answer.
func (t *ownerTable) get(addr netip.Addr) (id croft.InstanceID, known bool, generation int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	age := time.Since(t.read)
	id, ok := t.owners[addr]
	return id, ok && age < ownersLast || !ok && age < strangersLast, t.generation
}

// put keeps what was read, unless something changed since the reading began.
func (t *ownerTable) put(list []domain, generation int) map[netip.Addr]croft.InstanceID {
	owners := map[netip.Addr]croft.InstanceID{}
	for _, one := range list {
		for _, addr := range one.leased {
			owners[addr] = one.ID
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.generation == generation {
		t.owners, t.read = owners, time.Now()
	}
	return owners
}

// lag is how long a lease may be in use before libvirt tells of it: its DHCP
// server answers the guest first.
var lag = []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond}

// Owner returns croft's instance that is not off and holds a DHCP lease for addr
// now; NotFound where there is none. It looks several times before it says so,
// because a guest may talk from an address a moment before its lease is known.
func (d *Driver) Owner(ctx context.Context, addr netip.Addr) (croft.InstanceID, error) {
	addr = addr.Unmap()
	for _, wait := range append([]time.Duration{0}, lag...) {
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return "", croft.Errorf(croft.Unavailable, "find the owner of %s: %w", addr, context.Cause(ctx))
		}
		id, err := d.owner(ctx, addr)
		if err != nil || id != "" {
			return id, err
		}
	}
	return "", croft.Errorf(croft.NotFound, "no running instance on this host has a lease for %s", addr)
}

func (d *Driver) owner(ctx context.Context, addr netip.Addr) (croft.InstanceID, error) {
	id, known, generation := d.owners.get(addr)
	if known {
		return id, nil
	}
	owners, err := call(ctx, d, task{verb: "find the owner of", object: addr.String()},
		func(c *libvirt.Connect) (map[netip.Addr]croft.InstanceID, error) {
			list, err := d.domains(c)
			if err != nil {
				return nil, err
			}
			return d.owners.put(list, generation), nil
		})
	return owners[addr], err
}
