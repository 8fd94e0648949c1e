package domainxml

import (
	"fmt"

	"libvirt.org/go/libvirtxml"

	"croft/compute/machine"
)

// lockedExtraMiB is the memory that the process of a machine with PCI devices may lock in addition to the guest's,
// which VFIO locks completely because the devices write to it: for the devices' own memory areas, and for QEMU.
const lockedExtraMiB = 4096

// LockedMiB returns the limit for the locked memory of a machine with PCI devices.
func LockedMiB(memoryMiB int64) uint64 { return uint64(memoryMiB) + lockedExtraMiB }

// MemoryTune lets the process of a machine with PCI devices lock its memory; nil: nothing is locked.
func MemoryTune(units []machine.PCI, memoryMiB int64) *libvirtxml.DomainMemoryTune {
	if len(units) == 0 {
		return nil
	}
	return &libvirtxml.DomainMemoryTune{
		HardLimit: &libvirtxml.DomainMemoryTuneLimit{Value: LockedMiB(memoryMiB), Unit: "MiB"}}
}

// balloon lets the guest give memory back to the host, except memory that is locked.
func balloon(m machine.Machine) *libvirtxml.DomainMemBalloon {
	if len(m.PCI) > 0 {
		return &libvirtxml.DomainMemBalloon{Model: "none"}
	}
	return &libvirtxml.DomainMemBalloon{Model: "virtio", FreePageReporting: "on"}
}

// Hostdevs are PCI devices of the host. libvirt takes them from the host's drivers when the machine starts, and gives
// them back when it ends.
func Hostdevs(units []machine.PCI) (list []libvirtxml.DomainHostdev, err error) {
	for _, unit := range units {
		for _, address := range unit.Addresses {
			at, err := parseAddress(address)
			if err != nil {
				return nil, err
			}
			list = append(list, libvirtxml.DomainHostdev{Managed: "yes", SubsysPCI: &libvirtxml.DomainHostdevSubsysPCI{
				Driver: &libvirtxml.DomainHostdevSubsysPCIDriver{Name: "vfio"},
				Source: &libvirtxml.DomainHostdevSubsysPCISource{Address: at}}})
		}
	}
	return list, nil
}

const addressFormat = "%04x:%02x:%02x.%x"

func parseAddress(text string) (*libvirtxml.DomainAddressPCI, error) {
	at := libvirtxml.DomainAddressPCI{Domain: new(uint), Bus: new(uint), Slot: new(uint), Function: new(uint)}
	if _, err := fmt.Sscanf(text, addressFormat, at.Domain, at.Bus, at.Slot, at.Function); err != nil ||
		addressOf(&at) != text {
		return nil, fmt.Errorf("%q is no address of a PCI device", text)
	}
	return &at, nil
}

func addressOf(at *libvirtxml.DomainAddressPCI) string {
	number := func(n *uint) uint {
		if n == nil {
			return 0
		}
		return *n
	}
	return fmt.Sprintf(addressFormat, number(at.Domain), number(at.Bus), number(at.Slot), number(at.Function))
}

// HostAddresses returns the addresses of the PCI devices of the host that a domain has, also as network cards.
func HostAddresses(devices *libvirtxml.DomainDeviceList) (all []string) {
	for _, h := range devices.Hostdevs {
		if h.SubsysPCI != nil && h.SubsysPCI.Source != nil && h.SubsysPCI.Source.Address != nil {
			all = append(all, addressOf(h.SubsysPCI.Source.Address))
		}
	}
	for _, n := range devices.Interfaces {
		if n.Source == nil || n.Source.Hostdev == nil || n.Source.Hostdev.PCI == nil {
			continue
		}
		if at := n.Source.Hostdev.PCI.Address; at != nil {
			all = append(all, addressOf(at))
		}
	}
	return all
}
