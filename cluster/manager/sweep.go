package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"croft"
	"croft/cluster"
	"croft/internal/meter"
)

// sweep compares the objects on sites with the records, to find the effects of abandoned calls. It removes objects of a
// tombstone or a failed attempt; it reports objects without a record and leaves them alone.
func (m *Manager) sweep(ctx context.Context) {
	places, err := m.places(ctx)
	if err != nil {
		m.c.Log.Warn("sites are not swept", "err", err)
		m.metrics.sweeps.WithLabelValues(meter.Result(err)).Inc()
		return
	}
	var mu sync.Mutex
	found := map[stray]bool{}
	var work sync.WaitGroup
	for _, all := range places {
		work.Go(func() {
			for _, at := range all { // the places of one site one after another
				strays, err := m.sweepPlace(ctx, at)
				m.metrics.sweeps.WithLabelValues(meter.Result(err)).Inc()
				mu.Lock()
				for s := range strays {
					found[s] = true
				}
				mu.Unlock()
			}
		})
	}
	work.Wait()
	if ctx.Err() != nil {
		return
	}
	m.mu.Lock()
	before := m.strays
	m.strays = found
	m.mu.Unlock()
	for s := range found {
		if !before[s] {
			m.c.Log.Warn("a site has a cluster without a record: it is left alone", "site", s.site, "cluster",
				s.cluster,
				"remote", s.remote)
		}
	}
}

// places lists the places to sweep: each enabled site with each credential for it.
func (m *Manager) places(ctx context.Context) (map[string][]place, error) {
	sites, err := m.sites.all(ctx)
	if err != nil {
		return nil, err
	}
	credentials, err := m.c.Catalogue.Credentials(ctx, "", "")
	if err != nil {
		return nil, fmt.Errorf("read credentials: %w", err)
	}
	places := map[string][]place{}
	for _, s := range sites {
		if !s.Type.NeedsCredential() {
			places[s.Name] = []place{{site: s.Name}}
		}
	}
	for _, c := range credentials {
		if _, is := sites[c.Site]; is {
			places[c.Site] = append(places[c.Site], place{c.Site, c.ID})
		}
	}
	return places, nil
}

func (m *Manager) sweepPlace(ctx context.Context, at place) (map[stray]bool, error) {
	d, access, err := m.sites.access(ctx, at.site, at.credential)
	if err != nil {
		return nil, err
	}
	listing, cancel := context.WithTimeout(ctx, m.c.CallTimeout)
	defer cancel()
	all, err := d.List(listing, access)
	m.sites.answered(ctx, access, err)
	if err != nil {
		return nil, err
	}
	strays := map[stray]bool{}
	var errs error
	for _, f := range all {
		reported, err := m.judge(ctx, d, access, f)
		errs = cmp.Or(errs, err)
		if reported {
			strays[stray{at.site, f.Cluster, cmp.Or(f.Remote.Name, f.Remote.ID)}] = true
		}
	}
	return strays, errs
}

// judge removes an object that must not exist any more, or returns true if the object is to be reported.
func (m *Manager) judge(ctx context.Context, d cluster.Driver, at cluster.SiteAccess, f cluster.Found) (bool, error) {
	c, err := m.c.Records.Get(ctx, f.Cluster)
	if errors.Is(err, croft.NotFound) {
		return true, nil
	} else if err != nil {
		return false, err
	}
	tried := slices.ContainsFunc(c.Attempts, func(a cluster.Tried) bool { return a.Site == at.Site.Name })
	here := c.Site == at.Site.Name
	switch {
	case c.State == cluster.Deleted && !c.Abandoned && (here || tried):
	case c.State == cluster.Deleted:
		return true, nil
	case here && c.Remote.Asked:
		return false, nil // its worker removes it
	case tried:
	default:
		return true, nil
	}
	m.c.Log.Info("a late launch appeared at a site: removing it", "site", at.Site.Name, "cluster", c.ID,
		"remote", f.Remote.Name)
	b, err := m.sites.build(ctx, c)
	if err != nil {
		return false, err
	}
	b.Remote.ID, b.Remote.Name = f.Remote.ID, f.Remote.Name
	ctx, cancel := context.WithTimeout(ctx, m.c.CallTimeout)
	defer cancel()
	return false, d.Destroy(ctx, at, b)
}
