package libvirt

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"
	"libvirt.org/go/libvirt"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/libvirt/packetfilter"
)

// reattach puts the interfaces of a partition's running guests back on their bridges, as after a restart of a libvirt
// network, which leaves them without one. It returns the instances with an interface whose bridge does not exist.
func (n *networking) reattach(c *libvirt.Connect, p croft.PartitionID) (cut []croft.InstanceID, err error) {
	list, err := n.domains.all(c)
	if err != nil {
		return nil, err
	}
	facts, err := lookAtNetworks(c, list)
	if err != nil {
		return nil, err
	}
	var failures error
	for _, one := range list {
		if one.Partition != p || one.Power == compute.PowerOff {
			continue
		}
		off := false
		for _, nic := range one.nics {
			bridge := nic.Bridge
			if nic.Network != "" {
				bridge = facts[nic.Network].Bridge
			}
			port := portNameOf(p, nic)
			if port == "" || n.filter.off {
				continue // libvirt chose the names of the ports
			}
			switch joined, err := joinBridge(port, bridge, n.bridge); {
			case errors.Is(err, croft.NotFound):
				off = true
			case err != nil:
				failures = errors.Join(failures, err)
			case joined:
				n.log.Warn("a guest had lost its network and is attached to it again", "instance", one.ID,
					"op", "watch", "bridge", bridge)
			}
		}
		if off {
			cut = append(cut, one.ID)
		}
	}
	return cut, failures
}

// portNameOf returns the name of a guest's interface on the host; empty: it has no MAC.
func portNameOf(p croft.PartitionID, nic markNIC) string {
	mac, err := net.ParseMAC(nic.MAC)
	if err != nil {
		return ""
	}
	return packetfilter.TableOf(p).PortName(mac)
}

// FindCutOff returns the running instances of all partitions with an interface that is on no bridge, whether or not the
// bridge exists. It changes nothing.
func (d *Driver) FindCutOff(ctx context.Context) ([]croft.InstanceID, error) {
	return call(ctx, d.conn, task{verb: "look for guests without a network"},
		func(c *libvirt.Connect) (cut []croft.InstanceID, err error) {
			list, err := d.network.domains.all(c)
			if err != nil {
				return nil, err
			}
			for _, one := range list {
				if one.Power != compute.PowerOff && slices.ContainsFunc(one.nics, func(n markNIC) bool {
					return isLoose(portNameOf(one.Partition, n))
				}) {
					cut = append(cut, one.ID)
				}
			}
			return cut, nil
		})
}

// isLoose reports whether an interface exists and is on no bridge.
func isLoose(port string) bool {
	link, err := netlink.LinkByName(port)
	return err == nil && link.Attrs().MasterIndex == 0
}

// joinBridge attaches a port to a bridge if it is attached to none. prepare makes the bridge ready for guests. A port
// that does not exist is left alone: its guest has just ended. NotFound: the bridge does not exist.
func joinBridge(port, bridge string, prepare func(bridge string) error) (joined bool, err error) {
	link, err := netlink.LinkByName(port)
	if _, absent := errors.AsType[netlink.LinkNotFoundError](err); absent {
		return false, nil
	}
	if err != nil || link.Attrs().MasterIndex != 0 {
		return false, err
	}
	to, err := netlink.LinkByName(bridge)
	if _, absent := errors.AsType[netlink.LinkNotFoundError](err); absent || bridge == "" {
		return false, croft.Errorf(croft.NotFound, "attach %s: there is no bridge %q", port, bridge)
	}
	if err == nil {
		err = prepare(bridge)
	}
	if err == nil {
		err = netlink.LinkSetMaster(link, to)
	}
	if err != nil {
		return false, fmt.Errorf("attach %s to the bridge %s: %w", port, bridge, err)
	}
	return true, nil
}

// CutOff returns the running instances that have no network, because it was stopped.
func (d *Driver) CutOff() []croft.InstanceID {
	if cut := d.network.cut.Load(); cut != nil {
		return *cut
	}
	return nil
}
