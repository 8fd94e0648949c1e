package libvirt

import (
	"cmp"
	"errors"
	"log/slog"
	"slices"
	"sync"

	"libvirt.org/go/libvirt"

	"croft"
)

// domainReader reads croft's domains with their addresses.
type domainReader struct {
	log     *slog.Logger
	bridged sync.Map // MACs of guests on host bridges
	used    usedAddresses

	mu       sync.Mutex
	reported map[croft.InstanceID]bool // unreadable marks, each reported once
}

// all reads all of croft's domains, sorted by ID.
func (r *domainReader) all(c *libvirt.Connect) ([]domain, error) {
	doms, err := c.ListAllDomains(0)
	if err != nil {
		return nil, err
	}
	defer func() {
		for i := range doms {
			_ = doms[i].Free()
		}
	}()
	leases := leaseReader{conn: c, used: &r.used}
	var list []domain
	for i := range doms {
		one, ours, err := r.ours(&doms[i])
		if err == nil && ours {
			err = leases.fill(&one)
		}
		if is(err, libvirt.ERR_NO_DOMAIN) {
			continue // removed since the listing
		}
		if err != nil {
			return nil, err
		}
		if ours {
			r.noteBridged(one.nics)
			list = append(list, one)
		}
	}
	r.used.keep(list)
	slices.SortFunc(list, func(a, b domain) int { return cmp.Compare(a.ID, b.ID) })
	return list, nil
}

// noteBridged records the MACs whose addresses come only from the host's neighbour table.
func (r *domainReader) noteBridged(nics []markNIC) {
	for _, n := range nics {
		if n.Bridge != "" {
			r.bridged.Store(n.MAC, true)
		}
	}
}

// ours describes a domain if it is croft's.
func (r *domainReader) ours(dom *libvirt.Domain) (one domain, ours bool, err error) {
	id, named := instanceOf(dom)
	if !named {
		return domain{}, false, nil
	}
	k, err := readMark(dom)
	if errors.Is(err, errNoMark) {
		return domain{}, false, nil
	}
	if errors.Is(err, croft.Conflict) {
		r.report(id, err)
		return domain{}, false, nil
	}
	if err != nil {
		return domain{}, false, err
	}
	one, err = describe(id, dom, k)
	return one, err == nil, err
}

// report logs once per domain why croft leaves it alone.
func (r *domainReader) report(id croft.InstanceID, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.reported[id] {
		r.reported[id] = true
		r.log.Warn("a domain is left alone", "instance", id, "err", err)
	}
}
