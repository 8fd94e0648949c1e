// Package manager makes clusters what their records say: it looks at sites, has cluster.Plan decide, and does what that
// says, one cluster at a time and many at once. Requests, timers and the start wake the same worker, which reads all
// that it needs. Several managers may run: each acts only on clusters that it holds, and every write compares the hold.
// Whatever it was doing when it was killed, another one goes on from the records. What a call left at a site after its
// caller gave up is found by a sweep.
package manager

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"croft"
	"croft/cluster"
	"croft/cluster/survey"
	"croft/internal/delay"
	"croft/internal/keyed"
)

// Config is what a manager needs.
type Config struct {
	Partition croft.PartitionID
	Records   cluster.Records
	Catalogue cluster.Catalogue
	Drivers   map[cluster.SiteType]cluster.Driver
	Vault     cluster.Vault                            // nil: no secret can be opened or kept
	Images    func(name string) (cluster.Image, error) // of the cloud's own catalogue, NotFound; may be nil
	AllowedIP string                                   // CIDR of this server, for templates; may be empty
	Survey    *survey.Survey                           // shared with requests, so that both know silent sites; nil: its own
	Log       *slog.Logger

	CallTimeout time.Duration // of each call to a site; 1 min
	PerSite     int           // calls that change something at a site, at once; 8
	Sweep       time.Duration // between two sweeps; 10 min
	Standby     time.Duration // between two looks whether another manager has let go of a cluster; 15 s
}

// Manager is created by New, and works in Run.
type Manager struct {
	c       Config
	survey  *survey.Survey
	metrics *metrics
	workers keyed.Workers[croft.ClusterID]
	looks   *looks
	answers answers
	read    shelf

	mu      sync.Mutex
	entries map[croft.ClusterID]*entry
	calls   map[string]chan struct{} // by site: calls that change something
	strays  map[stray]bool           // what the last sweep found without a record
	run     context.Context          // of Run: wakes by timers use it
}

// New returns a manager. It starts nothing. Invalid: something is missing.
func New(c Config) (*Manager, error) {
	if c.Partition == "" || c.Records == nil || c.Catalogue == nil || c.Log == nil {
		return nil, croft.Errorf(croft.Invalid, "manager: Partition, Records, Catalogue and Log are required")
	}
	for value, otherwise := range map[*time.Duration]time.Duration{
		&c.CallTimeout: time.Minute, &c.Sweep: 10 * time.Minute, &c.Standby: 15 * time.Second,
	} {
		if *value == 0 {
			*value = otherwise
		}
	}
	if c.PerSite == 0 {
		c.PerSite = 8
	}
	if c.Survey == nil {
		var err error
		c.Survey, err = survey.New(survey.Config{Partition: c.Partition, Records: c.Records, Catalogue: c.Catalogue,
			Drivers: c.Drivers, Vault: c.Vault, Images: c.Images, AllowedIP: c.AllowedIP, Log: c.Log})
		if err != nil {
			return nil, err
		}
	}
	m := &Manager{c: c, survey: c.Survey, entries: map[croft.ClusterID]*entry{}, calls: map[string]chan struct{}{}}
	m.workers.Do = m.pass
	m.looks = newLooks(m)
	m.metrics = newMetrics(m)
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
func (m *Manager) Health(site string) cluster.Health { return m.answers.health(site) }

// entry is what a manager remembers of a cluster between two passes. Its worker alone uses it, but for what sleeps.
type entry struct {
	holder   *cluster.Holder
	revised  int64     // of the record when the last pass ended
	due      time.Time // when to look again although the record is as it was; zero: no need
	standing bool      // another manager holds it
	acted    time.Time // when an act at the site was last over: what was seen before does not count
	timer    *time.Timer
	asleep   *looking      // what a look would ask; nil: it does not wait for one
	fresh    *sight        // what was seen meanwhile
	state    cluster.State // for metrics
	removal  time.Time     // since when it is to be removed; zero: it is not
}

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
	}
	m.mu.Unlock()
	for _, h := range held {
		if err := m.c.Records.Release(ctx, h); err != nil {
			m.c.Log.Debug("a hold was not released: its lease ends", "cluster", h.Cluster, "err", err)
		}
	}
}
