package libvirt

import (
	"context"
	"strconv"

	"libvirt.org/go/libvirt"
)

// Network returns a network of libvirt, and starts it if it is inactive. A missing default network is
// defined; any other missing network is NotFound.
func (d *Driver) Network(ctx context.Context, name string) (Network, error) {
	return call(ctx, d.conn, task{verb: "start the network", object: strconv.Quote(name)},
		func(c *libvirt.Connect) (Network, error) {
			return ensureNetwork(c, name)
		})
}

// FindNetwork describes a network of libvirt as Network does, and reports whether it is active. It does not
// start or define anything. NotFound: libvirt has no such network.
func (d *Driver) FindNetwork(ctx context.Context, name string) (n Network, active bool, err error) {
	type found struct {
		network Network
		active  bool
	}
	f, err := call(ctx, d.conn, task{verb: "look at the network", object: strconv.Quote(name)},
		func(c *libvirt.Connect) (found, error) {
			var f found
			n, err := c.LookupNetworkByName(name)
			if err != nil {
				return f, err
			}
			defer n.Free()
			if f.active, err = n.IsActive(); err != nil {
				return f, err
			}
			text, err := n.GetXMLDesc(0)
			if err != nil {
				return f, err
			}
			f.network, err = parseNetwork(text)
			return f, err
		})
	return f.network, f.active, err
}

// Bridge prepares a host bridge for guests. NotFound: there is none of that name. Invalid: it is not a
// bridge, or its guests cannot be filtered.
func (d *Driver) Bridge(name string) error { return d.network.bridge(name) }
