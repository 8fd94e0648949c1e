package compute

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"croft"
	"croft/compute/pci"
)

// passthrough are the PCI devices of the host that guests get.
type passthrough struct {
	turn chan struct{} // holds a token while devices are chosen

	mu sync.Mutex // guards chosen
	// the latest choices of this process: the domain may not have them yet, because a call to the hypervisor takes
	// effect late
	chosen map[croft.InstanceID][]PCI

	// guarded by Agent.introducing
	offered map[croft.ResourceClass]croft.Inventory
}

// pciState is a reading of the devices and of what has them.
type pciState struct {
	units []pci.Unit        // of the settings, whether a guest has them or not
	why   map[string]string // by address, why a selected device is not offered
	rest  []string          // problems that no device has
	// by address: the machine that is not croft's, or the running guest of croft, which has it
	foreign map[string]string
	running map[string]croft.InstanceID
	kept    map[string]croft.InstanceID // by address: the guest of croft that is off, and has it
}

// readPCI reads the devices that the settings select, and the domains that have them.
func (a *Agent) readPCI(ctx context.Context) (s pciState, err error) {
	units, refused, err := a.PCI.Units()
	if err != nil {
		return s, err
	}
	s.units, s.why = units, map[string]string{}
	for _, r := range refused {
		if r.Address != "" {
			s.why[r.Address] = r.Reason
		} else {
			s.rest = append(s.rest, r.Reason)
		}
	}
	if s.foreign, err = a.Hypervisor.ForeignPCI(ctx); err != nil {
		return s, fmt.Errorf("look for machines with PCI devices: %w", err)
	}
	domains, err := a.Hypervisor.List(ctx)
	if err != nil {
		return s, fmt.Errorf("look for guests with PCI devices: %w", err)
	}
	s.running, s.kept = map[string]croft.InstanceID{}, map[string]croft.InstanceID{}
	for _, d := range domains {
		has := s.kept
		if d.Power != PowerOff {
			has = s.running
		}
		for _, address := range addressesOf(d.PCI) {
			has[address] = d.ID
		}
	}
	return s, nil
}

func addressesOf(units []PCI) (all []string) {
	for _, u := range units {
		all = append(all, u.Addresses...)
	}
	return all
}

// usable counts the units of each class that guests of croft can have.
func (s pciState) usable() map[croft.ResourceClass]int64 {
	count := map[croft.ResourceClass]int64{}
	for _, u := range s.units {
		if u.Taken(s.foreign) == "" {
			count[u.Class]++
		}
	}
	return count
}

// problem describes what the settings select and the host does not offer; empty: it offers everything.
func (s pciState) problem() string {
	all := slices.Clone(s.rest)
	for _, address := range slices.Sorted(maps.Keys(s.why)) {
		all = append(all, s.why[address])
	}
	for _, u := range s.units {
		if why := u.Taken(s.foreign); why != "" {
			all = append(all, why)
		}
	}
	if len(all) > 3 {
		all = append(all[:3], fmt.Sprintf("and %d more: see `croft doctor` on the host", len(all)-3))
	}
	return strings.Join(all, "; ")
}

// wantedPCI returns how many units of each class of PCI devices an instance has claimed.
func wantedPCI(r croft.Resources) croft.Resources {
	wanted := maps.Clone(r)
	maps.DeleteFunc(wanted, func(class croft.ResourceClass, n int64) bool { return !class.IsPCI() || n < 1 })
	return wanted
}

// choosePCI chooses the PCI devices of the instance, which no other guest can choose from then on: if possible those
// that its domain has. Conflict: the host does not have enough of them now.
func (p *pass) choosePCI(ctx context.Context, has []PCI) ([]PCI, error) {
	wanted := wantedPCI(p.want.Spec.Resources)
	if len(wanted) == 0 {
		return nil, nil
	}
	t := &p.agent.passthrough
	select {
	case t.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-t.turn }()
	s, err := p.agent.readPCI(ctx)
	if err != nil {
		return nil, err
	}
	taken := t.takenFrom(p.id)
	free := func(u pci.Unit, alsoKept bool) bool {
		return !slices.ContainsFunc(u.Addresses(), func(address string) bool {
			_, foreign := s.foreign[address]
			by, runs := s.running[address]
			keeper, kept := s.kept[address]
			return foreign || taken[address] || runs && by != p.id || kept && keeper != p.id && !alsoKept
		})
	}
	var chosen []PCI
	for _, class := range slices.Sorted(maps.Keys(wanted)) {
		units := slices.DeleteFunc(slices.Clone(s.units), func(u pci.Unit) bool { return u.Class != class })
		add := func(may func(pci.Unit) bool) {
			for _, u := range units {
				next := PCI{Class: class, Addresses: u.Addresses()}
				if wanted[class] > 0 && may(u) && !slices.ContainsFunc(chosen, next.Equal) {
					chosen = append(chosen, next)
					wanted[class]--
				}
			}
		}
		// A domain that is off and was not started by this process keeps its devices while others are free. If it is
		// to start later, it gets others.
		add(func(u pci.Unit) bool {
			return free(u, true) && slices.ContainsFunc(has, PCI{Class: class, Addresses: u.Addresses()}.Equal)
		})
		add(func(u pci.Unit) bool { return free(u, false) })
		add(func(u pci.Unit) bool { return free(u, true) })
		if wanted[class] > 0 {
			return nil, p.lacksPCI(ctx, s, class, has)
		}
	}
	slices.SortFunc(chosen, func(x, y PCI) int { return strings.Compare(x.Addresses[0], y.Addresses[0]) })
	t.mu.Lock()
	defer t.mu.Unlock()
	t.chosen[p.id] = chosen
	return chosen, nil
}

// takenFrom returns the addresses of devices that this process chose for other instances.
func (t *passthrough) takenFrom(id croft.InstanceID) map[string]bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := map[string]bool{}
	for other, units := range t.chosen {
		for _, address := range addressesOf(units) {
			taken[address] = taken[address] || other != id
		}
	}
	return taken
}

// release forgets the devices of an instance that has no domain, or whose domain stays off.
func (t *passthrough) release(id croft.InstanceID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.chosen, id)
}

// lacksPCI logs why the host has no device of a class for the instance, corrects the host's inventory, and returns the
// error for the tenant, who learns nothing about the host's other guests.
func (p *pass) lacksPCI(ctx context.Context, s pciState, class croft.ResourceClass, has []PCI) error {
	a := p.agent
	why := "all that it offers are in use"
	for _, address := range addressesOf(has) {
		i := slices.IndexFunc(s.units, func(u pci.Unit) bool { return slices.Contains(u.Addresses(), address) })
		if i >= 0 {
			why = cmp.Or(s.units[i].Taken(s.foreign), why)
		} else {
			why = cmp.Or(s.why[address], "the machine no longer has the PCI device "+address+", or the setting pci no "+
				"longer selects it")
		}
	}
	a.Log.Warn("no PCI device is free for an instance", "instance", p.id, "host", a.Host.ID, "class", class, "reason",
		why)
	err := croft.Errorf(croft.Conflict, "its host has no free device of %s: the one that it had is gone, or is used "+
		"by a machine outside of croft (an operator finds the reason in `croft host show`); it starts as soon as there "+
		"is one, and `schedule move` takes it to another host", class)
	claims, cerr := a.Inventory.Claims(ctx, a.Host.ID)
	if cerr == nil {
		cerr = a.countPCI(ctx, claims) // the next sweep writes the host's record
	}
	if cerr == nil {
		cerr = a.offerChanges(ctx)
	}
	if cerr != nil {
		a.logUnless(ctx, cerr, "correct the inventory of PCI devices")
	}
	return err
}

// hadPCI returns the devices of the instance's present domain, if it has one.
func (p *pass) hadPCI() []PCI {
	if p.have.Domain == nil {
		return nil
	}
	return p.have.Domain.PCI
}

// startWithPCI starts the guest with PCI devices that no other guest has.
func (p *pass) startWithPCI(ctx context.Context, domain Domain) error {
	if domain.Power == PowerOff {
		chosen, err := p.choosePCI(ctx, domain.PCI)
		if err != nil {
			return err
		}
		if !slices.EqualFunc(chosen, domain.PCI, PCI.Equal) {
			p.agent.Log.Info("the instance gets other PCI devices", "instance", p.id, "host", p.agent.Host.ID,
				"devices", strings.Join(addressesOf(chosen), " "))
			if err := p.agent.Hypervisor.GivePCI(ctx, p.id, chosen); err != nil {
				return err
			}
		}
	}
	return p.agent.Hypervisor.Start(ctx, p.id)
}

// countPCI reads the devices, and changes the inventories of their classes. A class is never smaller than its claims,
// which Placement would refuse: the missing devices are reserved, so no new claims come until the present ones have
// ended.
func (a *Agent) countPCI(ctx context.Context, claims map[croft.InstanceID]croft.Resources) error {
	claimed := croft.Resources{}
	for _, claim := range claims {
		for class, n := range wantedPCI(claim) {
			claimed[class] += n
		}
	}
	if len(a.PCI.Selectors) == 0 && len(claimed) == 0 {
		return nil
	}
	s, err := a.readPCI(ctx)
	if err != nil {
		return fmt.Errorf("count the PCI devices: %w", err)
	}
	offered := map[croft.ResourceClass]croft.Inventory{}
	usable := s.usable()
	for _, counts := range []map[croft.ResourceClass]int64{usable, claimed} {
		for class := range counts {
			total := max(usable[class], claimed[class])
			offered[class] = inventory(total, total-usable[class], 1)
		}
	}
	if problem := s.problem(); a.setProblem(problemPCI, problem) && problem != "" {
		a.Log.Warn("PCI devices are not offered", "host", a.Host.ID, "reason", problem)
	}
	a.introducing.Lock()
	defer a.introducing.Unlock()
	if !maps.Equal(offered, a.passthrough.offered) {
		a.passthrough.offered, a.offerChanged = offered, true
	}
	return nil
}
