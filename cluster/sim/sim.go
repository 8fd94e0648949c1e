// Package sim is the driver for sites of type sim: it simulates clusters in memory, for trials without a cloud and for
// tests. Members appear after a delay, as at a real site. Each site name has its own place, whose state is lost when
// the process ends. Its faults are the faults of real sites: no responses, lost responses, calls that take effect long
// after their callers gave up, builds and removals that fail or never end.
package sim

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"croft"
	"croft/cluster"
)

// Site implements cluster.Driver. It is safe for concurrent use.
type Site struct {
	// Delay is the delay of places whose Faults set none; 0: DefaultDelay. It may be set only before the first call.
	Delay time.Duration

	mu     sync.Mutex
	places map[string]*place
}

var _ cluster.Driver = (*Site)(nil)

// New returns a driver whose sites are empty.
func New() *Site { return &Site{places: map[string]*place{}} }

// Faults are the faults of a place. The zero value is a place that works.
type Faults struct {
	Delay  time.Duration // of each build, resize and removal; 0: Site.Delay
	Away   bool          // it does not answer
	Hangs  bool          // calls wait for the end of their contexts
	Denied bool          // it refuses credentials
	Hidden bool          // credentials belong to another project
	Errs   string        // calls fail with this fault, and have no effect
	Whose  croft.Project // project whose calls fail with Errs; empty: all
	Room   int           // number of members that fit; 0: unlimited

	Fails  string // reason with which builds and growth fail that start now
	Sticks string // reason with which removals fail that start now
	Frozen bool   // builds and resizes do not end

	Lost float64       // percentage of calls that take effect and whose answers are lost
	Late float64       // percentage of calls whose answers are lost and that take effect later
	Most time.Duration // the maximum delay of these effects
}

// DefaultDelay is the duration of a build.
const DefaultDelay = 3 * time.Second

// Change changes the faults of a place.
func (s *Site) Change(site string, change func(*Faults)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.place(site)
	p.settle(time.Now())
	change(&p.faults)
	for _, k := range p.stacks {
		k.frozen = p.faults.Frozen && k.then != "" && k.phase != cluster.Removing
	}
}

// place returns a place by name. Callers hold mu.
func (s *Site) place(name string) *place {
	p := s.places[name]
	if p == nil {
		p = &place{usual: cmp.Or(s.Delay, DefaultDelay), stacks: map[string]*stack{},
			strangers: map[string]bool{}, images: map[string]time.Time{}}
		s.places[name] = p
	}
	return p
}

// call performs do at a place, subject to its faults. do runs with mu held, possibly after call returned.
func (s *Site) call(ctx context.Context, at cluster.SiteAccess, what string, do func(p *place,
	now time.Time) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.place(at.Site.Name)
	for p.faults.Hangs {
		s.mu.Unlock()
		<-ctx.Done()
		s.mu.Lock()
		return silent(at, what, context.Cause(ctx))
	}
	if err := context.Cause(ctx); err != nil {
		return silent(at, what, err)
	}
	now := time.Now()
	p.settle(now)
	switch f := p.faults; {
	case f.Errs != "" && (f.Whose == "" || f.Whose == at.Credential.Project):
		return cluster.Faulty(croft.Errorf(croft.Unavailable, "%s: site %s: 500 %s", what, at.Site.Name, f.Errs))
	case f.Away:
		return silent(at, what, fmt.Errorf("no route to it"))
	case f.Denied:
		return croft.Errorf(croft.Denied, "%s: site %s refuses the credential", what, at.Site.Name)
	case rand.Float64()*100 < f.Late:
		later := now.Add(rand.N(max(f.Most, 1)))
		p.late = append(p.late, effect{at: later, do: func(now time.Time) { _ = do(p, now) }})
		return silent(at, what, fmt.Errorf("no answer"))
	case rand.Float64()*100 < f.Lost:
		_ = do(p, now)
		return silent(at, what, fmt.Errorf("the answer was lost"))
	}
	return do(p, now)
}

func silent(at cluster.SiteAccess, what string, err error) error {
	return cluster.Silent(croft.Errorf(croft.Unavailable, "%s: site %s does not answer: %w", what, at.Site.Name, err))
}

// Launch implements cluster.Driver.
func (s *Site) Launch(ctx context.Context, at cluster.SiteAccess, b cluster.Build) (cluster.Remote, error) {
	var remote cluster.Remote
	err := s.call(ctx, at, "launch", func(p *place, now time.Time) error {
		if p.strangers[b.Remote.Name] {
			return croft.Errorf(croft.Conflict, "site %s: %s exists and was not created by this "+
				"cloud", at.Site.Name, b.Remote.Name)
		}
		k := p.stacks[b.Remote.Name]
		if k == nil {
			if why := p.full(1 + len(b.Indexes)); why != "" {
				return croft.Errorf(croft.NoCapacity, "site %s: %s", at.Site.Name, why)
			}
			k = p.begin(b, now)
		}
		remote = k.remote()
		return nil
	})
	if err != nil {
		return cluster.Remote{}, err
	}
	return remote, nil
}

// Resize implements cluster.Driver.
func (s *Site) Resize(ctx context.Context, at cluster.SiteAccess, b cluster.Build) error {
	return s.call(ctx, at, "resize", func(p *place, now time.Time) error {
		k := p.find(b)
		switch {
		case k == nil:
			return croft.Errorf(croft.NotFound, "site %s has no %s", at.Site.Name, b.Remote.Name)
		case !k.over(now) || k.phase == cluster.Stuck || k.phase == cluster.Removing:
			return croft.Errorf(croft.Conflict, "%s is %s", b.Remote.Name, k.phase)
		}
		return k.resize(p, b, now)
	})
}

// Destroy implements cluster.Driver.
func (s *Site) Destroy(ctx context.Context, at cluster.SiteAccess, b cluster.Build) error {
	return s.call(ctx, at, "destroy", func(p *place, now time.Time) error {
		if k := p.find(b); k != nil && !p.faults.Hidden {
			k.remove(p, now)
		}
		return nil
	})
}

// Observe implements cluster.Driver.
func (s *Site) Observe(ctx context.Context, at cluster.SiteAccess,
	all []cluster.Build) (map[croft.ClusterID]cluster.Seen,
	error) {
	seen := map[croft.ClusterID]cluster.Seen{}
	err := s.call(ctx, at, "observe", func(p *place, _ time.Time) error {
		for _, b := range all {
			switch k := p.find(b); {
			case p.faults.Hidden:
				seen[b.Cluster] = cluster.Seen{Phase: cluster.Absent, Elsewhere: true}
			case k == nil:
				seen[b.Cluster] = cluster.Seen{Phase: cluster.Absent}
			default:
				seen[b.Cluster] = k.seen(b)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return seen, nil
}

// List implements cluster.Driver.
func (s *Site) List(ctx context.Context, at cluster.SiteAccess) ([]cluster.Found, error) {
	var found []cluster.Found
	err := s.call(ctx, at, "list", func(p *place, _ time.Time) error {
		for _, k := range p.stacks {
			if k.partition == at.Partition {
				found = append(found, cluster.Found{Cluster: k.cluster, Remote: k.remote()})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Lose removes a member of a cluster without the driver's knowledge.
func (s *Site) Lose(site string, b cluster.Build, m cluster.Member) {
	s.mu.Lock()
	defer s.mu.Unlock()
	index := m.Index
	if m.Role == cluster.Master {
		index = master
	}
	if k := s.place(site).find(b); k != nil && k.machines[index] != nil {
		k.machines[index].lost = true
	}
}

// Occupy assigns a name to an object that is not ours.
func (s *Site) Occupy(site, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.place(site).strangers[name] = true
}

// Occupied reports whether a name still belongs to an object that is not ours.
func (s *Site) Occupied(site, name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.place(site).strangers[name]
}
