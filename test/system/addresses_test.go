package system

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"croft"
	"croft/compute"
	"croft/schedule"
)

// guestSubnet is the network of the guests of each host. It is small, so that a guest that did not choose its address
// often has one that another instance asks for.
var guestSubnet = netip.MustParsePrefix("10.0.0.0/29")

// address returns an address for a request, mostly one that a guest has on some host; or none.
func (a *actor) address(ctx context.Context) string {
	if a.rng.IntN(2) == 0 {
		return ""
	}
	m := a.machines[a.rng.IntN(len(a.machines))]
	domains, err := m.hv.List(context.WithValue(ctx, looking{}, true))
	if err != nil || len(domains) == 0 || a.rng.IntN(4) == 0 {
		return fmt.Sprintf("10.0.0.%d", 2+a.rng.IntN(3))
	}
	return domains[a.rng.IntN(len(domains))].Reserved[0].String()
}

// noteAddress counts what requests with a chosen address led to.
func (a *actor) noteAddress(r schedule.Request, errs []error) {
	switch {
	case r.FixedAddress == "":
	case slices.Contains(errs, nil):
		a.tally.add("gave a chosen address")
	case slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, croft.Conflict) }):
		a.tally.add("refused a chosen address, or a name")
	}
}

// sharedAddresses lists the addresses that two guests of a host have at one moment, whether they run or not.
func sharedAddresses(host int, domains []compute.Domain) (bad []string) {
	by := map[netip.Addr]croft.InstanceID{}
	for _, d := range domains {
		for _, addr := range d.Reserved {
			if other, used := by[addr]; used {
				bad = append(bad, fmt.Sprintf("no two guests of a host have one address: the guests of %s and %s on "+
					"host%d have %s", other, d.ID, host, addr))
			}
			by[addr] = d.ID
		}
	}
	return bad
}

// chosenAddressesAreGiven: the guest of an instance that asked for an address has this one, and only the instances on a
// host with a chosen address keep it from others there.
func (w *world) chosenAddressesAreGiven(ctx context.Context) (bad []string) {
	complain := func(format string, args ...any) { bad = append(bad, fmt.Sprintf(format, args...)) }
	all, err := w.store.Instances.List(ctx, "")
	if err != nil {
		return []string{err.Error()}
	}
	want := map[string]map[croft.HostID]croft.InstanceID{}
	for n := range 8 {
		want[fmt.Sprintf("10.0.0.%d", n)] = map[croft.HostID]croft.InstanceID{}
	}
	for _, st := range all {
		inst := st.Instance
		if inst.Spec.FixedAddress == "" || inst.Host == "" {
			continue
		}
		if other := want[inst.Spec.FixedAddress][inst.Host]; other != "" {
			complain("%s and %s chose %s of host %s", inst.ID, other, inst.Spec.FixedAddress, inst.Host)
		}
		want[inst.Spec.FixedAddress][inst.Host] = inst.ID
		m := w.machineOrNil(inst.Host)
		if m == nil {
			continue
		}
		d, err := m.hv.Get(ctx, inst.ID)
		if err == nil && (len(d.Reserved) != 1 || d.Reserved[0].String() != inst.Spec.FixedAddress) {
			complain("%s asked for %s, and its guest has %v", inst.ID, inst.Spec.FixedAddress, d.Reserved)
		}
	}
	for address, on := range want {
		holders, err := w.store.Instances.AddressHolders(ctx, address)
		if err != nil || !maps.Equal(holders, on) {
			complain("%s is kept for %v, and these chose it: %v; %v", address, holders, on, err)
		}
	}
	return bad
}

// freeAddresses removes the guests without a chosen address that have one that an instance on their host waits for, as
// its user does who is told. The instance then has to start by itself.
func (w *world) freeAddresses(ctx context.Context) error {
	all, err := w.store.Instances.List(ctx, "")
	if err != nil {
		return err
	}
	for _, st := range all {
		m := w.machineOrNil(st.Instance.Host)
		chosen := st.Instance.Spec.FixedAddress
		if m == nil || chosen == "" || st.Instance.State != croft.StateScheduled {
			continue
		}
		domains, listed := m.hv.List(ctx)
		err = errors.Join(err, listed)
		for _, d := range domains {
			if d.ID == st.Instance.ID || len(d.Reserved) != 1 || d.Reserved[0].String() != chosen {
				continue
			}
			at := slices.IndexFunc(all, func(st croft.Status) bool { return st.Instance.ID == d.ID })
			if at < 0 || all[at].Instance.Host != m.id || all[at].Instance.Spec.FixedAddress != "" {
				continue
			}
			err = errors.Join(err, w.remove(ctx, all[at].Instance))
			w.tally.add("freed an address that an instance waited for")
		}
	}
	return err
}
