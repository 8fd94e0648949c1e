package audit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"croft"
)

// comparison is one run of Compare.
type comparison struct {
	Evidence
	orders map[croft.OrderID]croft.Order
	found  []Difference
}

// Compare returns all differences, sorted by host. It is pure, and concludes nothing from missing evidence.
func Compare(b Evidence) []Difference {
	c := &comparison{Evidence: b, orders: map[croft.OrderID]croft.Order{}}
	for _, o := range b.Orders {
		c.orders[o.ID()] = o
	}
	names := map[Name]bool{}
	if b.Only == "" {
		names = c.checkNames()
		c.checkUserData()
		c.checkMembers()
		c.checkSeats()
		c.checkAddresses()
	}
	for id, inst := range b.Instances {
		if b.Only == "" && !names[Name{Project: inst.Project, Name: inst.Name, Instance: id}] {
			c.report(inst,
				Difference{Kind: MissingName,
					Cause: "its name is not in the directory, so that it is found by UUID alone", Mendable: true})
		}
		if b.Only == "" || inst.Host == b.Only {
			c.checkInstance(inst)
		}
	}
	for _, o := range b.Orders {
		c.checkOrder(o)
	}
	for _, o := range b.Observations {
		_, ordered := c.orders[croft.OrderID{Host: o.Host, Instance: o.Instance}]
		// otherwise the order is missing
		if inst, exists := c.Instances[o.Instance]; !ordered && !(exists && inst.Host == o.Host) {
			c.add(Difference{Kind: LostObservation, Host: o.Host, Instance: o.Instance, Mendable: true,
				Cause: "an observation is left of an order that no longer exists"})
		}
	}
	c.checkVolumes()
	for host := range b.Claims {
		c.checkClaims(host)
	}
	for storage := range b.Stored {
		c.checkStored(storage)
	}
	for host := range b.Contents {
		c.checkContents(host)
	}
	for id, host := range b.Hosts {
		for _, problem := range host.Problems {
			c.add(Difference{Kind: HostProblem, Host: id, Name: problem, Cause: problem})
		}
	}
	slices.SortFunc(c.found, func(a, b Difference) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Instance, b.Instance), cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Name, b.Name))
	})
	return c.found
}

func (c *comparison) add(d Difference) {
	if d.Host != "" {
		d.HostName = c.name(d.Host)
	}
	c.found = append(c.found, d)
}

// report adds a difference of an existing instance.
func (c *comparison) report(inst croft.Instance, d Difference) {
	d.Host, d.Instance, d.Project, d.Name, d.Revision = cmp.Or(d.Host, inst.Host), inst.ID, inst.Project, inst.Name,
		inst.Revision
	c.add(d)
}

// checkNames returns which instances can be found by name.
func (c *comparison) checkNames() map[Name]bool {
	found := map[Name]bool{}
	for _, n := range c.Names {
		inst, exists := c.Instances[n.Instance]
		if exists && inst.Project == n.Project && inst.Name == n.Name {
			found[Name{Project: n.Project, Name: n.Name, Instance: n.Instance}] = true
			continue
		}
		c.add(Difference{Kind: LostName, Instance: n.Instance, Project: n.Project, Name: n.Name, Mendable: true,
			Revision: n.Revision,
			Cause:    "the name belongs to an instance that no longer exists, so no other instance can have it"})
	}
	return found
}

// checkUserData finds user-data whose instance was removed by a version that does not know this key.
func (c *comparison) checkUserData() {
	for _, u := range c.UserData {
		if _, exists := c.Instances[u.Instance]; !exists {
			c.add(Difference{Kind: LostUserData, Instance: u.Instance, Mendable: true, Revision: u.Revision,
				Cause: "user-data is left of an instance that no longer exists"})
		}
	}
}

// checkAddresses finds chosen addresses that are in use for no instance, so that no other instance can have them, and
// instances whose chosen address others can get.
func (c *comparison) checkAddresses() {
	type place struct {
		address string
		host    croft.HostID
	}
	holders := map[place]croft.InstanceID{}
	for _, a := range c.Addresses {
		holders[place{a.Address, a.Host}] = a.Instance
		inst, exists := c.Instances[a.Instance]
		here := inst.Host == a.Host || inst.Copying && inst.Moving == a.Host
		if exists && here && inst.Spec.FixedAddress == a.Address {
			continue
		}
		c.add(Difference{Kind: LostAddress, Host: a.Host, Instance: a.Instance, Address: a.Address, Mendable: true,
			Revision: a.Revision,
			Cause: fmt.Sprintf("the address %s is kept for an instance that does not have it, so no other instance can "+
				"have it", a.Address)})
	}
	for id, inst := range c.Instances {
		placed := inst.State == croft.StateScheduled || inst.State == croft.StateHeld
		holder, taken := holders[place{inst.Spec.FixedAddress, inst.Host}]
		if inst.Spec.FixedAddress == "" || !placed || inst.Moving != "" || holder == id {
			continue
		}
		d := Difference{Kind: MissingAddress, Address: inst.Spec.FixedAddress, Mendable: !taken, Cause: fmt.Sprintf(
			"the address %s is not kept for it on its host, so another instance can get it", inst.Spec.FixedAddress)}
		if _, exists := c.Instances[holder]; taken && exists {
			d.Cause = fmt.Sprintf("the address %s is kept on its host for the instance %s", inst.Spec.FixedAddress,
				holder)
			d.Advice = "destroy one of the two and request it again: the addresses were changed outside croft"
		} else if taken {
			d.Advice = "audit again after the lost address is mended"
		}
		c.report(inst, d)
	}
}

func (c *comparison) checkInstance(inst croft.Instance) {
	if inst.State == croft.StateScheduling {
		if !c.Sessions[inst.Session] {
			c.report(inst, Difference{Kind: AbandonedRequest, Mendable: true,
				Cause: "its scheduler died between the request and the order"})
		}
		return
	}
	c.checkResize(inst)
	if inst.State == croft.StateLost { // an operator or user has to decide
		return
	}
	if inst.Copying && (c.Hosts == nil || c.Hosts[inst.Moving].Alive) {
		return // the agents of both hosts do the rest
	}
	if inst.Moving != "" && inst.State != croft.StateDestroying { // else its host releases the claim, on any host
		c.report(inst, Difference{Kind: UnfinishedMove, Mendable: true,
			Cause: fmt.Sprintf("the program that was moving it to host %s died or was "+
				"interrupted", c.name(inst.Moving))})
		return
	}
	if _, known := c.Hosts[inst.Host]; !known && c.Hosts != nil {
		c.report(inst, Difference{Kind: UnknownHost, Cause: "it is on record for a host that is not on record itself",
			Advice: "schedule remove --force frees its name and its claim"})
		return
	}
	if inst.State == croft.StateHeld {
		c.checkClaim(inst)
		return
	}
	order, ordered := c.orders[croft.OrderID{Host: inst.Host, Instance: inst.ID}]
	if !ordered {
		c.report(inst, Difference{Kind: MissingOrder, Mendable: true,
			Cause: "its host has no order about it, and so does nothing for it"})
		return
	}
	if order.Want != croft.WantGone {
		c.checkClaim(inst)
		c.checkGuest(inst, order)
		c.checkNetworks(inst)
	}
}

// checkNetworks finds networks of an instance that its host no longer opens to its project. The guest stays attached
// until it stops.
func (c *comparison) checkNetworks(inst croft.Instance) {
	host, known := c.Hosts[inst.Host]
	for _, name := range inst.Spec.Networks {
		if known && !host.AdmitsTo(name, inst.Project) {
			c.report(inst, Difference{Kind: ClosedNetwork, Cause: fmt.Sprintf(
				"it is attached to the network %q, which the settings of its host do not open to project %s (any more)",
				name, inst.Project),
				Advice: fmt.Sprintf("stop it, and it does not start there again; or add the project to networks.%s.projects",
					name)})
		}
	}
}

// checkClaim compares the claim on the instance's own host. Shared resources, such as a storage pool, are
// claimed elsewhere.
func (c *comparison) checkClaim(inst croft.Instance) {
	claims, read := c.Claims[inst.Host]
	if !read || inst.Resizing != nil { // it may claim more than its record says
		return
	}
	claim, has := claims[inst.ID]
	if !has {
		cause := "its allocations were removed outside croft, or Placement was restored from an older copy"
		if elsewhere := c.claimedElsewhere(inst); elsewhere != "" {
			cause = "its claim is on host " + c.name(elsewhere)
		}
		c.report(inst, Difference{Kind: MissingClaim, Mendable: true,
			Cause: "it claims nothing on its host, whose room can be given to others: " + cause})
		return
	}
	all := maps.Clone(claim)
	for class, amount := range c.Elsewhere[inst.ID] {
		all[class] += amount
	}
	for class, amount := range inst.Spec.Resources {
		// Evidence of one host has no claims elsewhere.
		if _, here := claim[class]; !here && c.Elsewhere == nil {
			all[class] = amount
		}
	}
	if !sameAmounts(all, inst.Spec.Resources) {
		c.report(inst,
			Difference{Kind: WrongClaim,
				Cause: fmt.Sprintf("it claims %s and was created with %s: its allocations were changed outside "+
					"croft", all,
					inst.Spec.Resources),
				Advice: "give the consumer the allocations that it was made with, through the Placement API"})
	}
}

// sameAmounts compares all classes of both; a missing class equals 0.
func sameAmounts(a, b croft.Resources) bool {
	for class := range b {
		if a[class] != b[class] {
			return false
		}
	}
	for class := range a {
		if a[class] != b[class] {
			return false
		}
	}
	return true
}

// claimedElsewhere returns a host other than the instance's with a claim of the instance; empty: none exists.
func (c *comparison) claimedElsewhere(inst croft.Instance) croft.HostID {
	for _, host := range slices.Sorted(maps.Keys(c.Claims)) {
		if _, has := c.Claims[host][inst.ID]; has && host != inst.Host {
			return host
		}
	}
	return ""
}

// checkGuest looks for the domain that was observed for the newest order.
func (c *comparison) checkGuest(inst croft.Instance, order croft.Order) {
	contents, asked := c.Contents[inst.Host]
	if !asked || contents.Guest(inst.ID) != nil {
		return
	}
	for _, o := range c.Observations {
		if o.Host == inst.Host && o.Instance == inst.ID && o.Generation == order.Generation &&
			(o.State == croft.StateRunning || o.State == croft.StateStopped || o.State == croft.StateBooting) {
			c.report(inst,
				Difference{Kind: MissingGuest,
					Cause: fmt.Sprintf("its domain was seen %s and no longer exists: it was removed outside croft",
						o.State),
					Advice: "its host recreates it from the image within a minute; the data on its old disk is not recovered"})
		}
	}
}

func (c *comparison) checkOrder(o croft.Order) {
	inst, exists := c.Instances[o.Instance]
	contents, asked := c.Contents[o.Host]
	host := c.Hosts[o.Host]
	d := Difference{Host: o.Host, Instance: o.Instance, Project: o.Project, Name: o.Name, Revision: o.Revision}
	switch {
	case o.Want == croft.WantLeft:
		if host.Alive {
			d.Kind, d.Cause = LeftHere, "it was lost, and this host has its disk: that is kept, and its guest off"
			d.Advice = fmt.Sprintf("save the data that is needed, and then `croft host leftover remove %s %s`", host.Name,
				o.Instance)
			if o.Storage != "" {
				d.Cause = "it was lost, and this host has its console log; its disk is on shared storage, and is not meant"
				d.Advice = fmt.Sprintf("`croft host leftover remove %s %s` removes the log, and never the disk", host.Name,
					o.Instance)
			}
			c.add(d)
		}
	case o.Want == croft.WantGone && (!exists || inst.Host != o.Host || inst.State == croft.StateDestroying):
		if host.Alive {
			d.Kind, d.Cause = UndoneOrder, "its host was ordered to remove it and has not done so yet"
			d.Advice = "the host's log says what is in the way; `croft doctor` there may too"
			c.add(d)
		} else if host.ID != "" && exists && slices.Contains(inst.Former(), o.Host) && !c.runs(inst) {
			d.Kind, d.Cause = UndoneOrder,
				fmt.Sprintf("it was moved to host %s, which waits for this one to remove it, and this one is silent",
					c.name(inst.Host))
			d.Advice = fmt.Sprintf(
				"bring the host back; or `croft host fence %s`, which declares it dead, ends the wait", c.name(o.Host))
			c.add(d)
		}
	case !exists:
		d.Kind, d.Cause = LostOrder,
			"an order is left of an instance that no longer exists: its record was removed past croft, or etcd was restored from an older copy"
		if d.Mendable = !asked || contents.Guest(o.Instance) == nil; !d.Mendable {
			d.Cause += "; its guest is there"
			d.Advice = "croft removes no running guest: look at it on its host with virsh, and undefine it there if " +
				"it is not needed"
		}
		c.add(d)
	case inst.Copying && inst.Moving == o.Host && o.Want == croft.WantArriving:
	case o.Want == croft.WantLeaving && inst.MovedFrom == o.Host: // until the guest runs on its new host
	case inst.Host != o.Host && inst.State != croft.StateScheduling:
		d.Kind, d.Cause = StrayOrder, fmt.Sprintf("host %s has an order about it, while it belongs to %s",
			c.name(o.Host), c.home(inst))
		d.Advice = "destroy it and request it again, or remove the order from etcd, before two hosts run it"
		c.add(d)
	}
}

// runs reports whether an instance has been observed on its host.
func (c *comparison) runs(inst croft.Instance) bool {
	return slices.ContainsFunc(c.Observations, func(o croft.Observation) bool {
		return o.Host == inst.Host && o.Instance == inst.ID && o.State != croft.StatePending
	})
}

func (c *comparison) checkClaims(host croft.HostID) {
	for id := range c.Claims[host] {
		inst, exists := c.Instances[id]
		order, ordered := c.orders[croft.OrderID{Host: host, Instance: id}]
		switch {
		case c.carries(host, croft.VolumeID(id)):
		case c.isVolume(id):
			c.checkVolumePlace(host, c.Volumes[croft.VolumeID(id)])
		case exists && (inst.State == croft.StateScheduling || inst.Host == host || inst.Moving != ""):
		case ordered && order.Want == croft.WantLeaving: // its disk is still here
		case ordered && order.Want == croft.WantGone: // the claim is released with the tombstone
		case exists && inst.State == croft.StateLost: // it could not be recreated
			c.report(inst, Difference{Kind: LeakedClaim, Host: host, Mendable: true,
				Cause: fmt.Sprintf("it claims from host %s and belongs to %s: the command that gave its host up died",
					c.name(host), c.home(inst))})
		case exists && c.lacksClaim(inst): // checkClaim reports where the claim is
		case exists:
			_, alsoHere := c.Claims[inst.Host][inst.ID]
			c.report(inst, Difference{Kind: StrayClaim, Mendable: alsoHere &&
				inst.State != croft.StateDestroying, Host: host,
				Cause:  fmt.Sprintf("it claims from host %s and belongs to %s", c.name(host), c.home(inst)),
				Advice: "give the consumer allocations on its own host, through the Placement API"})
		default:
			leftover := ordered && order.Want == croft.WantLeft // its own claim ended when it was given up
			d := Difference{Kind: LeakedClaim, Host: host, Instance: id,
				Mendable: leftover || c.Contents[host].Guest(id) == nil,
				Cause:    "a claim is left of an instance that no longer exists, and keeps its room from others: its scheduler died, or it was removed past croft"}
			if !d.Mendable {
				d.Cause = "a guest that is not on record has a claim"
				d.Advice = "croft frees no claim of a running guest: look at it on its host with virsh, and " +
					"undefine it there if it is not needed"
			}
			c.add(d)
		}
	}
}

// checkStored looks for claims on a shared storage without an instance or a volume, which no agent finds on its host.
func (c *comparison) checkStored(provider croft.HostID) {
	for id := range c.Stored[provider] {
		if _, exists := c.Instances[id]; exists || c.isVolume(id) {
			continue
		}
		c.add(Difference{Kind: LeakedClaim, Host: provider, Instance: id, Mendable: true,
			Cause: fmt.Sprintf("a claim on the shared storage %s is left of an instance or a volume that no longer exists, "+
				"and keeps its room from others: the program that made it died, or its answer was late",
				c.storage(provider))})
	}
}

// storage returns the name of a storage that hosts mount.
func (c *comparison) storage(provider croft.HostID) string {
	for _, h := range c.Hosts {
		if s, mounted := h.Mounts(string(provider)); mounted {
			return s.Name
		}
	}
	return string(provider)
}

// lacksClaim reports whether checkClaim found that an instance has no claim on its host.
func (c *comparison) lacksClaim(inst croft.Instance) bool {
	return slices.ContainsFunc(c.found, func(d Difference) bool {
		return d.Kind == MissingClaim && d.Instance == inst.ID
	})
}

func (c *comparison) checkContents(host croft.HostID) {
	contents := c.Contents[host]
	for _, g := range contents.Guests {
		if _, ordered := c.orders[croft.OrderID{Host: host, Instance: g.Instance}]; ordered {
			continue
		}
		d := Difference{Kind: StrayGuest, Host: host, Instance: g.Instance, Cause: "a guest without a record",
			Advice: "croft removes no guest without a tombstone: look at it with virsh, and undefine it there if it " +
				"is not needed"}
		inst, exists := c.Instances[g.Instance]
		if exists && inst.Host == host {
			continue // the order is missing
		}
		if exists && c.oneMachine(host, inst.Host) {
			continue // another agent on the machine shares its hypervisor
		}
		switch {
		case exists && inst.State == croft.StateLost:
			d.Project, d.Name = inst.Project, inst.Name
			d.Cause = "a guest of an instance that belongs to " + c.home(inst) + ", and the guest still runs here"
			d.Advice = fmt.Sprintf("save the data of its disk, undefine the guest here with virsh, and then "+
				"`schedule recreate %s` or `schedule remove %[1]s`", inst.ID)
		case exists:
			d.Project, d.Name = inst.Project, inst.Name
			d.Cause = "a guest of an instance that belongs to " + c.home(inst) +
				": this machine was that host before it lost its state directory, or a copy of its disks was made"
			d.Advice = fmt.Sprintf(
				"give this machine that host's host-id back, or destroy the instance and `croft host remove %s`",
				c.name(inst.Host))
		}
		c.add(d)
	}
	for _, id := range contents.Directories {
		_, ordered := c.orders[croft.OrderID{Host: host, Instance: id}]
		inst, exists := c.Instances[id]
		if !ordered && contents.Guest(id) == nil && !(exists && inst.Host == host) {
			c.add(Difference{Kind: StrayFiles, Host: host, Instance: id, Mendable: !exists,
				Cause: "a directory with disks that belong to no guest and no instance here"})
		}
	}
}

// oneMachine reports whether the agents of two hosts run on one machine.
func (c *comparison) oneMachine(a, b croft.HostID) bool {
	one, other := c.Hosts[a], c.Hosts[b]
	return one.Boot != "" && one.Boot == other.Boot && one.Place != other.Place
}

// name returns a host's name for people.
func (c *comparison) name(id croft.HostID) string {
	if h, known := c.Hosts[id]; known {
		return h.Name
	}
	return c.storage(id)
}

// home returns the host to which an instance belongs, for people. A lost instance has none.
func (c *comparison) home(inst croft.Instance) string {
	if inst.State != croft.StateLost {
		return "host " + c.name(inst.Host)
	}
	if inst.Lost == nil {
		return "no host, since it is lost"
	}
	return "no host, since it was lost with host " + cmp.Or(inst.Lost.HostName, string(inst.Lost.Host))
}

// checkMembers compares the directory of groups with the records and with the groups' rules.
func (c *comparison) checkMembers() {
	entered := map[croft.GroupMember]bool{}
	groups := map[string][]croft.GroupMember{} // by project and group
	for _, m := range c.Members {
		inst, exists := c.Instances[m.Instance]
		if !exists || inst.Project != m.Project || inst.Host != m.Host || !isIn(inst, m.Affinity) {
			c.add(Difference{Kind: LostMember, Host: m.Host, Instance: m.Instance, Project: m.Project, Name: m.Name,
				Affinity: &m.Affinity,
				Mendable: true, Revision: m.Revision,
				Cause: fmt.Sprintf(
					"group %s counts an instance that is not in it there, and its rule keeps others away, or in one place, for nothing", m.Group)})
			continue
		}
		entered[croft.GroupMember{Affinity: m.Affinity, Instance: m.Instance, Host: m.Host}] = true
		key := string(m.Project) + "/" + m.Group
		if err := m.Affinity.Admit(m.Host, groups[key]); err != nil {
			c.report(inst, Difference{Kind: BrokenRule, Affinity: &m.Affinity,
				Cause:  fmt.Sprintf("it is where the rule %s does not allow: its host %s", m.Affinity, err),
				Advice: "destroy it and request it again, or destroy the other: the groups were changed outside croft"})
		}
		groups[key] = append(groups[key], m.GroupMember)
	}
	for id, inst := range c.Instances {
		if inst.Host == "" {
			continue // it becomes a member with its order
		}
		for _, a := range inst.Spec.Affinities {
			if !entered[croft.GroupMember{Affinity: a, Instance: id, Host: inst.Host}] {
				c.report(inst, Difference{Kind: MissingMember, Affinity: &a, Mendable: true,
					Cause: fmt.Sprintf(
						"group %s does not count it, so that others may come where its rule forbids that", a.Group)})
			}
		}
	}
}

// isIn reports whether an instance was created as a member of a group.
func isIn(inst croft.Instance, affinity croft.Affinity) bool {
	for _, a := range inst.Spec.Affinities {
		if a == affinity {
			return true
		}
	}
	return false
}
