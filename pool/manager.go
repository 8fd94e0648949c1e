package pool

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"croft"
	"croft/internal/delay"
	"croft/internal/meter"
)

// Config configures a Manager.
type Config struct {
	Partition croft.PartitionID // required: derives the IDs of instances
	Store     Store             // required
	Hooks     Hooks             // required
	Instances Instances         // nil: pools of instances are refused
	Quotas    Quotas            // nil: projects have no quotas
	File      string            // required: path of pools.yaml
	Me        Server            // Name and Machine are required

	Log *slog.Logger // discards by default
	// History is how many ended tickets, and how many ended resources, are remembered; 10,000 by default. Older ones
	// are removed, 256 at a time.
	History int
	// Grace is how long commands may continue after the manager is stopped, before they are killed; 5 s by default.
	Grace time.Duration
	// Lenient: unknown settings in the file are ignored, with a warning.
	Lenient bool
	// Pace is the minimum time between two livechecks of a resource, whatever its pool's period. If set, the first
	// livechecks are made Pace, or the pool's period if longer, after Began. 0 by default.
	Pace  time.Duration
	Began time.Time // start of the process; by default the time of New
	// Still answers requests, but runs nothing and decides nothing, not even about unfinished work of another server.
	// It is for maintenance while the pools stand still.
	Still bool
}

// Manager is one server of pools and tickets. Of several servers on one store one leads; the methods of the others
// return a *StandbyError, which names the leader.
type Manager struct {
	Config
	file    File
	metrics *metrics

	mu     sync.Mutex
	acting *acting       // nil: this server does not lead
	leader *Server       // the leader, if known
	turned chan struct{} // closed when one of these changes
	fault  error         // the present error in pools.yaml
}

// StandbyError is the error of a server that does not lead. It is Unavailable.
type StandbyError struct{ Leader *Server } // nil: no server leads now

func (e *StandbyError) Error() string {
	if e.Leader == nil {
		return "no server of pools acts now: try again in some seconds"
	}
	return fmt.Sprintf("the server %s acts for the pools: ask it at %s", e.Leader.Name,
		cmp.Or(e.Leader.Address, "its address"))
}

// Is reports that the error is croft.Unavailable.
func (e *StandbyError) Is(target error) bool { return target == error(croft.Unavailable) }

// New checks the config, and starts nothing.
func New(c Config) (*Manager, error) {
	if c.Partition == "" || c.Store == nil || c.Hooks == nil || c.File == "" || c.Me.Name == "" || c.Me.Machine == "" {
		return nil,
			croft.Errorf(croft.Invalid, "pool: Partition, Store, Hooks, File and Me with Name and Machine are required")
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	c.History = cmp.Or(c.History, 10000)
	c.Grace = cmp.Or(c.Grace, 5*time.Second)
	c.Began = cmp.Or(c.Began, time.Now())
	m := &Manager{Config: c, metrics: newMetrics(), turned: make(chan struct{})}
	m.file = File{Path: c.File}
	m.file.Warn = func(err error) { c.Log.Warn("a setting of the pools cannot take effect", "err", err) }
	if c.Instances != nil {
		m.file.Check = c.Instances.Check
	}
	if c.Lenient {
		m.file.Unknown = func(err error) { c.Log.Warn("a setting of the pools is ignored", "err", err) }
	}
	return m, nil
}

// Run leads whenever no other server does, until ctx ends. Then it starts nothing more, lets commands end within the
// configured grace, and gives up the lead.
func (m *Manager) Run(ctx context.Context) error {
	var work sync.WaitGroup
	defer work.Wait()
	work.Go(func() { m.watchLeader(ctx) })
	for {
		err := m.Store.Lead(ctx, m.Me, func(leading context.Context, term Term) error {
			return m.act(leading, ctx.Done(), term)
		})
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			m.Log.Warn("the pools have lost their server here", "err", err)
		}
		_ = delay.For(ctx, leadRetry)
	}
}

// watchLeader records who leads.
func (m *Manager) watchLeader(ctx context.Context) {
	for ctx.Err() == nil {
		err := m.Store.WatchLeader(ctx, func(s *Server) {
			m.turn(func() { m.leader = s })
		})
		if err != nil && ctx.Err() == nil {
			m.turn(func() { m.leader = nil })
		}
		_ = delay.For(ctx, leadRetry)
	}
}

// turn applies a change of the leader, and signals it.
func (m *Manager) turn(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	close(m.turned)
	m.turned = make(chan struct{})
}

// Leader returns the leading server, or nil if none leads, and whether it is this one.
func (m *Manager) Leader() (leader *Server, here bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.acting != nil {
		return &m.Me, true
	}
	return m.leader, false
}

// WatchLeader calls changed with the results of Leader, now and after every change, until ctx ends.
func (m *Manager) WatchLeader(ctx context.Context, changed func(leader *Server, here bool)) {
	for ctx.Err() == nil {
		m.mu.Lock()
		turned := m.turned
		m.mu.Unlock()
		changed(m.Leader())
		select {
		case <-ctx.Done():
		case <-turned:
		}
	}
}

// Fault returns the present error in pools.yaml; nil: the file is in force.
func (m *Manager) Fault() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fault
}

// current returns the acting half, or the *StandbyError.
func (m *Manager) current() (*acting, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.acting == nil {
		return nil, &StandbyError{m.leader}
	}
	return m.acting, nil
}

// act runs one term: from gaining the lead to its loss, or the end of Run.
func (m *Manager) act(ctx context.Context, stop <-chan struct{}, term Term) error {
	a, err := m.takeOver(ctx, term)
	if err != nil {
		return err
	}
	m.Log.Info("acting for the pools", "server", m.Me.Name)
	m.turn(func() { m.acting = a })
	return a.run(ctx, stop)
}

// takeOver reads the stored state, and ends the unfinished work that another server left on this machine.
func (m *Manager) takeOver(ctx context.Context, term Term) (*acting, error) {
	from, err := term.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the pools: %w", err)
	}
	l := newLedger(m.Partition, from)
	l.pace, l.began = m.Pace, m.Began
	if err := m.learnProjects(ctx, l); err != nil {
		return nil, fmt.Errorf("read the quotas: %w", err)
	}
	if m.Still {
		return newActing(m, term, l, from), nil
	}
	printed, err := m.Hooks.Sweep(ctx, func(id ResourceID) bool {
		r := l.resources[id]
		return r != nil && r.State != Starting && !r.CameUp.IsZero()
	})
	if err != nil {
		return nil, fmt.Errorf("end what an earlier server left running: %w", err)
	}
	l.takeOver(printed, time.Now())
	return newActing(m, term, l, from), nil
}

// Collector returns the metrics.
func (m *Manager) Collector() prometheus.Collector { return m.metrics }

// metrics are the counters of a manager.
type metrics struct {
	meter.Set

	rounds prometheus.Observer
}

func newMetrics() *metrics {
	m := &metrics{}
	m.rounds = m.Seconds("croft_pool_round_seconds",
		"Time of rounds that changed something, from taking the requests to the write.",
		meter.Requests).WithLabelValues()
	return m
}
