package libvirt

import (
	"fmt"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"
)

// filterName is the packet filter that lets a guest send from its own MAC and its
// own IPv4 address alone, and nothing but IPv4 and ARP. A change of its rules is a
// new name, since the guests that run keep the rules they were started with.
const filterName = "croft-own-address"

// filterXML has all rules in one chain and none for what the guest receives.
// libvirt runs one command for every rule and some ten for every further chain,
// while the guest waits: its own filter clean-traffic, which says the same with
// eight chains, takes three times as long.
const filterXML = `<filter name='` + filterName + `' chain='root'>
  <rule action='drop' direction='out' priority='-900'><mac match='no' srcmacaddr='$MAC'/></rule>
  <rule action='accept' direction='out' priority='-800'><ip srcipaddr='$IP'/></rule>
  <rule action='accept' direction='out' priority='-700'><ip srcipaddr='0.0.0.0' protocol='udp' srcportstart='68' dstportstart='67'/></rule>
  <rule action='accept' direction='out' priority='-600'><arp arpsrcmacaddr='$MAC' arpsrcipaddr='$IP'/></rule>
  <rule action='drop' direction='out' priority='900'><mac/></rule>
</filter>`

// filters returns the packet filters of those interfaces that can have one: an
// address is reserved for them, and libvirt can filter. The filter knows no IPv6, so
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
	err := ensureFilter(c)
	if is(err, libvirt.ERR_NO_SUPPORT) {
		d.noFilter.Do(func() {
			d.log.Warn("this libvirt has no packet filters, so guests may send from addresses that are not theirs", "op", "define")
		})
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("define the packet filter %s: %w", filterName, err)
	}
	return refs, nil
}

// ensureFilter defines the filter where it is missing; somebody else may do so at
// the same time.
func ensureFilter(c *libvirt.Connect) error {
	filter, err := c.LookupNWFilterByName(filterName)
	if !is(err, libvirt.ERR_NO_NWFILTER) {
		if err != nil {
			return err
		}
		return filter.Free()
	}
	filter, defineErr := c.NWFilterDefineXML(filterXML)
	if defineErr != nil {
		if filter, err = c.LookupNWFilterByName(filterName); err != nil {
			return defineErr
		}
	}
	return filter.Free()
}

// filterRef is the filter of an interface that has this address.
func filterRef(addr string) *libvirtxml.DomainInterfaceFilterRef {
	return &libvirtxml.DomainInterfaceFilterRef{
		Filter:     filterName,
		Parameters: []libvirtxml.DomainInterfaceFilterParam{{Name: "IP", Value: addr}},
	}
}
