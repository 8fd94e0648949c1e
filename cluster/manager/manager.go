// Package manager brings clusters to the state in their records: it observes sites, lets cluster.Plan decide, and
// performs the decisions, one at a time per cluster and many clusters at once. Requests, timers and the start wake the
// same worker, which reads all its input again. Several managers may run: each acts only on clusters that it holds, and
// every write compares the hold. If a manager is killed, another one continues from the records. A sweep finds objects
// that an abandoned call left on a site.
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

// Manager is created by New; Run does its work.
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
	strays     map[stray]bool  // objects without a record that the last sweep found
	run        context.Context // context of Run, used by wakes of timers
}

// New returns a manager. It starts nothing. Invalid: a required field is missing.
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

// Run works until ctx ends, and returns when everything that it started has ended. It releases the clusters that it
// held.
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

// Health returns the last result of a site.
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

// forget drops the entry of a cluster.
func (m *Manager) forget(id croft.ClusterID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries[id]; e != nil && e.timer != nil {
		e.timer.Stop()
	}
	delete(m.entries, id)
	m.unremember(id)
}

// sleep wakes a cluster after some time, unless something else wakes it before.
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

// letGo releases all holds. It uses its own timeout, since Run's context has ended.
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

// lateRemovals counts clusters whose removal takes longer than alarmAfter.
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

// unrecorded counts the objects without a record that the last sweep found.
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
