package libvirt

import (
	"context"
	"errors"

	"libvirt.org/go/libvirt"

	"croft"
	"croft/compute"
)

// List returns the domains that carry croft's mark, by ID. A domain with a name of croft's and an unreadable
// mark is logged once and left out.
func (d *Driver) List(ctx context.Context) ([]compute.Domain, error) {
	return call(ctx, d.conn, task{verb: "list the domains"}, func(c *libvirt.Connect) ([]compute.Domain, error) {
		all, err := d.domains.all(c)
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

// Get returns the domain of an instance; NotFound: no domain with croft's mark; Conflict: the mark is unreadable.
func (d *Driver) Get(ctx context.Context, id croft.InstanceID) (compute.Domain, error) {
	return call(ctx, d.conn, about("look up", id), func(c *libvirt.Connect) (found compute.Domain, err error) {
		err = with(c, id, func(dom *libvirt.Domain, k mark) error {
			one, err := describe(id, dom, k)
			if err != nil {
				return err
			}
			leases := leaseReader{conn: c, used: &d.domains.used}
			err = leases.fill(&one)
			found = one.Domain
			return err
		})
		return found, err
	})
}

// Define makes the domain persistent or replaces its definition with m; a running guest uses it from its next
// start. Conflict: the UUID belongs to a domain of another partition, or to one that is not croft's.
func (d *Driver) Define(ctx context.Context, m compute.Machine) error {
	if err := check(m); err != nil {
		return err
	}
	virt := d.virtOf(m.Kind.Arch)
	wanted := newMark(m)
	d.domains.noteBridged(wanted.NICs)
	return do(ctx, d.conn, about("define", m.ID), func(c *libvirt.Connect) error {
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
		if !known {
			all, err := d.network.domains.all(c)
			if err != nil {
				return err
			}
			if err := checkMACs(m.ID, wanted.NICs, all); err != nil {
				return err
			}
		}
		if wanted.NICs, err = d.network.connect(c, wanted.NICs); err != nil {
			return err
		}
		f := definition{Virt: virt, CacheMiB: d.config.EmulatorCacheMiB,
			Ports: d.network.filter.portNames(m.Partition, wanted.NICs)}
		if f.Readers, err = d.readers.of(c, virt); err != nil {
			return err
		}
		text, digest, err := f.define(m, wanted)
		if err != nil || known && k.Digest == digest {
			return err
		}
		dom, err := c.DomainDefineXMLFlags(text, libvirt.DOMAIN_DEFINE_VALIDATE)
		if err != nil {
			if !known {
				err = errors.Join(err, d.network.disconnect(c, m.ID, wanted.NICs))
			}
			return err
		}
		return dom.Free()
	})
}
