package libvirt

import (
	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"
)

// cleanTraffic is libvirt's packet filter that lets a guest send from its own MAC
// and its own IPv4 address alone, and nothing but IPv4 and ARP.
const cleanTraffic = "clean-traffic"

// filters returns the packet filters of those interfaces that can have one: an
// address is reserved for them, and libvirt has the filter. It knows no IPv6, so
// networks with that are left open; the metadata server compares MACs there.
func (d *Driver) filters(c *libvirt.Connect, nics []markNIC) (map[string]*libvirtxml.DomainInterfaceFilterRef, error) {
	refs := map[string]*libvirtxml.DomainInterfaceFilterRef{}
	if d.config.AllowSpoofing {
		return refs, nil
	}
	for _, n := range nics {
		if n.Address == "" {
			continue
		}
		network, err := ensureNetwork(c, n.Network)
		if err != nil {
			return nil, err
		}
		if network.IPv6 {
			continue
		}
		refs[n.MAC] = filterRef(n.Address)
	}
	if len(refs) == 0 {
		return refs, nil
	}
	filter, err := c.LookupNWFilterByName(cleanTraffic)
	if is(err, libvirt.ERR_NO_NWFILTER, libvirt.ERR_NO_SUPPORT) {
		d.noFilter.Do(func() {
			d.log.Warn("libvirt has no filter "+cleanTraffic+", so guests may send from addresses that are not theirs", "op", "define")
		})
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return refs, filter.Free()
}

// filterRef is the filter of an interface that has this address.
func filterRef(addr string) *libvirtxml.DomainInterfaceFilterRef {
	return &libvirtxml.DomainInterfaceFilterRef{
		Filter:     cleanTraffic,
		Parameters: []libvirtxml.DomainInterfaceFilterParam{{Name: "IP", Value: addr}},
	}
}
