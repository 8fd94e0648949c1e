// Package manager makes clusters what their records say: it looks at sites, has cluster.Plan decide, and does what that
// says, one cluster at a time and many at once. Requests, timers and the start wake the same worker, which reads all
// that it needs. Several managers may run: each acts only on clusters that it holds, and every write compares the hold.
// Whatever it was doing when it was killed, another one goes on from the records. What a call left at a site after its
// caller gave up is found by a sweep.
package manager

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"croft"
	"croft/cluster"
	"croft/cluster/survey"
	"croft/internal/delay"
	"croft/internal/keyed"
)

// Manager is created by New, and works in Run.
type Manager struct {
	c       Config
	survey  *survey.Survey
	metrics *metrics
	workers keyed.Workers[croft.ClusterID]
	looks   *looks
	sites   *sites
	clocks  clocks

	mu         sync.Mutex
	entries    map[croft.ClusterID]*entry
	tombstones map[croft.Project][]tombstone
	strays     map[stray]bool  // what the last sweep found without a record
	run        context.Context // of Run: wakes by timers use it
}

// New returns a manager. It starts nothing. Invalid: something is missing.
func New(c Config) (*Manager, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	m := &Manager{c: c, survey: c.Survey, entries: map[croft.ClusterID]*entry{},
		tombstones: map[croft.Project][]tombstone{},
		clocks:     clocks{check: c.Clocks, log: c.Log}}
	m.sites = &sites{c: c, calls: map[string]chan struct{}{}, stopped: func() bool { return m.run.Err() != nil }}
	m.metrics = newMetrics(m.states, m.lateRemovals, m.unrecorded, m.sites.answers.silent)
	m.looks = &looks{sites: m.sites, metrics: m.metrics, run: func() context.Context { return m.run }, soon: m.soon,
		refresh: m.refresh, queues: map[place]*queue{}}
	m.workers.Do = m.pass
	return m, nil
}

// Run works until ctx ends, and returns when all that it started has ended. It lets go of the clusters that it held.
func (m *Manager) Run(ctx context.Context) error {
	m.mu.Lock()
	m.run = ctx
	m.mu.Unlock()
	var work sync.WaitGroup
	work.Go(func() {
		for ctx.Err() == nil {
			err := m.c.Records.Follow(ctx, func(id croft.ClusterID) { m.workers.Wake(ctx, id) })
			if ctx.Err() == nil {
				m.c.Log.Warn("changes of clusters are not heard", "err", err)
			}
			_ = delay.For(ctx, time.Second)
		}
	})
	work.Go(func() {
		m.sweep(ctx)
		delay.Every(ctx, m.c.Sweep, m.sweep)
	})
	<-ctx.Done()
	work.Wait()
	m.workers.Wait()
	m.looks.wait()
	m.letGo()
	return nil
}

// Collector returns the manager's metrics.
func (m *Manager) Collector() prometheus.Collector { return m.metrics }

// Health says how a site answered when it was last asked.
func (m *Manager) Health(site string) cluster.Health { return m.sites.answers.health(site) }

func (m *Manager) entry(id croft.ClusterID) *entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries[id]
	if e == nil {
		e = &entry{}
		m.entries[id] = e
	}
	return e
}

// forget drops what is remembered of a cluster.
func (m *Manager) forget(id croft.ClusterID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[id]; e != nil && e.timer != nil {
		e.timer.Stop()
	}
	delete(m.entries, id)
	m.unremember(id)
}

// sleep wakes a cluster after some time, if nothing else does. The record was as revised says.
func (m *Manager) sleep(id croft.ClusterID, after time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e, ctx := m.entries[id], m.run
	if e == nil || ctx.Err() != nil {
		return
	}
	e.due = time.Now().Add(after)
	if e.timer != nil {
		e.timer.Stop()
	}
	e.timer = time.AfterFunc(after, func() { m.workers.Wake(ctx, id) })
}

// letGo releases all that is held. It has a time of its own, since Run's has ended.
func (m *Manager) letGo() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.run), 5*time.Second)
	defer cancel()
	m.mu.Lock()
	var held []*cluster.Holder
	for id, e := range m.entries {
		if e.timer != nil {
			e.timer.Stop()
		}
		if e.holder != nil {
			held = append(held, e.holder)
		}
		delete(m.entries, id)
		m.unremember(id)
	}
	m.mu.Unlock()
	for _, h := range held {
		if err := m.c.Records.Release(ctx, h); err != nil {
			m.c.Log.Debug("a hold was not released: its lease ends", "cluster", h.Cluster, "err", err)
		}
	}
}

// lateRemovals counts clusters that their sites do not remove.
func (m *Manager) lateRemovals() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, e := range m.entries {
		if !e.removal.IsZero() && time.Since(e.removal) > alarmAfter {
			n++
		}
	}
	return float64(n)
}

// unrecorded counts what the last sweep found without a record.
func (m *Manager) unrecorded() float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return float64(len(m.strays))
}

// states counts clusters by state.
func (m *Manager) states() map[cluster.State]int {
	count := map[cluster.State]int{}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.entries {
		count[e.state]++
	}
	return count
}
