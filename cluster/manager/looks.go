package manager

import (
	"context"
	"sync"
	"time"

	"croft"
	"croft/cluster"
)

// The times of observations.
const (
	lookPause = 2 * time.Second        // between the starts of two observations of one place
	gather    = 100 * time.Millisecond // how long an observation waits for other requests
	lookAhead = 8 * time.Second        // clusters that are due within this time are observed too
)

// looks combines observations: one call observes all clusters of one site and credential.
type looks struct {
	sites   *sites
	metrics *metrics
	run     func() context.Context                                         // context that ends the observations
	soon    func(at place, but map[croft.ClusterID]waiter) []cluster.Build // returns clusters that are due soon
	refresh func(ctx context.Context, id croft.ClusterID, s sight)         // gives a resting cluster its observation

	work   sync.WaitGroup
	mu     sync.Mutex
	queues map[place]*queue
}

// queue holds the waiters for the next observation of a place.
type queue struct {
	waiting map[croft.ClusterID]waiter
	busy    bool      // a goroutine serves the queue
	begun   time.Time // start of the last observation
}

type waiter struct {
	looking
	answer chan sight
}

func (l *looks) wait() { l.work.Wait() }

// ask requests that the next observation of a place includes a cluster.
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

// serve observes a place until its queue is empty.
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

// once observes a place for the waiting clusters and for clusters that are due soon.
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
