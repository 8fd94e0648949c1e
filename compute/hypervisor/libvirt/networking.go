package libvirt

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"libvirt.org/go/libvirt"

	"croft"
	"croft/compute/hypervisor/libvirt/packetfilter"
)

// lookAtFilter is the interval of packet filter checks: firewall programs may flush all rules.
const lookAtFilter = 15 * time.Second

// networking prepares host networks for domains: addresses, reservations, the packet filter.
type networking struct {
	conn      *connection
	log       *slog.Logger
	domains   *domainReader
	addresses reservations
	filter    filter
	refresh   chan struct{} // asks keep for another pass
	cut       atomic.Pointer[[]croft.InstanceID]
}

// wake asks keep for another pass.
func (n *networking) wake() {
	select {
	case n.refresh <- struct{}{}:
	default:
	}
}

// bridge prepares a host bridge for guests; see Driver.Bridge.
func (n *networking) bridge(name string) error {
	link, err := netlink.LinkByName(name)
	if _, absent := errors.AsType[netlink.LinkNotFoundError](err); absent {
		return croft.Errorf(croft.NotFound, "this host has no bridge %q: make it, or name another", name)
	}
	switch {
	case err != nil:
		return fmt.Errorf("look for the bridge %q: %w", name, err)
	case link.Type() == "openvswitch" && !n.filter.off:
		return croft.Errorf(croft.Invalid,
			"%q is a switch of Open vSwitch, where guests cannot be held to their addresses: name a bridge of Linux, "+
				"or let guests send from any address (libvirt.allow_spoofing)", name)
	case link.Type() != "bridge" && link.Type() != "openvswitch":
		return croft.Errorf(croft.Invalid,
			"%q is a network interface of the type %s and no bridge: make one with it in it, or name another", name,
			link.Type())
	case n.filter.off:
		return nil
	}
	return packetfilter.LearnNothingUnfiltered(name)
}

// connect prepares the networks of a domain: it starts them and picks an address for each interface. It
// returns the interfaces with their addresses.
func (n *networking) connect(c *libvirt.Connect, nics []markNIC) ([]markNIC, error) {
	nics = slices.Clone(nics)
	for i, nic := range nics {
		if nic.Network == "" {
			if err := n.bridge(nic.Bridge); err != nil {
				return nil, err
			}
			continue
		}
		network, err := ensureNetwork(c, nic.Network)
		if err == nil {
			err = n.bridge(network.Bridge)
		}
		if err != nil {
			return nil, err
		}
		addr, err := n.addresses.pick(c, nic)
		if err != nil {
			return nil, fmt.Errorf("pick an address: %w", err)
		}
		if addr.IsValid() {
			nics[i].Address = addr.String()
		}
	}
	return nics, nil
}

// checkMACs refuses a new domain that would have a MAC of another domain of this host, of any partition: addresses are
// found by MAC. Conflict.
func checkMACs(id croft.InstanceID, nics []markNIC, all []domain) error {
	for _, other := range all {
		for _, has := range other.nics {
			if other.ID != id && slices.ContainsFunc(nics, func(n markNIC) bool { return n.MAC == has.MAC }) {
				return croft.Errorf(croft.Conflict, "define the domain: another guest of this host has its MAC address %s, "+
					"which follows from its UUID: choose another UUID or none", has.MAC)
			}
		}
	}
	return nil
}

// reserve makes the missing reservations of a domain.
func (n *networking) reserve(c *libvirt.Connect, k mark) error {
	for _, nic := range k.NICs {
		if err := n.addresses.reserve(c, nic); err != nil {
			return fmt.Errorf("reserve an address: %w", err)
		}
		if err := n.addresses.publish(c, k, nic); err != nil { // keep tries again
			n.log.Warn("a guest is not found by its name", "name", k.Name, "project", k.Project, "op", "reserve",
				"err", err)
		}
	}
	return n.filter.update(c, k.Partition, false) // the guest may now send DHCP requests
}

// reserveMissing makes the missing reservations of a partition's domains: of stopped domains, and of those
// whose start was interrupted.
func (n *networking) reserveMissing(ctx context.Context, p croft.PartitionID) error {
	ids, err := call(ctx, n.conn, task{verb: "look for addresses that are not reserved"},
		func(c *libvirt.Connect) ([]croft.InstanceID, error) {
			list, err := n.domains.all(c)
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
		// The call is about the instance, so that it is serialized with its removal.
		err := do(ctx, n.conn, about("reserve the address of", id), func(c *libvirt.Connect) error {
			return with(c, id, func(_ *libvirt.Domain, k mark) error { return n.reserve(c, k) })
		})
		if err != nil && croft.KindOf(err) != croft.NotFound {
			return err
		}
	}
	return nil
}

// keep maintains the packet filter, the reservations and the bridge ports of a partition until ctx ends.
func (n *networking) keep(ctx context.Context, p croft.PartitionID) {
	logged := false
	for ctx.Err() == nil {
		err := do(ctx, n.conn, task{verb: "look at the packet filter"}, func(c *libvirt.Connect) error {
			return n.filter.update(c, p, false)
		})
		if err == nil {
			err = n.reserveMissing(ctx, p)
		}
		if err == nil {
			err = do(ctx, n.conn, task{verb: "look for names of guests that are gone"}, n.addresses.removeStale)
		}
		if err == nil {
			var cut []croft.InstanceID
			cut, err = call(ctx, n.conn, task{verb: "look for guests without a network"},
				func(c *libvirt.Connect) ([]croft.InstanceID, error) { return n.reattach(c, p) })
			if before := n.cut.Swap(&cut); len(cut) > 0 && (before == nil || len(*before) == 0) {
				n.log.Warn("guests have lost their network: start it again (virsh net-start)", "instance", cut[0],
					"op", "watch", "guests", len(cut))
			}
		}
		if err != nil && ctx.Err() == nil && !logged {
			n.log.Warn("packet filter, addresses, names and networks of the guests may not be up to date, trying again", "op",
				"watch", "err", err)
		}
		logged = err != nil
		select {
		case <-ctx.Done():
		case <-n.refresh:
		case <-time.After(lookAtFilter):
		}
	}
}

// mostNICs is how many interfaces of an instance are looked up on every network when its domain is missing.
const mostNICs = 4

// forget releases the addresses of an instance whose domain was removed by someone else, so that its networks
// are unknown. It leaves the addresses of other domains that have one of its MACs.
func (n *networking) forget(c *libvirt.Connect, id croft.InstanceID) error {
	all, err := n.domains.all(c)
	if err != nil {
		return err
	}
	networks, err := c.ListAllNetworks(0)
	if err != nil {
		return err
	}
	var nics []markNIC
	for i := range networks {
		name, err := networks[i].GetName()
		_ = networks[i].Free()
		if err == nil {
			for i := range mostNICs {
				nic := markNIC{MAC: id.MAC(i).String(), Network: name}
				if checkMACs(id, []markNIC{nic}, all) == nil {
					nics = append(nics, nic)
				}
			}
		}
	}
	return n.disconnect(c, id, nics)
}

// disconnect releases the network resources of a domain that is off.
func (n *networking) disconnect(c *libvirt.Connect, id croft.InstanceID, nics []markNIC) error {
	for _, nic := range nics {
		n.domains.bridged.Delete(nic.MAC)
		if nic.Network == "" {
			continue
		}
		if err := n.addresses.unreserve(c, nic); err != nil {
			return fmt.Errorf("take back its address: %w", err)
		}
	}
	if err := releaseLeases(c, nics); err != nil {
		// Leases expire: they are no reason to keep the domain.
		n.log.Warn("a DHCP lease stays until it expires", "instance", id, "op", "remove", "err", err)
	}
	return nil
}
