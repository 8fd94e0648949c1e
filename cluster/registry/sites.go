package registry

import (
	"context"

	"croft"
	"croft/cluster"
)

// Sites manages the sites where clusters can be built. Conflict: the site has another generation, or is in use.
// NotFound. Invalid.
type Sites struct{ *Registry }

// Sites returns the manager of sites.
func (r *Registry) Sites() Sites { return Sites{r} }

// List lists the sites by name.
func (r Sites) List(ctx context.Context) ([]cluster.Site, error) {
	all, err := r.Catalogue.Sites(ctx)
	for i := range all {
		all[i].Health = r.healthOf(all[i].Name)
	}
	return all, err
}

// Find returns a site. NotFound.
func (r Sites) Find(ctx context.Context, name string) (cluster.Site, error) {
	s, err := r.site(ctx, name)
	s.Health = r.healthOf(name)
	return s, err
}

// Create creates a site. Conflict: the name is taken. Invalid.
func (r Sites) Create(ctx context.Context, s cluster.Site) (cluster.Site, error) {
	if s.Type == cluster.Local || s.Name == cluster.LocalSite {
		return s, croft.Errorf(croft.Invalid, "the site %s, of type %s, is made by croft itself: choose another name and type",
			cluster.LocalSite, cluster.Local)
	}
	if err := checkSite(s); err != nil {
		return s, err
	}
	if _, err := r.driver(s); err != nil {
		return s, croft.Errorf(croft.Invalid, "%w", err)
	}
	s.Created, s.Generation = now(), 0
	s.Updated = s.Created
	s, err := r.Catalogue.PutSite(ctx, s)
	s.Health = r.healthOf(s.Name)
	return s, err
}

// Change changes a site if it has the given generation; nil accepts any.
func (r Sites) Change(ctx context.Context, name string, c cluster.SiteChange, generation *int64) (cluster.Site, error) {
	return amend(ctx, generation, func(ctx context.Context) (cluster.Site, int64, error) {
		s, err := r.Find(ctx, name)
		return s, s.Generation, err
	}, func(s *cluster.Site) error {
		set(&s.AuthURL, c.AuthURL)
		set(&s.Region, c.Region)
		set(&s.Interface, c.Interface)
		set(&s.CACert, c.CACert)
		set(&s.Enabled, c.Enabled)
		set(&s.Priority, c.Priority)
		set(&s.MaxClusters, c.MaxClusters)
		set(&s.BuildTimeout, c.BuildTimeout)
		if c.Defaults != nil {
			s.Defaults = c.Defaults
		}
		s.Updated = now()
		return checkSite(*s)
	}, func(ctx context.Context, s cluster.Site) (cluster.Site, error) {
		s, err := r.Catalogue.PutSite(ctx, s)
		s.Health = r.healthOf(name)
		return s, err
	})
}

// Remove removes a site that nothing uses.
func (r Sites) Remove(ctx context.Context, name string) error {
	if name == cluster.LocalSite {
		return croft.Errorf(croft.Conflict, "the site %s cannot be removed: disable it, if no clusters are to be built there",
			name)
	}
	if _, err := r.site(ctx, name); err != nil {
		return err
	}
	err := r.Catalogue.RemoveSite(ctx, name)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.health, name)
	}
	return err
}

// Health contacts the site now, with the user's credential if there is one.
func (r Sites) Health(ctx context.Context, name string, project croft.Project, user string) (cluster.SiteHealth,
	error) {
	at, err := r.site(ctx, name)
	if err != nil {
		return cluster.SiteHealth{}, err
	}
	driver, err := r.driver(at)
	if err != nil {
		return cluster.SiteHealth{}, err
	}
	access, problem := r.accessOf(ctx, at, project, user)
	asking, end := context.WithTimeout(ctx, r.Timeout)
	defer end()
	probe, err := driver.Probe(asking, access)
	if err := ctx.Err(); err != nil {
		return cluster.SiteHealth{}, err
	}
	h := cluster.SiteHealth{Site: name, Reachable: err == nil || croft.KindOf(err) == croft.Denied, Probe: probe}
	switch {
	case err != nil:
		h.Error = clean(err, access.Secret)
	case problem != nil:
		h.Error = bounded(problem.Error())
	}
	if h.Reachable {
		r.NoteHealth(name, nil)
	} else {
		r.NoteHealth(name, croft.Errorf(croft.Unavailable, "%s", h.Error))
	}
	return h, nil
}

// accessOf returns a user's access to a site: with the credential that was accepted last, or without any.
func (r *Registry) accessOf(ctx context.Context, at cluster.Site, project croft.Project,
	user string) (cluster.SiteAccess,
	error) {
	if user == "" || project == "" {
		return cluster.SiteAccess{Site: at}, nil
	}
	all, err := r.Catalogue.Credentials(ctx, project, user)
	if err != nil {
		return cluster.SiteAccess{Site: at}, err
	}
	var best cluster.Credential
	for _, c := range all {
		if c.Site == at.Name && (best.ID == "" || c.VerifiedAt.After(best.VerifiedAt)) {
			best = c
		}
	}
	if best.ID == "" {
		return cluster.SiteAccess{Site: at}, nil
	}
	secret, err := r.open(best)
	if err != nil {
		return cluster.SiteAccess{Site: at}, err
	}
	best.Secret = nil
	return cluster.SiteAccess{Site: at, Credential: best, Secret: secret}, nil
}

// EnsureLocal creates the site of the cloud's own hosts, if it does not exist.
func (r *Registry) EnsureLocal(ctx context.Context) error {
	if _, err := r.site(ctx, cluster.LocalSite); croft.KindOf(err) != croft.NotFound {
		return err
	}
	at := now()
	_, err := r.Catalogue.PutSite(ctx, cluster.Site{Name: cluster.LocalSite, Type: cluster.Local, Enabled: true,
		Created: at, Updated: at})
	if croft.KindOf(err) == croft.Conflict { // another server created it
		return nil
	}
	return err
}
