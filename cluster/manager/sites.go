package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"croft"
	"croft/cluster"
)

// sites calls the sites of clusters. It caches data that never changes or that may be a little old.
type sites struct {
	c       Config
	answers answers
	stopped func() bool // the manager ends: failed calls were cancelled by it

	mu              sync.Mutex
	implementations map[cluster.ImplementationID]cluster.Implementation
	known           map[string]cluster.Site
	read            time.Time                // when known was read
	credential      int64                    // the newest generation of a credential for which known was read again
	calls           map[string]chan struct{} // by site: semaphore of changing calls
}

// sitesKept is how long the sites are cached.
const sitesKept = 5 * time.Second

// maxKept bounds the number of cached implementations.
const maxKept = 1000

// implementation returns the implementation of a cluster; the zero value if none is chosen.
func (s *sites) implementation(ctx context.Context, id cluster.ImplementationID) (cluster.Implementation, error) {
	if id == "" {
		return cluster.Implementation{}, nil
	}
	s.mu.Lock()
	i, found := s.implementations[id]
	s.mu.Unlock()
	if found {
		return i, nil
	}
	i, err := s.c.Catalogue.Implementation(ctx, id)
	if err != nil {
		return i, unlessKnown(fmt.Errorf("read implementation %s: %w", id, err))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.implementations == nil || len(s.implementations) >= maxKept {
		s.implementations = map[cluster.ImplementationID]cluster.Implementation{}
	}
	s.implementations[id] = i
	return i, nil
}

func (s *sites) all(ctx context.Context) (map[string]cluster.Site, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known != nil && time.Since(s.read) < sitesKept {
		return s.known, nil
	}
	all, err := s.c.Catalogue.Sites(ctx)
	if err != nil {
		return nil, unlessKnown(fmt.Errorf("read sites: %w", err))
	}
	s.known, s.read = map[string]cluster.Site{}, time.Now()
	for _, one := range all {
		s.known[one.Name] = one
	}
	return s.known, nil
}

// readAfter drops the cached sites, unless they were read after a credential was written. The credential may be for a
// new site that replaced one of the same name, whose server must not get it.
func (s *sites) readAfter(credential int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if credential > s.credential {
		s.credential, s.known = credential, nil
	}
}

// forget drops the cached sites.
func (s *sites) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known = nil
}

// access returns the driver of a cluster's site, and the data to call it for the cluster's user. Denied: the credential
// is gone, or cannot be opened.
func (s *sites) access(ctx context.Context, site string, id cluster.CredentialID) (cluster.Driver, cluster.SiteAccess,
	error) {
	none := cluster.SiteAccess{}
	var credential cluster.Credential
	var missing error
	if id != "" {
		credential, missing = s.c.Catalogue.Credential(ctx, id)
		s.readAfter(credential.Generation)
	}
	sites, err := s.all(ctx)
	if err != nil {
		return nil, none, err
	}
	one, found := sites[site]
	if !found { // it may have been created since the last read
		s.forget()
		if sites, err = s.all(ctx); err != nil {
			return nil, none, err
		}
		one, found = sites[site]
	}
	driver := s.c.Drivers[one.Type]
	if !found || driver == nil {
		return nil, none, croft.Errorf(croft.Unavailable, "this server does not reach site %s", site)
	}
	switch {
	case errors.Is(missing, croft.NotFound):
		return nil, none, croft.Errorf(croft.Denied, "credential %s for site %s no longer exists", id, site)
	case missing != nil:
		return nil, none, unlessKnown(fmt.Errorf("read credential %s: %w", id, missing))
	}
	at, err := s.c.Survey.Access(one, credential)
	if err != nil {
		return nil, none, croft.Errorf(croft.Denied, "%w", err)
	}
	at.Partition = s.c.Partition
	return driver, at, nil
}

// build returns the driver's input for a cluster, without the values of its template.
func (s *sites) build(ctx context.Context, c cluster.Cluster) (cluster.Build, error) {
	i, err := s.implementation(ctx, c.Implementation)
	if err != nil {
		return cluster.Build{}, err
	}
	remote := c.Remote
	remote.Name = cmp.Or(remote.Name, cluster.RemoteName(c.ID))
	return cluster.Build{Partition: s.c.Partition, Cluster: c.ID, Name: c.Name, Project: c.Project, User: c.User,
		Implementation: i, Indexes: c.Indexes, Removed: c.Removed, Remote: remote, Timeout: cluster.BuildTimeout}, nil
}

// fill adds the values of the template. Invalid: a value is missing.
func (s *sites) fill(ctx context.Context, c cluster.Cluster, d cluster.Driver, at cluster.SiteAccess,
	b *cluster.Build) error {
	b.Timeout = cmp.Or(time.Duration(at.Site.BuildTimeout), b.Timeout)
	given, err := cluster.GivenParameters(s.c.Vault, s.c.Partition, c)
	if err != nil {
		return err
	}
	if b.Implementation.Image != "" {
		placed, err := s.bring(ctx, d, at, b.Implementation.Image)
		if err != nil {
			return err
		}
		if placed.State != cluster.ImageReady {
			return croft.Errorf(croft.Unavailable, "image %s is not at site %s yet", b.Implementation.Image,
				at.Site.Name)
		}
		b.Image = placed.Ref
	}
	contract, err := s.c.Survey.Contract(ctx, at.Site.Type, b.Implementation)
	if err != nil {
		return err
	}
	b.Parameters, _, err = cluster.Fill(contract, cluster.Filling{Cluster: c.ID, Name: c.Name, Slaves: len(c.Indexes),
		Removed: c.Removed, Image: b.Image, AllowedIP: s.c.AllowedIP, Keys: c.Keys, Given: given,
		Implementation: b.Implementation, Site: at.Site})
	return err
}

// bring copies an image to a site, unless the site has it.
func (s *sites) bring(ctx context.Context, d cluster.Driver, at cluster.SiteAccess, name string) (cluster.Placed,
	error) {
	all, err := s.c.Catalogue.Images(ctx)
	if err != nil {
		return cluster.Placed{}, unlessKnown(fmt.Errorf("read images: %w", err))
	}
	image := cluster.SiteImage{}
	if i := slices.IndexFunc(all, func(i cluster.SiteImage) bool { return i.Name == name }); i >= 0 {
		image = all[i]
	} else if s.c.Images != nil {
		if image, err = s.c.Images(name); err != nil {
			return cluster.Placed{}, err
		}
	}
	if image.Name == "" {
		return cluster.Placed{}, croft.Errorf(croft.Invalid, "there is no image %s", name)
	}
	for _, place := range []string{at.Site.Name + "/" + string(at.Credential.ID), at.Site.Name} {
		if placed := image.On[place]; placed.Ref != "" && placed.State == cluster.ImageReady {
			return placed, nil
		}
	}
	return d.Bring(ctx, at, image)
}

// call calls the site of a cluster, for a bounded time, with a bounded number of concurrent calls.
func (s *sites) call(ctx context.Context, c cluster.Cluster, do func(ctx context.Context, d cluster.Driver,
	at cluster.SiteAccess, b cluster.Build) error) error {
	d, at, err := s.access(ctx, c.Site, c.Credential)
	if err != nil {
		return err
	}
	b, err := s.build(ctx, c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.c.CallTimeout)
	defer cancel()
	turn := s.turn(c.Site)
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return croft.Errorf(croft.Unavailable, "site %s is busy with other clusters", c.Site)
	}
	err = do(ctx, d, at, b)
	s.answered(ctx, at, err)
	return err
}

func (s *sites) turn(site string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[site] == nil {
		s.calls[site] = make(chan struct{}, s.c.PerSite)
	}
	return s.calls[site]
}

// unlessKnown makes an error of the store Unavailable, so that Plan learns nothing about the site from it.
func unlessKnown(err error) error { return croft.Errorf(croft.Unavailable, "%w", err) }

// answered records the result of a call: silence keeps new clusters away from the site for a while, and a refused
// credential is marked.
func (s *sites) answered(ctx context.Context, at cluster.SiteAccess, err error) {
	if s.stopped() {
		return // this process cancelled the call
	}
	silent := s.c.Survey.Note(at, err)
	unknown := err != nil && (errors.Is(err, croft.Unavailable) || croft.KindOf(err) == "")
	switch {
	case silent && unknown && s.answers.put(at.Site.Name, err.Error()):
		s.c.Log.Warn("site does not answer", "site", at.Site.Name, "err", err)
	case !unknown:
		s.answers.put(at.Site.Name, "")
	}
	if !unknown && at.Credential.ID != "" {
		s.blame(ctx, at.Credential, err)
	}
}

// blame records in a credential that its site refuses it, or that the site accepts it again.
func (s *sites) blame(ctx context.Context, c cluster.Credential, err error) {
	fault := ""
	if errors.Is(err, croft.Denied) {
		fault = err.Error()
	}
	if c.LastError == fault {
		return
	}
	c.LastError = fault
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pause)
	defer cancel()
	if _, err := s.c.Catalogue.PutCredential(ctx, c); err != nil && !errors.Is(err, croft.Conflict) {
		s.c.Log.Warn("cannot record the fault of a credential", "credential", c.ID, "err", err)
	}
}
