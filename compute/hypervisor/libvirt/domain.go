package libvirt

import (
	"net/netip"

	"libvirt.org/go/libvirt"

	"croft"
	"croft/compute"
)

// domain is a domain with the data from which its addresses are derived.
type domain struct {
	compute.Domain
	leased   []netip.Addr            // the subset of Addresses leased by a DHCP server of libvirt
	leasedTo map[string][]netip.Addr // the same by MAC
	nics     []markNIC
	boot     uint // libvirt's number of the running domain, new with each start; 0: it is off
}

// describe reads the domain's state from libvirt; leaseReader adds the addresses.
func describe(id croft.InstanceID, dom *libvirt.Domain, k mark) (domain, error) {
	state, reason, err := dom.GetState()
	if err != nil {
		return domain{}, err
	}
	one := domain{nics: k.NICs}
	one.ID, one.Partition, one.Ordered = id, k.Partition, k.get()
	one.Power, one.Crashed = power(state, reason)
	if one.Power != compute.PowerOff {
		one.boot, _ = dom.GetID() // an error says that it has just ended
	}
	one.Started, one.PCI, one.CD = k.Started, k.getPCI(), k.CD == cdIn
	one.Halted = k.Started != 0 && state == libvirt.DOMAIN_SHUTOFF &&
		libvirt.DomainShutoffReason(reason) == libvirt.DOMAIN_SHUTOFF_SHUTDOWN
	one.Stalled = state == libvirt.DOMAIN_PAUSED && libvirt.DomainPausedReason(reason) == libvirt.DOMAIN_PAUSED_IOERROR
	for _, n := range k.NICs {
		if addr, err := netip.ParseAddr(n.Address); err == nil {
			one.Reserved = append(one.Reserved, addr)
		}
	}
	return one, nil
}

// power maps libvirt's state and reason.
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
	case libvirt.DOMAIN_CRASHED: // its process still exists
		return compute.PowerPaused, true
	}
	return compute.PowerOn, false
}
