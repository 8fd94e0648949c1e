package manager

import (
	"context"
	"sync"
	"time"

	"croft"
	"croft/cluster"
)

// The times of looks at a site.
const (
	lookPause = 2 * time.Second        // between the beginnings of two looks at one place
	gather    = 100 * time.Millisecond // how long a look waits for others that come at the same time
	lookAhead = 8 * time.Second        // those who would look within this time are served too
)

// place is where clusters are looked at together.
type place struct {
	site       string
	credential cluster.CredentialID
}

// looking is a cluster that a look is to be at.
type looking struct {
	place
	build cluster.Build
}

// sight is what a look saw.
type sight struct {
	seen  *cluster.Seen // nil: nothing was learned
	err   error
	begun time.Time
}

// looks shares observations: all clusters of one site and credential are observed by one call.
type looks struct {
	m      *Manager
	work   sync.WaitGroup
	mu     sync.Mutex
	groups map[place]*group
}

// group is a place with those who wait for a look that has not begun.
type group struct {
	waiting map[croft.ClusterID]waiter
	busy    bool      // a goroutine serves it
	begun   time.Time // of the last look
}

type waiter struct {
	looking
	answer chan sight
}

func newLooks(m *Manager) *looks { return &looks{m: m, groups: map[place]*group{}} }

func (l *looks) wait() { l.work.Wait() }

// look returns what the site has of a cluster, seen after the last act was over.
func (m *Manager) look(ctx context.Context, e *entry, c cluster.Cluster) (*cluster.Seen, error) {
	m.mu.Lock()
	fresh := e.fresh
	e.fresh = nil
	if fresh != nil && (!fresh.begun.After(e.acted) || time.Since(fresh.begun) > pause) {
		fresh = nil
	}
	m.mu.Unlock()
	if fresh != nil {
		return fresh.seen, fresh.err
	}
	b, err := m.build(ctx, c)
	if err != nil {
		return nil, err
	}
	answer := m.looks.ask(ctx, looking{place{c.Site, c.Credential}, b})
	select {
	case s := <-answer:
		return s.seen, s.err
	case <-ctx.Done():
		return nil, croft.Errorf(croft.Unavailable, "%w", context.Cause(ctx))
	}
}

// lookingAt is what a look at a cluster that rests would ask, if one is to come.
func (m *Manager) lookingAt(ctx context.Context, c cluster.Cluster, next cluster.Next) *looking {
	if next.Pace == 0 || c.Site == "" || !c.Remote.Asked {
		return nil
	}
	b, err := m.build(ctx, c)
	if err != nil {
		return nil
	}
	return &looking{place{c.Site, c.Credential}, b}
}

// ask has a cluster looked at by the next look at its place.
func (l *looks) ask(ctx context.Context, at looking) chan sight {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.groups[at.place]
	if g == nil {
		g = &group{waiting: map[croft.ClusterID]waiter{}}
		l.groups[at.place] = g
	}
	answer := make(chan sight, 1)
	g.waiting[at.build.Cluster] = waiter{at, answer}
	if !g.busy {
		g.busy = true
		l.work.Go(func() { l.serve(l.m.run, at.place, g) })
	}
	return answer
}

// serve looks at a place until nobody waits.
func (l *looks) serve(ctx context.Context, at place, g *group) {
	for {
		l.mu.Lock()
		if len(g.waiting) == 0 || ctx.Err() != nil {
			g.busy = false
			l.mu.Unlock()
			return
		}
		pause := max(time.Until(g.begun.Add(lookPause)), gather)
		l.mu.Unlock()
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			continue
		}
		l.mu.Lock()
		waiting := g.waiting
		g.waiting, g.begun = map[croft.ClusterID]waiter{}, time.Now()
		l.mu.Unlock()
		l.once(ctx, at, waiting)
	}
}

// once looks at a place, for those who wait and for those who would look soon.
func (l *looks) once(ctx context.Context, at place, waiting map[croft.ClusterID]waiter) {
	soon := l.m.soon(at, waiting)
	var builds []cluster.Build
	for _, w := range waiting {
		builds = append(builds, w.build)
	}
	builds = append(builds, soon...)
	begun := time.Now()
	all, err := l.observe(ctx, at, builds)
	l.m.metrics.called(cluster.ActLook, begun, err)
	for id, w := range waiting {
		w.answer <- sightOf(all, id, err, begun)
	}
	for _, b := range soon {
		if err == nil {
			l.m.refresh(ctx, b.Cluster, sightOf(all, b.Cluster, nil, begun))
		}
	}
}

func sightOf(all map[croft.ClusterID]cluster.Seen, id croft.ClusterID, err error, begun time.Time) sight {
	if seen, found := all[id]; found && err == nil {
		return sight{seen: &seen, begun: begun}
	}
	return sight{err: err, begun: begun}
}

func (l *looks) observe(ctx context.Context, at place, builds []cluster.Build) (map[croft.ClusterID]cluster.Seen,
	error) {
	d, access, err := l.m.access(ctx, at.site, at.credential)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, l.m.c.CallTimeout)
	defer cancel()
	all, err := d.Observe(ctx, access, builds)
	l.m.answered(ctx, access, err)
	return all, err
}

// soon lists those who rest and would look at a place before long.
func (m *Manager) soon(at place, but map[croft.ClusterID]waiter) (soon []cluster.Build) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, e := range m.entries {
		_, waits := but[id]
		if !waits && e.asleep != nil && e.asleep.place == at && time.Until(e.due) < lookAhead {
			soon = append(soon, e.asleep.build)
		}
	}
	return soon
}

// refresh hands to a cluster what was seen of it while it rested.
func (m *Manager) refresh(ctx context.Context, id croft.ClusterID, s sight) {
	m.mu.Lock()
	e := m.entries[id]
	if e != nil && s.seen != nil {
		e.fresh, e.due = &s, time.Time{}
	}
	m.mu.Unlock()
	if e != nil && s.seen != nil {
		m.workers.Wake(ctx, id)
	}
}
