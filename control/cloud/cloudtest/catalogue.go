package cloudtest

import (
	"cmp"
	"slices"

	"croft"
	"croft/control/api"
	"croft/tenant"
	"croft/tenant/access"
)

func catalogueIsListed(s *suite) {
	s.running("web")
	c := s.Client
	classes, err := c.ListResourceTypes(s.ctx)
	less := func(a, b api.ResourceType) int { return cmp.Compare(a.Name, b.Name) }
	if err != nil || !slices.Contains(classes.ResourceTypes, api.ResourceType{Name: croft.VCPU}) ||
		!slices.IsSortedFunc(classes.ResourceTypes, less) {
		s.Errorf("the classes are %v, %v", classes, err)
	}
	own := api.CapabilityNamed{Name: "CUSTOM_COLD"}
	listed := func() bool {
		list, err := c.ListCapabilities(s.ctx)
		s.must(err)
		less := func(a, b api.Capability) int { return cmp.Compare(a.Name, b.Name) }
		if !slices.IsSortedFunc(list.Capabilities, less) ||
			!slices.Contains(list.Capabilities, api.Capability{Name: "HW_CPU_X86_AVX2"}) {
			s.Errorf("the traits are %v", list)
		}
		return slices.Contains(list.Capabilities, api.Capability{Name: own.Name, Custom: true})
	}
	for range 2 { // adding it again is no error
		_, err := c.AddCapability(s.ctx, own)
		s.must(err)
	}
	if !listed() {
		s.Errorf("%s is not there", own.Name)
	}
	_, err = c.RemoveCapability(s.ctx, own)
	if s.must(err); listed() {
		s.Errorf("%s is still there", own.Name)
	}
	_, err = c.RemoveCapability(s.ctx, own)
	s.is(err, croft.NotFound, "a trait that is gone")
	for _, bad := range []croft.Trait{"CUSTOM_", "CUSTOM_a", "HW_CPU_X86_AVX2", "CUSTOM_A/B", "COLD"} {
		_, err := c.AddCapability(s.ctx, api.CapabilityNamed{Name: bad})
		s.is(err, croft.Invalid, "adding "+string(bad))
		_, err = c.RemoveCapability(s.ctx, api.CapabilityNamed{Name: bad})
		s.is(err, croft.Invalid, "removing "+string(bad))
	}
	list, err := c.GetInventory(s.ctx, api.HostNamed{ID: s.Host})
	i := slices.IndexFunc(list.Inventories, func(i api.Inventory) bool { return i.ResourceType == croft.VCPU })
	if err != nil || list.Name != s.Host || i < 0 || list.Inventories[i].Used != 1 ||
		list.Inventories[i].Total != Room || list.Inventories[i].StepSize != 1 {
		s.Errorf("the inventory is %+v, %v", list, err)
	}
	_, err = c.GetHostCapabilities(s.ctx, api.HostNamed{ID: s.Host})
	s.must(err)
	_, err = c.GetInventory(s.ctx, api.HostNamed{ID: "nobody"})
	s.is(err, croft.NotFound, "an unknown host")
}

func usersAreListed(s *suite) {
	org := s.project("org", "")
	_, err := s.Client.SetMembers(s.ctx, api.Members{ProjectBase: api.ProjectBase{
		ProjectNamed: api.ProjectNamed{Project: "org"}, Base: api.MatchOf(org.Generation)},
		Members: map[string]access.Role{"ann": access.Member, "zoe": access.Reader}})
	s.must(err)
	list, err := s.Client.ListUsers(s.ctx)
	s.must(err)
	all := list.Users
	found := map[string][]tenant.UserRole{}
	self := 0
	for _, u := range all {
		if u.Self {
			self++
			u.Name = "self"
		}
		found[u.Name] = u.Roles
	}
	for name, want := range map[string]tenant.UserRole{"ann": {Project: "org", Role: access.Member},
		"zoe": {Project: "org", Role: access.Reader}, "self": {Role: access.PartitionAdmin}} {
		if !slices.Equal(found[name], []tenant.UserRole{want}) {
			s.Errorf("%s has %v, want %v", name, found[name], want)
		}
	}
	if len(all) != 3 || self != 1 {
		s.Errorf("there are %+v", all)
	}
}
