package libvirt

import (
	"context"

	"libvirt.org/go/libvirt"

	"croft"
	"croft/compute/hypervisor/libvirt/domainxml"
)

// Eject implements compute.Hypervisor. The mark changes last, so that an ejection that broke off is repeated.
func (d *Driver) Eject(ctx context.Context, id croft.InstanceID) error {
	return do(ctx, d.conn, about("eject the CD of", id), func(c *libvirt.Connect) error {
		return with(c, id, func(dom *libvirt.Domain, k mark) error {
			if k.CD == "" {
				return nil
			}
			err := ejectFrom(dom, libvirt.DOMAIN_XML_INACTIVE, libvirt.DOMAIN_DEVICE_MODIFY_CONFIG)
			if err != nil {
				return err
			}
			active, err := dom.IsActive()
			if err == nil && active {
				err = ejectFrom(dom, 0, libvirt.DOMAIN_DEVICE_MODIFY_LIVE)
			}
			if err != nil {
				return err
			}
			k.CD, k.Digest = "", "" // the next definition is another one
			return k.write(dom, libvirt.DOMAIN_AFFECT_CONFIG)
		})
	})
}

// ejectFrom empties the CD drive in a domain's definition, or in its running machine.
func ejectFrom(dom *libvirt.Domain, of libvirt.DomainXMLFlags, in libvirt.DomainDeviceModifyFlags) error {
	x, err := definitionOf(dom, of)
	if err != nil {
		return err
	}
	for _, disk := range x.Devices.Disks {
		if !domainxml.IsCD(disk) || fileOf(disk.Source) == "" {
			continue
		}
		disk.Source, disk.BackingStore = nil, nil
		text, err := disk.Marshal()
		if err != nil {
			return err
		}
		if err := dom.UpdateDeviceFlags(text, in|libvirt.DOMAIN_DEVICE_MODIFY_FORCE); err != nil {
			return err
		}
	}
	return nil
}
