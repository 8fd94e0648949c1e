package backups

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
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
		if st.Instance.State == croft.StateScheduled && p.Covers(st.Instance, labels[st.Instance.ID]) {
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
	Instance *croft.Instance // without its user-data; not to be changed
	Last     time.Time       // of its newest complete backup; zero: it has none
	Failed   string          // why the newest attempt since then failed; empty: there was none
	FailedAt time.Time       // when that failed
	Schedule string          // the schedule that should have made one; empty: none makes backups of it
}

// unscheduled is how old the newest backup of an instance may be that no schedule makes backups of.
const unscheduled = 24 * time.Hour

// Overdue returns the instances of a project, of all with an empty project, whose newest backup is older than a time,
// by name; 0: older than their schedules should let it become or, without a schedule, than a day. The machines of pools
// need no backup then, unless a schedule makes some.
func (m *Manager) Overdue(ctx context.Context, project croft.Project, than time.Duration) ([]Unprotected, error) {
	return Protection{m.Instances, m.Store, m.Labels}.Overdue(ctx, project, time.Now(), than)
}

// Protection finds the instances without a recent backup. All fields are required.
type Protection struct {
	Instances Instances
	Records   interface {
		// Backups returns the backups of a project, the oldest first; with an empty project, all.
		Backups(ctx context.Context, project croft.Project) ([]backup.Backup, error)
		// Plans returns the schedules of a project; with an empty project, all.
		Plans(ctx context.Context, project croft.Project) ([]backup.Schedule, error)
	}
	// Labels is as for a Manager.
	Labels func(ctx context.Context, project croft.Project) (map[croft.InstanceID][]string, error)
}

// Overdue is like Manager.Overdue, at a time.
func (p Protection) Overdue(ctx context.Context, project croft.Project, now time.Time, than time.Duration) (
	found []Unprotected, err error) {
	instances, err := p.Instances.Overview(ctx, project)
	if err != nil {
		return nil, err
	}
	backups, err := p.Records.Backups(ctx, project)
	if err != nil {
		return nil, err
	}
	plans, err := p.Records.Plans(ctx, project)
	if err != nil {
		return nil, err
	}
	labels, err := p.labels(ctx, plans)
	if err != nil {
		return nil, err
	}
	last := map[croft.InstanceID]Unprotected{}
	for _, b := range backups { // the oldest first
		u := last[b.Instance]
		switch {
		case b.Usable() && b.Taken.After(u.Last):
			u.Last, u.Failed, u.FailedAt = b.Taken, "", time.Time{}
		case b.State == backup.Failed || b.State == backup.Damaged:
			u.Failed, u.FailedAt = b.Error, cmp.Or(b.Done, b.Created)
		}
		last[b.Instance] = u
	}
	for _, st := range instances {
		u := last[st.Instance.ID]
		u.Instance = &st.Instance
		allowed, since := unscheduled, u.Last
		if plan, is := strictest(plans, *u.Instance, labels[u.Instance.ID]); is {
			u.Schedule, allowed = plan.Name, plan.Allowed()
			since = latest(u.Last, u.Instance.Created, plan.Created) // the schedule could make none before
		} else if u.Instance.MadeFor != "" && than == 0 {
			continue // pools replace their machines
		}
		if than > 0 {
			allowed, since = than, u.Last
		}
		if since.Before(now.Add(-allowed)) {
			found = append(found, u)
		}
	}
	return found, nil
}

// labels returns the labels of the instances that schedules choose by labels.
func (p Protection) labels(ctx context.Context, plans []backup.Schedule) (map[croft.InstanceID][]string, error) {
	all, read := map[croft.InstanceID][]string{}, map[croft.Project]bool{}
	for _, plan := range plans {
		if len(plan.Labels) == 0 || read[plan.Project] {
			continue
		}
		read[plan.Project] = true
		labels, err := p.Labels(ctx, plan.Project)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, labels)
	}
	return all, nil
}

// strictest returns the schedule with the shortest interval of the ones that make backups of an instance; false: none
// does.
func strictest(plans []backup.Schedule, inst croft.Instance, labels []string) (found backup.Schedule, is bool) {
	for _, p := range plans {
		if p.Project == inst.Project && p.Covers(inst, labels) && (!is || p.Allowed() < found.Allowed()) {
			found, is = p, true
		}
	}
	return found, is
}

func latest(all ...time.Time) time.Time { return slices.MaxFunc(all, time.Time.Compare) }

// countEvery is how often a manager counts the instances without a recent backup.
const countEvery = time.Minute

// count updates the metric of the instances without a recent backup. Without a store, none is expected.
func (m *Manager) count(ctx context.Context, now time.Time, stores []backup.Store) error {
	if last := m.counted.Load(); now.Sub(time.Unix(last, 0)) < countEvery {
		return nil
	}
	m.counted.Store(now.Unix())
	if len(stores) == 0 {
		m.overdue.Set(0)
		return nil
	}
	found, err := m.Overdue(ctx, "", 0)
	if err == nil {
		m.overdue.Set(float64(len(found)))
	}
	return err
}
