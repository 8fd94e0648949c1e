package libvirt

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"slices"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/libvirt/domainxml"
)

// markPCI are PCI devices that croft gave to a domain.
type markPCI struct {
	Class     croft.ResourceClass `xml:"class,attr"`
	Addresses []string            `xml:"address"`
}

func (k *mark) setPCI(units []compute.PCI) {
	k.PCI = nil
	for _, u := range units {
		k.PCI = append(k.PCI, markPCI(u))
	}
}

func (k *mark) getPCI() (units []compute.PCI) {
	for _, u := range k.PCI {
		units = append(units, compute.PCI(u))
	}
	return units
}

// GivePCI implements compute.Hypervisor. Definition and mark change at one moment. Within the machine, a device takes
// the place of the one that it replaces.
func (d *Driver) GivePCI(ctx context.Context, id croft.InstanceID, units []compute.PCI) error {
	return do(ctx, d.conn, about("change the PCI devices of", id), func(c *libvirt.Connect) error {
		return with(c, id, func(dom *libvirt.Domain, k mark) error {
			switch active, err := dom.IsActive(); {
			case err != nil:
				return err
			case active:
				return croft.Errorf(croft.Conflict, "it is not off: its PCI devices stay")
			}
			x, err := definitionOf(dom, libvirt.DOMAIN_XML_INACTIVE|libvirt.DOMAIN_XML_SECURE)
			if err != nil {
				return err
			}
			given, err := domainxml.Hostdevs(units)
			if err != nil {
				return err
			}
			for i := range min(len(given), len(x.Devices.Hostdevs)) {
				given[i].Address = x.Devices.Hostdevs[i].Address
			}
			x.Devices.Hostdevs = given
			x.MemoryTune = nil
			if x.Memory != nil { // KiB, as libvirt returns it
				x.MemoryTune = domainxml.MemoryTune(units, int64(x.Memory.Value)>>10)
			}
			k.setPCI(units)
			k.Digest = "" // it is not the definition that Define wrote
			k.XMLName, k.Namespace = xml.Name{Local: "instance"}, namespace
			element, err := xml.Marshal(k)
			if err != nil {
				return err
			}
			x.Metadata = &libvirtxml.DomainMetadata{XML: string(element)}
			text, err := x.Marshal()
			if err != nil {
				return fmt.Errorf("write its definition: %w", err)
			}
			defined, err := c.DomainDefineXMLFlags(text, libvirt.DOMAIN_DEFINE_VALIDATE)
			if err != nil {
				return err
			}
			return defined.Free()
		})
	})
}

// ForeignPCI implements compute.Hypervisor. It also finds devices that someone else gave to a domain of croft's.
func (d *Driver) ForeignPCI(ctx context.Context) (map[string]string, error) {
	return call(ctx, d.conn, task{verb: "list the PCI devices of domains"},
		func(c *libvirt.Connect) (map[string]string, error) {
			doms, err := c.ListAllDomains(0)
			if err != nil {
				return nil, err
			}
			defer func() {
				for i := range doms {
					_ = doms[i].Free()
				}
			}()
			all := map[string]string{}
			for i := range doms {
				if err := addForeignPCI(all, &doms[i]); err != nil && !is(err, libvirt.ERR_NO_DOMAIN) {
					return nil, err
				}
			}
			return all, nil
		})
}

// addForeignPCI adds the devices of a domain that croft did not give to it: of its definition, and of the guest.
func addForeignPCI(all map[string]string, dom *libvirt.Domain) error {
	name, err := dom.GetName()
	if err != nil {
		return err
	}
	k, err := readMark(dom)
	if err != nil && !errors.Is(err, errNoMark) && !errors.Is(err, croft.Conflict) {
		return err
	}
	var ours []string
	for _, u := range k.PCI {
		ours = append(ours, u.Addresses...)
	}
	for _, flags := range []libvirt.DomainXMLFlags{0, libvirt.DOMAIN_XML_INACTIVE} {
		x, err := definitionOf(dom, flags)
		if err != nil {
			return err
		}
		for _, address := range domainxml.HostAddresses(x.Devices) {
			if !slices.Contains(ours, address) {
				all[address] = name
			}
		}
	}
	return nil
}
