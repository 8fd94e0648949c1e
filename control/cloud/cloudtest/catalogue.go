package cloudtest

import (
	"slices"

	"croft"
	"croft/tenant"
	"croft/tenant/access"
)

func catalogueIsListed(s *suite) {
	s.running("web")
	classes, err := s.Cloud.Catalogue.Classes(s.ctx)
	if err != nil || !slices.Contains(classes, croft.VCPU) || !slices.IsSorted(classes) {
		s.Errorf("the classes are %v, %v", classes, err)
	}
	traits := func() []croft.Trait {
		all, err := s.Cloud.Catalogue.Traits(s.ctx)
		s.must(err)
		if !slices.IsSorted(all) || !slices.Contains(all, "HW_CPU_X86_AVX2") {
			s.Errorf("the traits are %v", all)
		}
		return all
	}
	const own croft.Trait = "CUSTOM_COLD"
	for range 2 { // adding it again is no error
		s.must(s.Cloud.Catalogue.AddTrait(s.ctx, own))
	}
	if !slices.Contains(traits(), own) {
		s.Errorf("%s is not there", own)
	}
	s.must(s.Cloud.Catalogue.RemoveTrait(s.ctx, own))
	if slices.Contains(traits(), own) {
		s.Errorf("%s is still there", own)
	}
	s.is(s.Cloud.Catalogue.RemoveTrait(s.ctx, own), croft.NotFound, "a trait that is gone")
	for _, bad := range []croft.Trait{"", "CUSTOM_", "CUSTOM_a", "HW_CPU_X86_AVX2", "CUSTOM_A/B", "COLD"} {
		s.is(s.Cloud.Catalogue.AddTrait(s.ctx, bad), croft.Invalid, "adding "+string(bad))
		s.is(s.Cloud.Catalogue.RemoveTrait(s.ctx, bad), croft.Invalid, "removing "+string(bad))
	}
	p, err := s.Cloud.Catalogue.Provider(s.ctx, s.Host)
	if err != nil || p.Used[croft.VCPU] != 1 || p.Inventories[croft.VCPU].Total != Room ||
		p.Inventories[croft.VCPU].StepSize != 1 || p.Name != s.Host {
		s.Errorf("the provider is %+v, %v", p, err)
	}
	_, err = s.Cloud.Catalogue.Provider(s.ctx, "nobody")
	s.is(err, croft.NotFound, "an unknown host")
}

func usersAreListed(s *suite) {
	_, err := s.Cloud.Projects.Create(s.ctx, tenant.Tenant{Name: "org",
		Members: map[string]access.Role{"ann": access.Member, "zoe": access.Reader}})
	s.must(err)
	all, err := s.Cloud.Users.List(s.ctx)
	s.must(err)
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
