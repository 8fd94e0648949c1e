// Package backups makes, verifies and removes backups. A request writes what is wanted into a record; then a manager
// takes a temporary snapshot, orders the host of the instance to copy it, and records the result. Each step compares
// the record that it is based on, so any number of managers may run, and one that dies is replaced by the next look of
// another. Only a process with the key that seals credentials can be one: it opens the access to a store, and seals it
// for the host of a job alone.
package backups

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	"croft"
	"croft/cluster"
	"croft/compute/backup"
	"croft/internal/delay"
	"croft/internal/meter"
	"croft/schedule"
)

// Store stores the records. Each write compares the revision of the record; 0: there is none. Conflict: it differs.
type Store interface {
	Stores(ctx context.Context) ([]backup.Store, error)
	// Store returns a store. NotFound.
	Store(ctx context.Context, name string) (backup.Store, error)
	PutStore(ctx context.Context, s backup.Store) (backup.Store, error)
	// RemoveStore removes a store. Conflict: backups or schedules use it.
	RemoveStore(ctx context.Context, name string) error
	// Backups returns the backups of a project, the oldest first; with an empty project, all.
	Backups(ctx context.Context, project croft.Project) ([]backup.Backup, error)
	// Backup returns a project's backup. NotFound.
	Backup(ctx context.Context, project croft.Project, name string) (backup.Backup, error)
	// PutBackup writes a record, and charges the project for a new one. OverQuota.
	PutBackup(ctx context.Context, b backup.Backup) (backup.Backup, error)
	RemoveBackup(ctx context.Context, b backup.Backup) error
	Plans(ctx context.Context, project croft.Project) ([]backup.Schedule, error)
	// Plan returns a project's schedule. NotFound.
	Plan(ctx context.Context, project croft.Project, name string) (backup.Schedule, error)
	PutPlan(ctx context.Context, p backup.Schedule) (backup.Schedule, error)
	RemovePlan(ctx context.Context, p backup.Schedule) error
	Jobs(ctx context.Context) ([]backup.Job, error)
	// PutJob writes a new job; one with its ID and host stays as it is.
	PutJob(ctx context.Context, j backup.Job) error
	RemoveJob(ctx context.Context, host croft.HostID, id string) error
	// Watch calls changed after each change of a record, until ctx ends.
	Watch(ctx context.Context, changed func()) error
}

// Snapshots takes the temporary snapshots that backups are made from.
type Snapshots interface {
	// CaptureFor takes a snapshot of an instance. Conflict: it has such a snapshot, or cannot have one now.
	CaptureFor(ctx context.Context, st croft.Status, name, backup string) (croft.Volume, error)
	// EndCapture removes it. A missing one is no error.
	EndCapture(ctx context.Context, inst croft.Instance, name string) error
	// FindSnapshot returns a snapshot of an instance. NotFound.
	FindSnapshot(ctx context.Context, inst croft.Instance, name string) (croft.Volume, error)
	// Snapshots returns the snapshots of a project's instances; with an empty project, all.
	Snapshots(ctx context.Context, project croft.Project) ([]croft.Volume, error)
	// AttachedTo returns the volumes of an instance, and its snapshots.
	AttachedTo(ctx context.Context, id croft.InstanceID) ([]croft.Volume, error)
	// Find returns a project's volume. NotFound.
	Find(ctx context.Context, project croft.Project, name string) (croft.Volume, error)
}

// Manager carries out requests for backups. All fields are required except ForgetAfter.
type Manager struct {
	Partition croft.PartitionID
	Store
	Vault     cluster.Vault // a manager without a key carries out no jobs
	Snapshots Snapshots
	Scheduler *schedule.Scheduler
	Instances Instances
	Hosts     schedule.Registry
	// Labels returns the labels of a project's instances, as name=value
	Labels   func(ctx context.Context, project croft.Project) (map[croft.InstanceID][]string, error)
	meters   *meter.Set
	swept    *atomic.Int64
	counted  *atomic.Int64
	overdue  prometheus.Gauge
	Failures prometheus.Counter // of backups; New makes it
	Log      *slog.Logger
	// how long a backup names an instance that is to be restored from it, and has no order for that; 2 min by default
	ForgetAfter time.Duration
}

// Instances shows the instances.
type Instances interface {
	// Overview returns the instances of a project by name; with an empty project, all. They must not be changed.
	Overview(ctx context.Context, project croft.Project) ([]*croft.Status, error)
}

// New completes a manager by its metrics.
func New(m Manager) *Manager {
	m.meters, m.swept, m.counted = &meter.Set{}, &atomic.Int64{}, &atomic.Int64{}
	m.Failures = m.meters.Counter("croft_backup_failures_total", "Backups that were not made, by this process.")
	m.overdue = m.meters.Gauge("croft_backup_overdue_instances",
		"Instances of the cloud without a recent backup, as `croft backup overdue` lists them; 0 without a store.")
	m.meters.Now("croft_backup_manager", "1: this process carries out requests for backups.",
		func() float64 { return 1 })
	return &m
}

// Collector returns the manager's metrics.
func (m *Manager) Collector() prometheus.Collector { return m.meters }

// changedError is the error about a record that changed after it was read.
type changedError struct{ error }

func (e changedError) Unwrap() error { return e.error }

// put writes the record of an existing backup.
func (m *Manager) put(ctx context.Context, b backup.Backup) (backup.Backup, error) {
	now, err := m.PutBackup(ctx, b)
	return now, ifChanged(err)
}

// ifChanged makes a Conflict about an existing record a changedError.
func ifChanged(err error) error {
	if errors.Is(err, croft.Conflict) {
		return changedError{err}
	}
	return err
}

// repeated carries out a request, again from its beginning when the record that it read was changed meanwhile: managers
// change records at any time.
func repeated[T any](request func() (T, error)) (v T, err error) {
	for range requestTries {
		if v, err = request(); !errors.As(err, &changedError{}) {
			return v, err
		}
	}
	return v, err
}

// requestTries bounds how often a request is carried out from its beginning.
const requestTries = 8

// lookEvery is how often a manager looks at all records, besides after each change.
const lookEvery = 5 * time.Second

// Run carries out requests until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	changed := make(chan struct{}, 1)
	wake := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		_ = m.Watch(ctx, wake)
	}()
	defer func() { <-watching }()
	for ctx.Err() == nil {
		if err := m.Look(ctx); err != nil && ctx.Err() == nil {
			m.Log.Warn("the manager of backups could not finish; it tries again", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-changed:
			_ = delay.For(ctx, 100*time.Millisecond) // changes come together
		case <-time.After(lookEvery):
		}
	}
	return ctx.Err()
}

// Look carries every request on as far as it can go now. One that fails does not keep the others.
func (m *Manager) Look(ctx context.Context) (err error) {
	now := time.Now().UTC()
	jobs, err := m.Jobs(ctx)
	if err != nil {
		return err
	}
	byID := map[string]backup.Job{}
	for _, j := range jobs {
		byID[j.ID] = j
	}
	stores, err := m.Stores(ctx)
	if err != nil {
		return err
	}
	backups, err := m.Backups(ctx, "")
	if err != nil {
		return err
	}
	wanted := map[string]bool{}
	var problems error
	note := func(what string, err error) {
		if err != nil && !errors.Is(err, croft.Conflict) { // a conflict: another manager was faster
			problems = errors.Join(problems, fmt.Errorf("%s: %w", what, err))
		}
	}
	for _, s := range stores {
		wanted[s.Job] = true
		note("store "+s.Name, m.advanceStore(ctx, s, byID[s.Job]))
	}
	for _, b := range backups {
		wanted[b.Job] = true
		note("store "+b.Store, m.noteRoom(ctx, b.Store, byID[b.Job].Report.Room))
		note("backup "+b.Name, m.advance(ctx, b, byID[b.Job]))
	}
	note("jobs to restore", m.restores(ctx, byID, wanted))
	for _, j := range jobs {
		// A job is written after the record that names it, so one without a record was withdrawn.
		if !wanted[j.ID] && now.Sub(j.Created) > time.Minute {
			note("job", m.RemoveJob(ctx, j.Host, j.ID))
		}
	}
	note("schedules", m.runPlans(ctx, now, backups))
	note("temporary snapshots", m.sweep(ctx, now))
	note("instances without a recent backup", m.count(ctx, now, stores))
	return problems
}

// sweep removes temporary snapshots, at most once a minute, whose backup is not being made: those of a process that was
// suspended while it ordered one.
func (m *Manager) sweep(ctx context.Context, now time.Time) (err error) {
	if last := m.swept.Load(); now.Unix()-last < 60 || !m.swept.CompareAndSwap(last, now.Unix()) {
		return nil
	}
	all, err := m.Snapshots.Snapshots(ctx, "")
	if err != nil {
		return err
	}
	backups, err := m.Backups(ctx, "") // the record of a backup is older than its snapshot
	if err != nil {
		return err
	}
	for _, v := range all {
		made := slices.ContainsFunc(backups, func(b backup.Backup) bool {
			return b.Project == v.Project && b.Instance == v.Snapshot.Instance && snapshotName(b) == v.Name &&
				b.State == backup.Creating
		})
		if v.Snapshot.Backup != "" && !made && !v.Removing && v.Instance != "" {
			err = errors.Join(err, m.Snapshots.EndCapture(ctx, croft.Instance{ID: v.Snapshot.Instance,
				Project: v.Project},
				v.Name))
		}
	}
	return err
}

// access opens the access to a store.
func (m *Manager) access(s backup.Store) (a backup.Access, err error) {
	secret, err := m.Vault.Open(s.Secret, s.About(m.Partition))
	if err == nil {
		err = json.Unmarshal([]byte(secret.Reveal()), &a)
	}
	if err != nil {
		return a, fmt.Errorf("open the access to backup store %s: %w", s.Name, err)
	}
	a.Repository = s.Repository
	return a, nil
}

// order writes a job for a host.
func (m *Manager) order(ctx context.Context, s backup.Store, j backup.Job) error {
	a, err := m.access(s)
	if err != nil {
		return err
	}
	hosts, err := m.Hosts.Hosts(ctx, j.Host)
	if err != nil {
		return err
	}
	host, known := hosts[j.Host]
	if !known {
		return croft.Errorf(croft.NotFound, "its host was removed from the cloud")
	}
	j.Store, j.Created = s.Name, time.Now().UTC()
	if err := a.SealFor(&j, host); err != nil {
		return err
	}
	return m.PutJob(ctx, j)
}

// able returns a host that can work with repositories: the preferred one if it can. Unavailable: no host can.
func (m *Manager) able(ctx context.Context, preferred croft.HostID) (croft.HostID, error) {
	hosts, err := m.Hosts.Hosts(ctx)
	if err != nil {
		return "", err
	}
	var found []croft.HostID
	for id, h := range hosts {
		if h.Alive && !h.IsDead() && h.BackupKey != "" {
			found = append(found, id)
		}
	}
	if len(found) == 0 {
		return "", croft.Errorf(croft.Unavailable, "no host that is alive can make backups: install restic, "+
			"libnbd-bin and qemu-utils on the hosts, and restart their agents")
	}
	if slices.Contains(found, preferred) {
		return preferred, nil
	}
	return slices.Min(found), nil
}

// lost returns why the host of a job does not carry it out; empty: it may.
func (m *Manager) lost(ctx context.Context, host croft.HostID) (string, error) {
	hosts, err := m.Hosts.Hosts(ctx, host)
	if err != nil {
		return "", err
	}
	switch h, known := hosts[host]; {
	case !known:
		return "its host was removed from the cloud", nil
	case h.IsDead():
		return "its host was declared dead", nil
	}
	return "", nil
}

// newJob returns the ID of a job.
func newJob() string { return uuid.NewString() }
