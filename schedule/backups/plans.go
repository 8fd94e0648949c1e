package backups

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"croft"
	"croft/compute/backup"
	"croft/internal/wording"
	"croft/schedule"
)

// AddPlan adds a schedule. Invalid. Conflict: there is one of this name. NotFound: the project may not use the store.
func (m *Manager) AddPlan(ctx context.Context, p backup.Schedule, id croft.ProjectID) (backup.Schedule, error) {
	if err := errors.Join(schedule.CheckName(p.Name), p.Check()); err != nil {
		return p, err
	}
	s, err := m.usable(ctx, p.Store, p.Project, id)
	if err == nil && p.Instance != "" {
		_, err = m.Scheduler.View.Find(ctx, p.Project, p.Instance)
	}
	if err == nil {
		p.ProjectID = id
		p.Store, p.Created, p.Revision = s.Name, time.Now().UTC(), 0
		p, err = m.PutPlan(ctx, p)
	}
	if err != nil {
		return p, fmt.Errorf("add backup schedule %s: %w", p.Name, err)
	}
	return p, nil
}

// DropPlan removes a schedule. Its backups stay.
func (m *Manager) DropPlan(ctx context.Context, project croft.Project, name string) error {
	p, err := m.Plan(ctx, project, name)
	if err != nil {
		return err
	}
	return m.RemovePlan(ctx, p)
}

// interrupted is noted before a run, and replaced after it.
const interrupted = "the last run was interrupted before all backups were ordered"

// runPlans runs the schedules that are due, and removes the backups that they do not keep. The record of a schedule is
// written first, so of several managers one runs it.
func (m *Manager) runPlans(ctx context.Context, now time.Time, all []backup.Backup) (problems error) {
	plans, err := m.Plans(ctx, "")
	if err != nil {
		return err
	}
	for _, p := range plans {
		if err := m.expire(ctx, p, all); err != nil && !errors.Is(err, croft.Conflict) {
			problems = errors.Join(problems, err)
		}
		if now.Before(p.Next()) {
			continue
		}
		p.Last, p.Error = now, interrupted
		if p, err = m.PutPlan(ctx, p); err != nil {
			if !errors.Is(err, croft.Conflict) {
				problems = errors.Join(problems, err)
			}
			continue
		}
		problems = errors.Join(problems, m.runPlan(ctx, p))
	}
	return problems
}

// maxMissed limits the reasons that the record of a schedule has.
const maxMissed = 20

func (m *Manager) runPlan(ctx context.Context, p backup.Schedule) error {
	chosen, err := m.chosen(ctx, p)
	if err != nil {
		p.Error = err.Error()
		_, put := m.PutPlan(ctx, p)
		return errors.Join(err, put)
	}
	s, err := m.usable(ctx, p.Store, p.Project, p.ProjectID)
	if err != nil {
		p.Error = err.Error()
		_, put := m.PutPlan(ctx, p)
		return errors.Join(err, put)
	}
	p.Missed, p.Error = nil, ""
	missed := 0
	for _, inst := range chosen {
		_, err := m.createIn(ctx, s, Request{Instance: string(inst.ID), Project: p.Project, Schedule: p.Name})
		if err == nil {
			continue
		}
		missed++
		m.Log.Error("a scheduled backup was not made", "schedule", p.Name, "project", p.Project, "instance", inst.ID,
			"err",
			err)
		m.Failures.Inc()
		if len(p.Missed) < maxMissed {
			p.Missed = append(p.Missed, inst.Name+": "+err.Error())
		}
	}
	if missed > 0 {
		p.Error = wording.Count(missed, "backup") + " of the last run could not be ordered"
	}
	_, err = m.PutPlan(ctx, p)
	return err
}

// chosen returns the instances that a schedule makes backups of.
func (m *Manager) chosen(ctx context.Context, p backup.Schedule) (chosen []croft.Instance, err error) {
	if p.Instance != "" {
		st, err := m.Scheduler.View.Find(ctx, p.Project, p.Instance)
		return []croft.Instance{st.Instance}, err
	}
	all, err := m.Scheduler.View.List(ctx, p.Project)
	if err != nil {
		return nil, err
	}
	labels, err := m.Labels(ctx, p.Project)
	if err != nil {
		return nil, err
	}
	for _, st := range all {
		has := func(l string) bool { return slices.Contains(labels[st.Instance.ID], l) }
		if st.Instance.State == croft.StateScheduled && !slices.ContainsFunc(p.Labels,
			func(l string) bool { return !has(l) }) {
			chosen = append(chosen, st.Instance)
		}
	}
	return chosen, nil
}

// expire removes the backups that a schedule does not keep.
func (m *Manager) expire(ctx context.Context, p backup.Schedule, all []backup.Backup) (err error) {
	of := map[croft.InstanceID][]backup.Backup{}
	for _, b := range all {
		if b.Project == p.Project && b.Schedule == p.Name {
			of[b.Instance] = append(of[b.Instance], b)
		}
	}
	for _, some := range of {
		for _, b := range p.Keep.Expired(some) {
			if len(b.Restoring) == 0 {
				_, failed := m.discard(ctx, b)
				err = errors.Join(err, failed)
			}
		}
	}
	return err
}

// Unprotected is an instance without a recent backup.
type Unprotected struct {
	Instance croft.Instance
	Last     time.Time // of its newest complete backup; zero: it has none
	Failed   string    // why the newest attempt since then failed; empty: there was none
}

// Overdue returns the instances of a project, of all with an empty project, that have had no backup for a time, by
// name.
func (m *Manager) Overdue(ctx context.Context, project croft.Project, than time.Duration) ([]Unprotected, error) {
	return Overdue(ctx, m.Scheduler.View, m.Store, project, time.Now().Add(-than))
}

// instanceLister lists instances.
type instanceLister interface {
	// List returns the instances of a project; with an empty project, all.
	List(ctx context.Context, project croft.Project) ([]croft.Status, error)
}

// backupLister lists backups.
type backupLister interface {
	// Backups returns the backups of a project, the oldest first; with an empty project, all.
	Backups(ctx context.Context, project croft.Project) ([]backup.Backup, error)
}

// Overdue returns the instances of a project, of all with an empty project, that have had no backup since a time, by
// name.
func Overdue(ctx context.Context, from instanceLister, kept backupLister, project croft.Project, since time.Time) (
	found []Unprotected, err error) {
	instances, err := from.List(ctx, project)
	if err != nil {
		return nil, err
	}
	backups, err := kept.Backups(ctx, project)
	if err != nil {
		return nil, err
	}
	last := map[croft.InstanceID]Unprotected{}
	for _, b := range backups { // the oldest first
		u := last[b.Instance]
		switch {
		case b.Usable() && b.Taken.After(u.Last):
			u.Last, u.Failed = b.Taken, ""
		case b.State == backup.Failed || b.State == backup.Damaged:
			u.Failed = b.Error
		}
		last[b.Instance] = u
	}
	for _, st := range instances {
		u := last[st.Instance.ID]
		if u.Instance = st.Instance; u.Last.Before(since) {
			found = append(found, u)
		}
	}
	return found, nil
}
