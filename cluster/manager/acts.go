package manager

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"croft"
	"croft/cluster"
)

// shelf keeps what never changes, or may be a little old.
type shelf struct {
	mu              sync.Mutex
	implementations map[cluster.ImplementationID]cluster.Implementation
	sites           map[string]cluster.Site
	read            time.Time // when the sites were
}

// sitesKept is how old the sites may be.
const sitesKept = 5 * time.Second

// maxShelf bounds how many implementations are kept.
const maxShelf = 1000

// implementation returns one that a cluster is built by; the zero one where none is chosen.
func (m *Manager) implementation(ctx context.Context, id cluster.ImplementationID) (cluster.Implementation, error) {
	if id == "" {
		return cluster.Implementation{}, nil
	}
	m.read.mu.Lock()
	i, found := m.read.implementations[id]
	m.read.mu.Unlock()
	if found {
		return i, nil
	}
	i, err := m.c.Catalogue.Implementation(ctx, id)
	if err != nil {
		return i, unlessKnown(fmt.Errorf("read implementation %s: %w", id, err))
	}
	m.read.mu.Lock()
	defer m.read.mu.Unlock()
	if m.read.implementations == nil || len(m.read.implementations) >= maxShelf {
		m.read.implementations = map[cluster.ImplementationID]cluster.Implementation{}
	}
	m.read.implementations[id] = i
	return i, nil
}

// unlessKnown makes an error of the store one that says nothing of the site.
func unlessKnown(err error) error { return croft.Errorf(croft.Unavailable, "%w", err) }

func (m *Manager) sites(ctx context.Context) (map[string]cluster.Site, error) {
	m.read.mu.Lock()
	defer m.read.mu.Unlock()
	if m.read.sites != nil && time.Since(m.read.read) < sitesKept {
		return m.read.sites, nil
	}
	all, err := m.c.Catalogue.Sites(ctx)
	if err != nil {
		return nil, unlessKnown(fmt.Errorf("read sites: %w", err))
	}
	m.read.sites, m.read.read = map[string]cluster.Site{}, time.Now()
	for _, s := range all {
		m.read.sites[s.Name] = s
	}
	return m.read.sites, nil
}

// access returns the driver of a cluster's site, and what it needs to reach it for the cluster's user. Denied: the
// credential is gone, or cannot be opened.
func (m *Manager) access(ctx context.Context, site string, id cluster.CredentialID) (cluster.Driver, cluster.Access,
	error) {
	none := cluster.Access{}
	sites, err := m.sites(ctx)
	if err != nil {
		return nil, none, err
	}
	s, found := sites[site]
	driver := m.c.Drivers[s.Type]
	if !found || driver == nil {
		return nil, none, croft.Errorf(croft.Unavailable, "this server does not reach site %s", site)
	}
	var credential cluster.Credential
	if id != "" {
		credential, err = m.c.Catalogue.Credential(ctx, id)
		if errors.Is(err, croft.NotFound) {
			return nil, none, croft.Errorf(croft.Denied, "credential %s for site %s is gone", id, site)
		} else if err != nil {
			return nil, none, unlessKnown(fmt.Errorf("read credential %s: %w", id, err))
		}
	}
	at, err := m.survey.Access(s, credential)
	if err != nil {
		return nil, none, croft.Errorf(croft.Denied, "%w", err)
	}
	at.Partition = m.c.Partition
	return driver, at, nil
}

// known adds what Plan is told whatever was done.
func (m *Manager) known(ctx context.Context, c cluster.Cluster, l *cluster.Learned) {
	if sites, err := m.sites(ctx); err == nil {
		l.Timeout = cmp.Or(sites[c.Site].BuildTimeout, cluster.BuildTimeout)
	}
	if i, err := m.implementation(ctx, c.Implementation); err == nil {
		l.Image = i.Image
	}
}

// build returns what a driver is told of a cluster, without what its template is told.
func (m *Manager) build(ctx context.Context, c cluster.Cluster) (cluster.Build, error) {
	i, err := m.implementation(ctx, c.Implementation)
	if err != nil {
		return cluster.Build{}, err
	}
	remote := c.Remote
	remote.Name = cmp.Or(remote.Name, cluster.RemoteName(c.ID))
	return cluster.Build{Partition: m.c.Partition, Cluster: c.ID, Name: c.Name, Project: c.Project, User: c.User,
		Implementation: i, Indexes: c.Indexes, Removed: c.Removed, Remote: remote, Timeout: cluster.BuildTimeout}, nil
}

// fill adds what its template is told. Invalid: that is not complete any more.
func (m *Manager) fill(ctx context.Context, c cluster.Cluster, d cluster.Driver, at cluster.Access, b *cluster.Build) error {
	b.Timeout = cmp.Or(at.Site.BuildTimeout, b.Timeout)
	given, err := cluster.GivenParameters(m.c.Vault, m.c.Partition, c)
	if err != nil {
		return err
	}
	if b.Implementation.Image != "" {
		placed, err := m.bring(ctx, d, at, b.Implementation.Image)
		if err != nil {
			return err
		}
		if placed.State != cluster.ImageReady {
			return croft.Errorf(croft.Unavailable, "image %s is not at site %s yet", b.Implementation.Image, at.Site.Name)
		}
		b.Image = placed.Ref
	}
	contract, err := m.survey.Contract(ctx, at.Site.Type, b.Implementation)
	if err != nil {
		return err
	}
	b.Parameters, _, err = cluster.Fill(contract, cluster.Filling{Cluster: c.ID, Slaves: len(c.Indexes),
		Removed: c.Removed, Image: b.Image, AllowedIP: m.c.AllowedIP, Given: given, Implementation: b.Implementation,
		Site: at.Site})
	return err
}

// bring has an image brought to a site, if it is not there already.
func (m *Manager) bring(ctx context.Context, d cluster.Driver, at cluster.Access, name string) (cluster.Placed, error) {
	all, err := m.c.Catalogue.Images(ctx)
	if err != nil {
		return cluster.Placed{}, unlessKnown(fmt.Errorf("read images: %w", err))
	}
	image := cluster.Image{}
	if i := slices.IndexFunc(all, func(i cluster.Image) bool { return i.Name == name }); i >= 0 {
		image = all[i]
	} else if m.c.Images != nil {
		if image, err = m.c.Images(name); err != nil {
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

// act does one act, and returns what was learned by it.
func (m *Manager) act(ctx context.Context, e *entry, c cluster.Cluster, do cluster.Act, l cluster.Learned) cluster.Learned {
	l = cluster.Learned{Did: do, Timeout: l.Timeout}
	switch do {
	case cluster.ActChoose:
		l.Candidates, l.Dropped, l.Err = m.choose(ctx, c)
		return l
	case cluster.ActLook:
		l.Seen, l.Err = m.look(ctx, e, c)
		return l
	}
	begun := time.Now()
	l.Err = m.call(ctx, c, func(ctx context.Context, d cluster.Driver, at cluster.Access, b cluster.Build) (err error) {
		if do == cluster.ActBring {
			l.Placed = cluster.Placed{State: cluster.ImageReady}
			if b.Implementation.Image != "" {
				l.Placed, err = m.bring(ctx, d, at, b.Implementation.Image)
			}
			return err
		}
		if do == cluster.ActDestroy {
			return d.Destroy(ctx, at, b)
		}
		if err := m.fill(ctx, c, d, at, &b); err != nil {
			return err
		}
		if do == cluster.ActResize {
			return d.Resize(ctx, at, b)
		}
		l.Remote, err = d.Launch(ctx, at, b)
		return err
	})
	m.metrics.called(do, begun, l.Err)
	m.mu.Lock()
	e.acted, e.fresh = time.Now(), nil
	m.mu.Unlock()
	return l
}

// call reaches the site of a cluster, for a bounded time, and with few others at once.
func (m *Manager) call(ctx context.Context, c cluster.Cluster, do func(ctx context.Context, d cluster.Driver,
	at cluster.Access, b cluster.Build) error) error {
	d, at, err := m.access(ctx, c.Site, c.Credential)
	if err != nil {
		return err
	}
	b, err := m.build(ctx, c)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, m.c.CallTimeout)
	defer cancel()
	turn := m.turn(c.Site)
	select {
	case turn <- struct{}{}:
		defer func() { <-turn }()
	case <-ctx.Done():
		return croft.Errorf(croft.Unavailable, "site %s is busy with other clusters", c.Site)
	}
	err = do(ctx, d, at, b)
	m.answered(ctx, at, err)
	return err
}

func (m *Manager) turn(site string) chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.calls[site] == nil {
		m.calls[site] = make(chan struct{}, m.c.PerSite)
	}
	return m.calls[site]
}

// choose asks where a cluster can be built.
func (m *Manager) choose(ctx context.Context, c cluster.Cluster) ([]cluster.Candidate, []cluster.Dropped, error) {
	given, err := cluster.GivenParameters(m.c.Vault, m.c.Partition, c)
	if err != nil {
		return nil, nil, err
	}
	found, err := m.survey.Look(ctx, cluster.Request{ID: c.ID, Name: c.Name, Project: c.Project, User: c.User,
		Appliance: c.Appliance, Slaves: len(c.Indexes), Hints: c.Hints, Parameters: given}, c.Attempts, "")
	return found.Candidates, found.Dropped, err
}

// seal keeps secret outputs sealed. It returns events for those that could not be kept.
func (m *Manager) seal(c *cluster.Cluster, secrets map[string]any) (lost []cluster.Event) {
	if len(secrets) == 0 {
		return nil
	}
	c.Sealed = maps.Clone(c.Sealed)
	if c.Sealed == nil {
		c.Sealed = map[string]cluster.Sealed{}
	}
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		sealed, err := m.sealed(c.ID, name, secrets[name])
		if err != nil {
			delete(c.Sealed, name)
			lost = append(lost, cluster.Event{At: time.Now().UTC(), State: c.State,
				Message: fmt.Sprintf("output %s is secret and is not kept: %v", name, err)})
			continue
		}
		c.Sealed[name] = sealed
	}
	return lost
}

func (m *Manager) sealed(id croft.ClusterID, name string, value any) (cluster.Sealed, error) {
	if m.c.Vault == nil {
		return nil, croft.Errorf(croft.Unavailable, "there is no key to seal it with")
	}
	text, isText := value.(string)
	if !isText {
		encoded, err := json.Marshal(value)
		if err != nil {
			return nil, err
		}
		text = string(encoded)
	}
	return m.c.Vault.Seal(cluster.NewSecret(text), cluster.AboutValue(m.c.Partition, id, name))
}
