package libvirt

import (
	"context"
	"maps"
	"strings"
	"time"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"croft"
)

// Ports returns the host's interfaces that the network cards of a running instance
// are at, by MAC; NotFound where the instance is not here, nothing where it is off.
func (d *Driver) Ports(ctx context.Context, id croft.InstanceID) (map[string]string, error) {
	ports, known, generation := d.owners.portsOf(id)
	if known {
		return ports, nil
	}
	return call(ctx, d, about("find the network ports of", id),
		func(c *libvirt.Connect) (ports map[string]string, err error) {
			err = with(c, id, func(dom *libvirt.Domain, _ mark) error {
				text, err := dom.GetXMLDesc(0) // of the running domain, where it runs
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

// parsePorts reads the ports from the description of a domain, which has them only
// while it runs.
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

// portsRead are the ports of an instance, as they were at a time.
type portsRead struct {
	ports map[string]string
	read  time.Time
}

// portsOf answers from memory; known says that this is an answer.
func (t *ownerTable) portsOf(id croft.InstanceID) (ports map[string]string, known bool, generation int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	got, ok := t.ports[id]
	return maps.Clone(got.ports), ok && time.Since(got.read) < ownersLast, t.generation
}

// putPorts keeps what was read, unless something changed since the reading began.
func (t *ownerTable) putPorts(id croft.InstanceID, ports map[string]string, generation int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.generation != generation {
		return
	}
	if t.ports == nil {
		t.ports = map[croft.InstanceID]portsRead{}
	}
	t.ports[id] = portsRead{maps.Clone(ports), time.Now()}
}
