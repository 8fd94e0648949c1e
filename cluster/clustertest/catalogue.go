package clustertest

import (
	"cmp"
	"context"
	"slices"

	"croft"
	"croft/cluster"
)

// sorted returns all values, decoded and sorted.
func sorted[K comparable, T any](all map[K]value, read func(value) T, order func(a, b T) int) []T {
	list := []T{}
	for _, v := range all {
		list = append(list, read(v))
	}
	slices.SortFunc(list, order)
	return list
}

// same compares the generation of the record that a write replaces.
func same[K comparable](all map[K]value, key K, generation int64, what, name string) error {
	if now := all[key].written; now != generation {
		if now == 0 {
			return croft.Errorf(croft.NotFound, "there is no %s %s", what, name)
		}
		if generation == 0 {
			return croft.Errorf(croft.Conflict, "there is a %s %s already", what, name)
		}
		return croft.Errorf(croft.Conflict, "%s %s has generation %d, not %d", what, name, now, generation)
	}
	return nil
}

func site(v value) cluster.Site {
	s := decode[cluster.Site](v.text)
	s.Generation, s.CreateRevision = v.written, v.made
	return s
}

// Sites implements cluster.ApplianceStore.
func (s *Store) Sites(ctx context.Context) (all []cluster.Site, err error) {
	err = s.do(ctx, "Sites", func() error {
		all = sorted(s.sites, site, func(a, b cluster.Site) int { return cmp.Compare(a.Name, b.Name) })
		return nil
	})
	return all, err
}

// PutSite implements cluster.ApplianceStore.
func (s *Store) PutSite(ctx context.Context, one cluster.Site) (cluster.Site, error) {
	err := s.do(ctx, "PutSite", func() error {
		if err := same(s.sites, one.Name, one.Generation, "site", one.Name); err != nil {
			return err
		}
		one.Health, one.Generation = cluster.Health{}, 0
		one.Generation = put(&s.memory, s.sites, one.Name, one)
		one.CreateRevision = s.sites[one.Name].made
		return nil
	})
	return one, err
}

// RemoveSite implements cluster.ApplianceStore.
func (s *Store) RemoveSite(ctx context.Context, name string) error {
	return s.do(ctx, "RemoveSite", func() error {
		if _, is := s.sites[name]; !is {
			return croft.Errorf(croft.NotFound, "there is no site %s", name)
		}
		var implementations, credentials, clusters int
		for _, v := range s.implementations {
			implementations += one(implementation(v).Site == name)
		}
		for _, v := range s.credentials {
			credentials += one(credential(v).Site == name)
		}
		for _, c := range s.living() {
			clusters += one(c.Site == name)
		}
		if implementations+credentials+clusters > 0 {
			return croft.Errorf(croft.Conflict, "site %s is used by %d implementations, %d credentials and %d clusters",
				name, implementations, credentials, clusters)
		}
		for _, v := range s.images {
			if i := image(v); i.LeaveSite(name) {
				i.Generation = 0
				put(&s.memory, s.images, i.Name, i)
			}
		}
		delete(s.sites, name)
		return nil
	})
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

func credential(v value) cluster.Credential {
	c := decode[cluster.Credential](v.text)
	c.Generation = v.written
	return c
}

// Credentials implements cluster.ApplianceStore.
func (s *Store) Credentials(ctx context.Context, project croft.Project, user string) (all []cluster.Credential,
	err error) {
	err = s.do(ctx, "Credentials", func() error {
		all = sorted(s.credentials, credential, func(a, b cluster.Credential) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Project, b.Project), cmp.Compare(a.User, b.User))
		})
		if project != "" || user != "" {
			all = slices.DeleteFunc(all, func(c cluster.Credential) bool {
				return c.Project != project || c.User != user && user != cluster.AnyUser
			})
		}
		return nil
	})
	return all, err
}

// Credential implements cluster.ApplianceStore.
func (s *Store) Credential(ctx context.Context, id cluster.CredentialID) (c cluster.Credential, err error) {
	err = s.do(ctx, "Credential", func() error {
		v, is := s.credentials[id]
		if !is {
			return croft.Errorf(croft.NotFound, "there is no credential %s", id)
		}
		c = credential(v)
		return nil
	})
	return c, err
}

// PutCredential implements cluster.ApplianceStore.
func (s *Store) PutCredential(ctx context.Context, c cluster.Credential) (cluster.Credential, error) {
	err := s.do(ctx, "PutCredential", func() error {
		if err := same(s.credentials, c.ID, c.Generation, "credential", string(c.ID)); err != nil {
			return err
		}
		at, is := s.sites[c.Site]
		if !is {
			return croft.Errorf(croft.NotFound, "there is no site %s", c.Site)
		}
		if c.SiteCreated != 0 && c.SiteCreated != at.made {
			return croft.Errorf(croft.Conflict, "another site has the name %s now", c.Site)
		}
		if v, is := s.credentials[c.ID]; is {
			if before := credential(v); before.Project != c.Project || before.User != c.User || before.Site != c.Site {
				return croft.Errorf(croft.Invalid, "project, user and site of a credential do not change")
			}
		}
		for _, v := range s.credentials {
			o := credential(v)
			if o.ID != c.ID && o.Name == c.Name && o.Project == c.Project && o.User == c.User {
				return croft.Errorf(croft.Conflict, "%s has a credential %s in project %s already", c.User, c.Name,
					c.Project)
			}
		}
		c.Generation = 0
		c.Generation = put(&s.memory, s.credentials, c.ID, c)
		return nil
	})
	return c, err
}

// RemoveCredential implements cluster.ApplianceStore.
func (s *Store) RemoveCredential(ctx context.Context, id cluster.CredentialID) error {
	return s.do(ctx, "RemoveCredential", func() error {
		if _, is := s.credentials[id]; !is {
			return croft.Errorf(croft.NotFound, "there is no credential %s", id)
		}
		clusters := 0
		for _, c := range s.living() {
			clusters += one(c.Credential == id)
		}
		if clusters > 0 {
			return croft.Errorf(croft.Conflict, "credential %s is needed by %d clusters", id, clusters)
		}
		delete(s.credentials, id)
		return nil
	})
}

func appliance(v value) cluster.Appliance {
	a := decode[cluster.Appliance](v.text)
	a.Generation = v.written
	return a
}

// Appliances implements cluster.ApplianceStore.
func (s *Store) Appliances(ctx context.Context, project croft.Project) (all []cluster.Appliance, err error) {
	err = s.do(ctx, "Appliances", func() error {
		all = sorted(s.appliances, appliance, func(a, b cluster.Appliance) int { return cmp.Compare(a.Name, b.Name) })
		all = slices.CompactFunc(all, func(a, b cluster.Appliance) bool { return a.Name == b.Name })
		all = slices.DeleteFunc(all, func(a cluster.Appliance) bool {
			of, name := cluster.SplitAppliance(a.Name)
			_, shared := s.appliances[name]
			return project != "" && of != "" && of != project && !(a.Public && shared)
		})
		return nil
	})
	return all, err
}

// Appliance implements cluster.ApplianceStore.
func (s *Store) Appliance(ctx context.Context, unique string) (a cluster.Appliance, err error) {
	err = s.do(ctx, "Appliance", func() error {
		project, name := cluster.SplitAppliance(unique)
		if v, is := s.appliances[unique]; is {
			a = appliance(v)
			return nil
		}
		if v, is := s.appliances[name]; is {
			if a = appliance(v); a.Public || a.Project == "" || a.Project == project {
				return nil
			}
		}
		a = cluster.Appliance{}
		return croft.Errorf(croft.NotFound, "there is no appliance %s", name)
	})
	return a, err
}

// PutAppliance implements cluster.ApplianceStore.
func (s *Store) PutAppliance(ctx context.Context, a cluster.Appliance) (cluster.Appliance, error) {
	err := s.do(ctx, "PutAppliance", func() error {
		if err := same(s.appliances, a.Name, a.Generation, "appliance", a.Name); err != nil {
			return err
		}
		if v, is := s.appliances[a.Name]; is && appliance(v).Project != a.Project {
			return croft.Errorf(croft.Invalid, "the project of an appliance does not change")
		}
		project, name := cluster.SplitAppliance(a.Name)
		if project != "" {
			if project != a.Project {
				return croft.Errorf(croft.Invalid, "appliance %s is not of project %s", a.Name, a.Project)
			}
			v, there := s.appliances[name]
			shared := cluster.Appliance{}
			if there {
				shared = appliance(v)
			}
			isNew, ours := a.Generation == 0, shared.Name == a.Name
			if there && !ours && (a.Public || isNew && (shared.Public || shared.Project == project)) {
				return croft.Errorf(croft.Conflict, "there is an appliance %s already", name)
			}
			if ours {
				delete(s.appliances, name)
			}
		}
		a.Generation = 0
		a.Generation = put(&s.memory, s.appliances, a.Name, a)
		if project != "" && a.Public {
			s.appliances[name] = s.appliances[a.Name]
		}
		return nil
	})
	return a, err
}

// RemoveAppliance implements cluster.ApplianceStore.
func (s *Store) RemoveAppliance(ctx context.Context, name string) error {
	return s.do(ctx, "RemoveAppliance", func() error {
		if _, is := s.appliances[name]; !is {
			return croft.Errorf(croft.NotFound, "there is no appliance %s", name)
		}
		implementations := 0
		for _, v := range s.implementations {
			implementations += one(implementation(v).Appliance == name)
		}
		if implementations > 0 {
			return croft.Errorf(croft.Conflict, "appliance %s has %d implementations", name, implementations)
		}
		if _, shared := cluster.SplitAppliance(name); s.appliances[shared] == s.appliances[name] {
			delete(s.appliances, shared)
		}
		delete(s.appliances, name)
		return nil
	})
}

func implementation(v value) cluster.Implementation {
	i := decode[cluster.Implementation](v.text)
	i.Generation = v.written
	return i
}

// Implementations implements cluster.ApplianceStore.
func (s *Store) Implementations(ctx context.Context, appliance string) (all []cluster.Implementation, err error) {
	err = s.do(ctx, "Implementations", func() error {
		all = sorted(s.implementations, implementation, func(a, b cluster.Implementation) int {
			return cmp.Or(cmp.Compare(a.Appliance, b.Appliance), cmp.Compare(a.Site, b.Site),
				cmp.Compare(a.Revision, b.Revision))
		})
		if appliance != "" {
			all = slices.DeleteFunc(all, func(i cluster.Implementation) bool { return i.Appliance != appliance })
		}
		return nil
	})
	return all, err
}

// Implementation implements cluster.ApplianceStore.
func (s *Store) Implementation(ctx context.Context, id cluster.ImplementationID) (i cluster.Implementation,
	err error) {
	err = s.do(ctx, "Implementation", func() (err error) {
		i, err = s.implementation(id)
		return err
	})
	return i, err
}

func (s *memory) implementation(id cluster.ImplementationID) (i cluster.Implementation, err error) {
	v, is := s.implementations[id]
	if !is {
		return i, croft.Errorf(croft.NotFound, "there is no implementation %s", id)
	}
	return implementation(v), nil
}

// AddImplementation implements cluster.ApplianceStore.
func (s *Store) AddImplementation(ctx context.Context, i cluster.Implementation) (cluster.Implementation, error) {
	err := s.do(ctx, "AddImplementation", func() error {
		if _, is := s.implementations[i.ID]; is {
			return croft.Errorf(croft.Conflict, "there is an implementation %s already", i.ID)
		}
		if _, is := s.appliances[i.Appliance]; !is {
			return croft.Errorf(croft.NotFound, "there is no appliance %s", i.Appliance)
		}
		if _, is := s.sites[i.Site]; !is {
			return croft.Errorf(croft.NotFound, "there is no site %s", i.Site)
		}
		s.revisions[i.Appliance+"/"+i.Site]++
		i.Revision, i.Generation = s.revisions[i.Appliance+"/"+i.Site], 0
		i.Generation = put(&s.memory, s.implementations, i.ID, i)
		return nil
	})
	return i, err
}

// EnableImplementation implements cluster.ApplianceStore.
func (s *Store) EnableImplementation(ctx context.Context, id cluster.ImplementationID, enabled bool) (
	i cluster.Implementation, err error) {
	err = s.do(ctx, "EnableImplementation", func() (err error) {
		if i, err = s.implementation(id); err != nil {
			return err
		}
		i.Enabled, i.Generation = enabled, 0
		i.Generation = put(&s.memory, s.implementations, id, i)
		return nil
	})
	return i, err
}

// RemoveImplementation implements cluster.ApplianceStore.
func (s *Store) RemoveImplementation(ctx context.Context, id cluster.ImplementationID) error {
	return s.do(ctx, "RemoveImplementation", func() error {
		if _, err := s.implementation(id); err != nil {
			return err
		}
		clusters := 0
		for _, c := range s.living() {
			clusters += one(c.Implementation == id)
		}
		if clusters > 0 {
			return croft.Errorf(croft.Conflict, "%d clusters were built by implementation %s", clusters, id)
		}
		delete(s.implementations, id)
		return nil
	})
}

func image(v value) cluster.SiteImage {
	i := decode[cluster.SiteImage](v.text)
	i.Generation = v.written
	return i
}

// Images implements cluster.ApplianceStore.
func (s *Store) Images(ctx context.Context) (all []cluster.SiteImage, err error) {
	err = s.do(ctx, "Images", func() error {
		all = sorted(s.images, image, func(a, b cluster.SiteImage) int { return cmp.Compare(a.Name, b.Name) })
		return nil
	})
	return all, err
}

// PutImage implements cluster.ApplianceStore.
func (s *Store) PutImage(ctx context.Context, i cluster.SiteImage) (cluster.SiteImage, error) {
	err := s.do(ctx, "PutImage", func() error {
		if err := same(s.images, i.Name, i.Generation, "image", i.Name); err != nil {
			return err
		}
		i.Generation = 0
		i.Generation = put(&s.memory, s.images, i.Name, i)
		return nil
	})
	return i, err
}

// RemoveImage implements cluster.ApplianceStore.
func (s *Store) RemoveImage(ctx context.Context, name string) error {
	return s.do(ctx, "RemoveImage", func() error {
		if _, is := s.images[name]; !is {
			return croft.Errorf(croft.NotFound, "there is no image %s", name)
		}
		implementations := 0
		for _, v := range s.implementations {
			implementations += one(implementation(v).Image == name)
		}
		if implementations > 0 {
			return croft.Errorf(croft.Conflict, "image %s is used by %d implementations", name, implementations)
		}
		delete(s.images, name)
		return nil
	})
}
