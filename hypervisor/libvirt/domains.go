package libvirt

import (
	"context"
	"errors"
	"net/netip"

	"libvirt.org/go/libvirt"

	"croft"
	"croft/compute"
)

// domain is a domain with what its addresses come from.
type domain struct {
	compute.Domain
	leased   []netip.Addr            // of Addresses, those that a DHCP server of libvirt gave
	leasedTo map[string][]netip.Addr // the same by MAC
	nics     []markNIC
}

// List returns the domains that carry croft's mark, by ID. A domain that is named
// as croft's and has a mark that cannot be read is logged once and left out.
func (d *Driver) List(ctx context.Context) ([]compute.Domain, error) {
	return call(ctx, d, task{verb: "list the domains"}, func(c *libvirt.Connect) ([]compute.Domain, error) {
		all, err := d.domains(c)
		if err != nil {
			return nil, err
		}
		list := make([]compute.Domain, len(all))
		for i, dom := range all {
			list[i] = dom.Domain
		}
		return list, nil
	})
}

// Get returns the domain of an instance; NotFound where there is none with croft's
// mark, Conflict where the mark cannot be read.
func (d *Driver) Get(ctx context.Context, id croft.InstanceID) (compute.Domain, error) {
	return call(ctx, d, about("look up", id), func(c *libvirt.Connect) (found compute.Domain, err error) {
		err = with(c, id, func(dom *libvirt.Domain, k mark) error {
			one, err := describe(id, dom, k)
			if err != nil {
				return err
			}
			leases := leaseReader{conn: c}
			err = leases.fill(&one)
			found = one.Domain
			return err
		})
		return found, err
	})
}

// Define makes the domain persistent, or its definition what m says; a guest that
// runs has it with its next start. Conflict: the UUID is taken by a domain of
// another partition, or one that is not croft's.
func (d *Driver) Define(ctx context.Context, m compute.Machine) error {
	if err := check(m); err != nil {
		return err
	}
	virt, _ := d.VirtType()
	wanted := newMark(m)
	d.noteBridged(wanted.NICs)
	return do(ctx, d, about("define", m.ID), func(c *libvirt.Connect) error {
		old, k, err := lookup(c, m.ID)
		known := err == nil
		switch {
		case errors.Is(err, errNoMark):
			return croft.Errorf(croft.Conflict, "a domain of that UUID is here that croft did not make")
		case is(err, libvirt.ERR_NO_DOMAIN):
		case err != nil:
			return err
		default:
			_ = old.Free()
			if k.Partition != m.Partition {
				return croft.Errorf(croft.Conflict, "a domain of that UUID is here that belongs to partition %s",
					k.Partition)
			}
		}
		if wanted.NICs, err = d.connectNICs(c, wanted.NICs); err != nil {
			return err
		}
		f := definition{virt: virt, cacheMiB: d.config.EmulatorCacheMiB, ports: d.portNames(m.Partition, wanted.NICs)}
		if f.readers, err = d.readers(c, virt); err != nil {
			return err
		}
		text, digest, err := f.define(m, wanted)
		if err != nil || known && k.Digest == digest {
			return err
		}
		dom, err := c.DomainDefineXMLFlags(text, libvirt.DOMAIN_DEFINE_VALIDATE)
		if err != nil {
			if !known {
				err = errors.Join(err, d.disconnectNICs(c, m.ID, wanted.NICs))
			}
			return err
		}
		return dom.Free()
	})
}

// domains reads all of croft's domains, in the order of their IDs.
func (d *Driver) domains(c *libvirt.Connect) ([]domain, error) {
	doms, err := c.ListAllDomains(0)
	if err != nil {
		return nil, err
	}
	defer func() {
		for i := range doms {
			_ = doms[i].Free()
		}
	}()
	leases := leaseReader{conn: c}
	var list []domain
	for i := range doms {
		one, ours, err := d.ours(&doms[i])
		if err == nil && ours {
			err = leases.fill(&one)
		}
		if is(err, libvirt.ERR_NO_DOMAIN) {
			continue // removed since it was listed
		}
		if err != nil {
			return nil, err
		}
		if ours {
			d.noteBridged(one.nics)
			list = append(list, one)
		}
	}
	sortByID(list)
	return list, nil
}

// noteBridged keeps the MACs whose addresses only the host's neighbours tell.
func (d *Driver) noteBridged(nics []markNIC) {
	for _, n := range nics {
		if n.Bridge != "" {
			d.bridged.Store(n.MAC, true)
		}
	}
}

// ours describes a domain if it is croft's.
func (d *Driver) ours(dom *libvirt.Domain) (one domain, ours bool, err error) {
	id, named := instanceOf(dom)
	if !named {
		return domain{}, false, nil
	}
	k, err := readMark(dom)
	if errors.Is(err, errNoMark) {
		return domain{}, false, nil
	}
	if errors.Is(err, croft.Conflict) {
		d.report(id, err)
		return domain{}, false, nil
	}
	if err != nil {
		return domain{}, false, err
	}
	one, err = describe(id, dom, k)
	return one, err == nil, err
}

// report logs once what is wrong with a domain that croft leaves alone.
func (d *Driver) report(id croft.InstanceID, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.reported[id] {
		d.reported[id] = true
		d.log.Warn("a domain is left alone", "instance", id, "err", err)
	}
}

// describe asks libvirt for the domain's state; addresses are for leaseReader.
func describe(id croft.InstanceID, dom *libvirt.Domain, k mark) (domain, error) {
	state, reason, err := dom.GetState()
	if err != nil {
		return domain{}, err
	}
	one := domain{nics: k.NICs}
	one.ID, one.Partition, one.Generation = id, k.Partition, k.Generation
	one.Power, one.Crashed = power(state, reason)
	one.Started = k.Started
	one.Halted = k.Started != 0 && state == libvirt.DOMAIN_SHUTOFF &&
		libvirt.DomainShutoffReason(reason) == libvirt.DOMAIN_SHUTOFF_SHUTDOWN
	for _, n := range k.NICs {
		if addr, err := netip.ParseAddr(n.Address); err == nil {
			one.Reserved = append(one.Reserved, addr)
		}
	}
	return one, nil
}

// power reads libvirt's state and its reason.
func power(state libvirt.DomainState, reason int) (p compute.Power, crashed bool) {
	switch state {
	case libvirt.DOMAIN_SHUTOFF:
		switch libvirt.DomainShutoffReason(reason) {
		case libvirt.DOMAIN_SHUTOFF_CRASHED, libvirt.DOMAIN_SHUTOFF_FAILED, libvirt.DOMAIN_SHUTOFF_DAEMON:
			return compute.PowerOff, true
		}
		return compute.PowerOff, false
	case libvirt.DOMAIN_PAUSED, libvirt.DOMAIN_PMSUSPENDED:
		return compute.PowerPaused, false
	case libvirt.DOMAIN_CRASHED: // it has a process still
		return compute.PowerPaused, true
	}
	return compute.PowerOn, false
}
