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

// looks shares observations: all clusters of one site and credential are observed by one call.
type looks struct {
	sites   *sites
	metrics *metrics
	run     func() context.Context                                         // what looks end with
	soon    func(at place, but map[croft.ClusterID]waiter) []cluster.Build // who would look before long
	refresh func(ctx context.Context, id croft.ClusterID, s sight)         // hands to one of those what was seen

	work   sync.WaitGroup
	mu     sync.Mutex
	queues map[place]*queue
}

// queue is a place with those who wait for a look that has not begun.
type queue struct {
	waiting map[croft.ClusterID]waiter
	busy    bool      // a goroutine serves it
	begun   time.Time // of the last look
}

type waiter struct {
	looking
	answer chan sight
}

func (l *looks) wait() { l.work.Wait() }

// ask has a cluster looked at by the next look at its place.
func (l *looks) ask(ctx context.Context, at looking) chan sight {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.queues[at.place]
	if g == nil {
		g = &queue{waiting: map[croft.ClusterID]waiter{}}
		l.queues[at.place] = g
	}
	answer := make(chan sight, 1)
	g.waiting[at.build.Cluster] = waiter{at, answer}
	if !g.busy {
		g.busy = true
		l.work.Go(func() { l.serve(l.run(), at.place, g) })
	}
	return answer
}

// serve looks at a place until nobody waits.
func (l *looks) serve(ctx context.Context, at place, g *queue) {
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
	soon := l.soon(at, waiting)
	var builds []cluster.Build
	for _, w := range waiting {
		builds = append(builds, w.build)
	}
	builds = append(builds, soon...)
	begun := time.Now()
	all, err := l.observe(ctx, at, builds)
	l.metrics.called(cluster.ActLook, begun, err)
	for id, w := range waiting {
		w.answer <- sightOf(all, id, err, begun)
	}
	for _, b := range soon {
		if err == nil {
			l.refresh(ctx, b.Cluster, sightOf(all, b.Cluster, nil, begun))
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
	d, access, err := l.sites.access(ctx, at.site, at.credential)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, l.sites.c.CallTimeout)
	defer cancel()
	all, err := d.Observe(ctx, access, builds)
	l.sites.answered(ctx, access, err)
	return all, err
}
