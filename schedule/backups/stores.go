package backups

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"croft"
	"croft/cluster"
	"croft/compute/backup"
	"croft/schedule"
)

// AddStore adds a store, which a host then checks: it opens the repository, or makes it. Invalid. Conflict: there is
// one of this name.
func (m *Manager) AddStore(ctx context.Context, s backup.Store, a backup.Access) (backup.Store, error) {
	if err := errors.Join(schedule.CheckName(s.Name), backup.CheckRepository(s.Repository),
		backup.CheckEnvironment(a.Environment)); err != nil {
		return s, fmt.Errorf("add backup store: %w", err)
	}
	if a.Password == "" {
		return s, croft.Errorf(croft.Invalid, "add backup store %s: a repository needs a password", s.Name)
	}
	s.State, s.Created, s.Revision = backup.Checking, time.Now().UTC(), 0
	err := m.seal(&s, a)
	if err == nil {
		s, err = m.checkStore(ctx, s)
	}
	if err != nil {
		return s, fmt.Errorf("add backup store %s: %w", s.Name, err)
	}
	return s, nil
}

func (m *Manager) seal(s *backup.Store, a backup.Access) error {
	a.Repository = ""
	text, err := json.Marshal(a)
	if err == nil {
		s.Secret, err = m.Vault.Seal(cluster.NewSecret(string(text)), s.About(m.Partition))
	}
	return err
}

// checkStore orders a check of a store, and writes its record.
func (m *Manager) checkStore(ctx context.Context, s backup.Store) (_ backup.Store, err error) {
	if s.Host, err = m.able(ctx, s.Host); err != nil {
		return s, err
	}
	s.State, s.Job, s.Error = backup.Checking, newJob(), ""
	if s, err = m.PutStore(ctx, s); err != nil {
		return s, ifChanged(err)
	}
	return s, m.order(ctx, s, storeJob(s))
}

// storeJob is the job of a store: open the repository of a new one, and read all data of the repository of another.
func storeJob(s backup.Store) backup.Job {
	j := backup.Job{ID: s.Job, Host: s.Host, Kind: backup.Open}
	if !s.Checked.IsZero() {
		j.Kind = backup.Verify
	}
	return j
}

// CheckStore orders a host to verify all data of a store.
func (m *Manager) CheckStore(ctx context.Context, name string) (backup.Store, error) {
	s, err := repeated(func() (backup.Store, error) {
		s, err := m.Store.Store(ctx, name)
		if err == nil && s.State == backup.Forgotten {
			return s, croft.Errorf(croft.Conflict, "%s", s.Error)
		}
		if err == nil && s.State != backup.Checking {
			s, err = m.checkStore(ctx, s)
		}
		return s, err
	})
	if err != nil {
		return s, fmt.Errorf("check backup store %s: %w", name, err)
	}
	return s, nil
}

// advanceStore carries a check of a store on.
func (m *Manager) advanceStore(ctx context.Context, s backup.Store, j backup.Job) error {
	if s.State == backup.Forgotten {
		return m.forgetStore(ctx, s)
	}
	if s.State != backup.Checking {
		return nil
	}
	end := func(state backup.State, why string) error {
		host, job := s.Host, s.Job
		s.State, s.Error, s.Job, s.Checked = state, why, "", time.Now().UTC()
		if j.Report.Room != nil {
			s.Room = j.Report.Room
		}
		if state == backup.Failed && j.Kind == backup.Open {
			s.Checked = time.Time{}
		}
		if _, err := m.PutStore(ctx, s); err != nil {
			return err
		}
		if why != "" {
			m.Log.Warn("a backup store cannot be used", "store", s.Name, "err", why)
		}
		return m.RemoveJob(ctx, host, job)
	}
	switch {
	case j.Report.Done && j.Report.Damaged:
		return end(backup.Damaged, j.Report.Error)
	case j.Report.Done && j.Report.Error != "":
		return end(backup.Failed, j.Report.Error)
	case j.Report.Done:
		return end(backup.Ready, "")
	case j.ID == "": // the process that ordered the check died before it wrote the job
		return m.order(ctx, s, storeJob(s))
	}
	why, err := m.lost(ctx, s.Host)
	if err == nil && why != "" {
		return end(backup.Failed, "not checked: "+why)
	}
	return err
}

// noteRoom keeps the space of a store that a host has read after a job for a backup.
func (m *Manager) noteRoom(ctx context.Context, name string, r *backup.Room) error {
	if r == nil {
		return nil
	}
	s, err := m.Store.Store(ctx, name)
	if err == nil && (s.Room == nil || s.Room.At.Before(r.At)) {
		s.Room = r
		_, err = m.PutStore(ctx, s)
	}
	if errors.Is(err, croft.NotFound) || errors.Is(err, croft.Conflict) { // the next job's report is newer
		return nil
	}
	return err
}

// ForgetStore removes a store that is gone for good, with its backups and schedules of all projects. What the
// repository contains stays there. If this process dies in the middle, a Manager continues. Conflict: an instance is
// being restored from one of the backups. NotFound.
func (m *Manager) ForgetStore(ctx context.Context, name string) error {
	_, err := repeated(func() (backup.Store, error) {
		s, err := m.giveUp(ctx, name)
		if err == nil {
			err = ifChanged(m.forgetStore(ctx, s)) // a backup that was requested before may be written now
		}
		return s, err
	})
	if err != nil {
		return fmt.Errorf("forget backup store %s: %w", name, err)
	}
	return nil
}

// giveUp notes that a store is to be forgotten, so that it gets no further backups.
func (m *Manager) giveUp(ctx context.Context, name string) (backup.Store, error) {
	s, err := m.Store.Store(ctx, name)
	if err != nil || s.State == backup.Forgotten {
		return s, err
	}
	all, err := m.Backups(ctx, "")
	if err != nil {
		return s, err
	}
	for _, b := range all {
		if b.Store == name && len(b.Restoring) > 0 {
			return s, croft.Errorf(croft.Conflict, "instance %s is being restored from backup %s of project %s: wait "+
				"until it has ended, or destroy the instance", b.Restoring[0], b.Name, b.Project)
		}
	}
	s.State, s.Error, s.Job = backup.Forgotten, "an operator has given it up", ""
	s, err = m.PutStore(ctx, s)
	return s, ifChanged(err)
}

// forgetStore removes what belongs to a store that was given up, and then the store.
func (m *Manager) forgetStore(ctx context.Context, s backup.Store) error {
	plans, err := m.Plans(ctx, "")
	if err != nil {
		return err
	}
	for _, p := range plans {
		if p.Store != s.Name {
			continue
		}
		if err := m.RemovePlan(ctx, p); err != nil && !errors.Is(err, croft.NotFound) {
			return err
		}
	}
	all, err := m.Backups(ctx, "")
	if err != nil {
		return err
	}
	for _, b := range all {
		if b.Store != s.Name {
			continue
		}
		if b.Job != "" {
			err = m.RemoveJob(ctx, b.Host, b.Job)
		}
		if err == nil {
			err = m.Snapshots.EndCapture(ctx, target(b), snapshotName(b))
		}
		if err == nil {
			err = m.RemoveBackup(ctx, b)
		}
		if err != nil {
			return err
		}
	}
	if err := m.RemoveStore(ctx, s.Name); err != nil && !errors.Is(err, croft.NotFound) {
		return err
	}
	m.Log.Warn("a backup store was forgotten", "store", s.Name, "repository", s.Repository)
	return nil
}

// usable returns a store that a project may use: the named one, or the only one that there is. NotFound: there is none.
func (m *Manager) usable(ctx context.Context, name string, project croft.Project, id croft.ProjectID) (backup.Store,
	error) {
	all, err := m.Stores(ctx)
	if err != nil {
		return backup.Store{}, err
	}
	var found []backup.Store
	for _, s := range all {
		if s.State != backup.Forgotten && s.Admits(project, id) && (name == "" || s.Name == name) {
			found = append(found, s)
		}
	}
	switch {
	case len(found) == 0 && name != "":
		return backup.Store{}, croft.Errorf(croft.NotFound, "there is no backup store %.80q that project %s may use; "+
			"`croft backup store list` shows all", name, project)
	case len(found) == 0:
		return backup.Store{}, croft.Errorf(croft.NotFound, "there is no backup store that project %s may use: an "+
			"operator adds one with `croft backup store add`", project)
	case len(found) > 1:
		return backup.Store{}, croft.Errorf(croft.Invalid, "there are several backup stores: name one with --store")
	case found[0].State == backup.Failed:
		return found[0], croft.Errorf(croft.Unavailable, "backup store %s cannot be used: %s", found[0].Name,
			found[0].Error)
	}
	return found[0], nil
}
