package libvirt

import (
	"context"
	"net/netip"
	"strings"
	"time"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"croft"
)

// lag is how long a lease may be in use before libvirt reports it: its DHCP server answers the guest first.
var lag = []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 200 * time.Millisecond}

// Owner returns croft's instance that is not off and has addr, reserved or by a DHCP lease; NotFound if none exists. It
// retries before it returns NotFound, because a guest may use an address slightly before its lease is known.
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
	return "", croft.Errorf(croft.NotFound, "no running instance on this host has the address %s", addr)
}

func (d *Driver) owner(ctx context.Context, addr netip.Addr) (croft.InstanceID, error) {
	id, known, generation := d.owners.get(addr)
	if known {
		return id, nil
	}
	owners, err := call(ctx, d.conn, task{verb: "find the owner of", object: addr.String()},
		func(c *libvirt.Connect) (map[netip.Addr]croft.InstanceID, error) {
			list, err := d.domains.all(c)
			if err != nil {
				return nil, err
			}
			return d.owners.put(list, generation), nil
		})
	return owners[addr], err
}

// Ports returns the host interfaces of a running instance's network cards, by MAC; NotFound if the instance
// is not on this host; empty if it is off.
func (d *Driver) Ports(ctx context.Context, id croft.InstanceID) (map[string]string, error) {
	ports, known, generation := d.owners.portsOf(id)
	if known {
		return ports, nil
	}
	return call(ctx, d.conn, about("find the network ports of", id),
		func(c *libvirt.Connect) (ports map[string]string, err error) {
			err = with(c, id, func(dom *libvirt.Domain, _ mark) error {
				text, err := dom.GetXMLDesc(0) // the live XML, if the domain runs
				if err != nil {
					return err
				}
				if ports, err = parsePorts(text); err != nil {
					return err
				}
				d.owners.putPorts(id, ports, generation)
				return nil
			})
			return ports, err
		})
}

// parsePorts reads the ports from a domain's XML, which has them only while the domain runs.
func parsePorts(text string) (map[string]string, error) {
	var x libvirtxml.Domain
	if err := x.Unmarshal(text); err != nil {
		return nil, err
	}
	ports := map[string]string{}
	if x.ID == nil || x.Devices == nil {
		return ports, nil
	}
	for _, nic := range x.Devices.Interfaces {
		if nic.MAC != nil && nic.Target != nil && nic.Target.Dev != "" {
			ports[strings.ToLower(nic.MAC.Address)] = nic.Target.Dev
		}
	}
	return ports, nil
}
