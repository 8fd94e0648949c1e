package libvirt

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"croft"
	"croft/internal/guestname"
)

// record gives names in the DNS of a network to an address.
type record struct {
	addr  netip.Addr
	names []string
}

// newRecord returns croft's record of a name. The first name is the one that is found by the address: it tells nothing
// to guests of other projects, which could ask for the names of all addresses.
func newRecord(addr netip.Addr, name string) record {
	return record{addr, []string{neutral(addr), name}}
}

// neutral returns the name that is found by an address.
func neutral(addr netip.Addr) string {
	return "ip-" + strings.ReplaceAll(addr.String(), ".", "-") + "." + guestname.Zone
}

// ours reports whether croft made the record.
func (r record) ours() bool { return len(r.names) == 2 && r.names[0] == neutral(r.addr) }

func (r record) equal(other record) bool {
	return r.addr == other.addr && slices.Equal(r.names, other.names)
}

// xml returns the record as libvirt has it. Names of guestname need no quotation.
func (r record) xml() string {
	return fmt.Sprintf("<host ip='%s'><hostname>%s</hostname></host>", r.addr,
		strings.Join(r.names, "</hostname><hostname>"))
}

// parseRecords returns the records of addresses that can be parsed.
func parseRecords(dns *libvirtxml.NetworkDNS) (all []record) {
	if dns == nil {
		return nil
	}
	for _, h := range dns.Host {
		addr, err := netip.ParseAddr(h.IP)
		if err != nil {
			continue
		}
		r := record{addr: addr}
		for _, name := range h.Hostnames {
			r.names = append(r.names, name.Hostname)
		}
		all = append(all, r)
	}
	return all
}

// recordOf returns croft's record of an address, or a record without names.
func (p pool) recordOf(addr netip.Addr) record {
	for _, r := range p.records {
		if r.addr == addr && r.ours() {
			return r
		}
	}
	return record{}
}

// permits reports whether a record can be added: nothing else in the DNS has its address or a name of it. Two clouds on
// one host may have a project and an instance of the same names; the first one has the name.
func (p pool) permits(wanted record) bool {
	return !slices.ContainsFunc(p.records, func(r record) bool {
		return !(r.ours() && r.addr == wanted.addr) && (r.addr == wanted.addr ||
			slices.ContainsFunc(r.names, func(name string) bool { return slices.Contains(wanted.names, name) }))
	})
}

// recordFor returns the record that an interface of a domain should have; false: none, because libvirt does not assign
// its address, or the names are none of the DNS.
func recordFor(name string, project croft.Project, nic markNIC) (record, bool) {
	addr, err := netip.ParseAddr(nic.Address)
	full, ok := guestname.Full(name, project)
	return newRecord(addr, full), ok && err == nil && addr.Is4() && nic.Network != ""
}

// lacks reports whether the record that an interface should have can be added, and is not there.
func (p pool) lacks(name string, project croft.Project, nic markNIC) bool {
	wanted, ok := recordFor(name, project, nic)
	return ok && !p.recordOf(wanted.addr).equal(wanted) && p.permits(wanted)
}

// publish makes an interface of a domain known in the DNS of its network by the full name of the instance.
func (r *reservations) publish(c *libvirt.Connect, k mark, nic markNIC) error {
	wanted, ok := recordFor(k.Name, k.Project, nic)
	if !ok {
		return nil
	}
	n, err := c.LookupNetworkByName(nic.Network)
	if err != nil {
		return err
	}
	defer n.Free()
	r.mu.Lock()
	defer r.mu.Unlock()
	p, err := poolOf(n)
	if err != nil || !p.lacks(k.Name, k.Project, nic) {
		return err
	}
	if err := removeRecord(n, p.recordOf(wanted.addr)); err != nil {
		return err
	}
	err = changeNetwork(n, libvirt.NETWORK_UPDATE_COMMAND_ADD_LAST, libvirt.NETWORK_SECTION_DNS_HOST, wanted.xml())
	if is(err, libvirt.ERR_OPERATION_INVALID) {
		return nil // another process was faster
	}
	return err
}

// poolOf reads the present configuration of a network.
func poolOf(n *libvirt.Network) (pool, error) {
	text, err := n.GetXMLDesc(0)
	if err != nil {
		return pool{}, err
	}
	return parsePool(text)
}

// removeRecord removes a record of the DNS, unless it has no names.
func removeRecord(n *libvirt.Network, r record) error {
	if len(r.names) == 0 {
		return nil
	}
	err := changeNetwork(n, libvirt.NETWORK_UPDATE_COMMAND_DELETE, libvirt.NETWORK_SECTION_DNS_HOST, r.xml())
	if is(err, libvirt.ERR_OPERATION_INVALID) {
		return nil // already removed
	}
	return err
}

// removeStale removes the names of domains that are gone. It reads the records before the domains: the domain of a
// record that was there, and has none now, is gone.
func (r *reservations) removeStale(c *libvirt.Connect) error {
	networks, err := c.ListAllNetworks(libvirt.CONNECT_LIST_NETWORKS_ACTIVE)
	if err != nil {
		return err
	}
	defer func() {
		for i := range networks {
			_ = networks[i].Free()
		}
	}()
	had := make([]pool, len(networks))
	some := false
	for i := range networks {
		if had[i], err = poolOf(&networks[i]); err != nil {
			return err
		}
		some = some || slices.ContainsFunc(had[i].records, record.ours)
	}
	if !some {
		return nil
	}
	domains, err := r.domains.all(c)
	if err != nil {
		return err
	}
	for i := range networks {
		name, err := networks[i].GetName()
		if err != nil {
			return err
		}
		for _, stale := range had[i].stale(name, domains) {
			r.mu.Lock()
			err := removeRecord(&networks[i], stale)
			r.mu.Unlock()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// stale returns croft's records of a network that no domain should have.
func (p pool) stale(network string, domains []domain) (all []record) {
	for _, r := range p.records {
		wanted := func(one domain) bool {
			return slices.ContainsFunc(one.nics, func(nic markNIC) bool {
				want, ok := recordFor(one.Name, one.Project, nic)
				return ok && nic.Network == network && want.equal(r)
			})
		}
		if r.ours() && !slices.ContainsFunc(domains, wanted) {
			all = append(all, r)
		}
	}
	return all
}
