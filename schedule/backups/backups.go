package backups

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"croft"
	"croft/compute/backup"
	"croft/internal/wording"
	"croft/schedule"
)

// Request asks for a backup of an instance.
type Request struct {
	Instance  string // name or UUID
	Name      string // empty: one with the time
	Store     string // empty: the only one
	Project   croft.Project
	ProjectID croft.ProjectID
	Schedule  string
}

// Create asks for a backup. It returns once that is recorded and the snapshot is ordered, or with the record of a
// backup that failed. Conflict: the name is taken. OverQuota. NotFound. Unavailable: the store cannot be used.
func (m *Manager) Create(ctx context.Context, r Request) (b backup.Backup, err error) {
	s, err := m.usable(ctx, r.Store, r.Project, r.ProjectID)
	if err != nil {
		name := r.Instance
		if st, unknown := m.Scheduler.View.Find(ctx, r.Project, r.Instance); unknown == nil {
			name = st.Instance.Name
		}
		return b, fmt.Errorf("back up instance %s: %w", name, err)
	}
	return m.createIn(ctx, s, r)
}

// createIn asks for a backup in a store that the project may use.
func (m *Manager) createIn(ctx context.Context, s backup.Store, r Request) (b backup.Backup, err error) {
	st, err := m.Scheduler.View.Find(ctx, r.Project, r.Instance)
	if err != nil {
		return b, err
	}
	inst, now := st.Instance, time.Now().UTC()
	if r.Name == "" {
		r.Name = nameAt(inst.Name, now)
	}
	what := fmt.Sprintf("back up instance %s", inst.Name)
	if err := schedule.CheckName(r.Name); err != nil {
		return b, fmt.Errorf("%s: %w", what, err)
	}
	why := cannot(st)
	if why == nil {
		why = m.inProgress(ctx, inst)
	}
	if why != nil {
		return b, fmt.Errorf("%s: %w", what, why)
	}
	disks, err := m.disks(ctx, inst)
	if err != nil {
		return b, fmt.Errorf("%s: %w", what, err)
	}
	b = backup.Backup{ID: uuid.NewString(), Project: inst.Project, Name: r.Name, Store: s.Name, Instance: inst.ID,
		Of: inst.Name, Host: inst.Host, State: backup.Creating, Spec: inst.Spec, Schedule: r.Schedule, Created: now}
	b.Spec.HostKey, b.Spec.ClusterKey, b.Spec.Peers = "", "", nil
	for _, d := range disks {
		b.SizeGB += d.SizeGB
	}
	b.Job = b.ID
	if b, err = m.PutBackup(ctx, b); err != nil {
		return b, fmt.Errorf("%s: %w", what, err)
	}
	m.Log.Info("backup ordered", "backup", b.ID, "instance", inst.ID, "name", b.Name, "store", b.Store)
	if err := m.advance(ctx, b, backup.Job{}); err != nil && !errors.Is(err, croft.Conflict) {
		return b, fmt.Errorf("%s: %w", what, err)
	}
	return m.Backup(ctx, b.Project, b.Name)
}

// nameAt returns the name of a backup of an instance, which a name of the greatest length is cut for.
func nameAt(instance string, at time.Time) string {
	stamp := at.Format("-20060102-150405")
	return instance[:min(len(instance), 63-len(stamp))] + stamp
}

// inProgress returns a Conflict if a backup of an instance is being made.
func (m *Manager) inProgress(ctx context.Context, inst croft.Instance) error {
	all, err := m.Backups(ctx, inst.Project)
	for _, b := range all {
		if b.Instance == inst.ID && b.State == backup.Creating {
			return croft.Errorf(croft.Conflict, "its backup %s is being made: try again later", b.Name)
		}
	}
	return err
}

// cannot returns why no backup of an instance can be made.
func cannot(st croft.Status) error {
	switch {
	case st.Instance.State != croft.StateScheduled:
		return croft.Errorf(croft.Conflict, "it is %s", st.Instance.State)
	case st.Instance.Moving != "":
		return croft.Errorf(croft.Conflict, "it is being moved: try again later")
	case st.Unbuilt():
		return croft.Errorf(croft.Conflict, "it was not restored from backup %s, and has no disks: `schedule start %s` "+
			"tries that again", st.Instance.Backup.Name, st.Instance.Name)
	case st.Restoring():
		return croft.Errorf(croft.Conflict, "it is being restored from backup %s: try again later",
			st.Instance.Backup.Name)
	case st.Host == nil || !st.Host.Alive:
		return croft.Errorf(croft.Unavailable, "its host is silent")
	case st.Host.BackupKey == "":
		return croft.Errorf(croft.Unavailable, "its host cannot make backups: install restic, libnbd-bin and "+
			"qemu-utils on it, and restart its agent")
	}
	return nil
}

// disks returns the disks of an instance.
func (m *Manager) disks(ctx context.Context, inst croft.Instance) ([]backup.Disk, error) {
	all := []backup.Disk{{SizeGB: inst.Spec.Resources[croft.DiskGB]}}
	attached, err := m.Snapshots.AttachedTo(ctx, inst.ID)
	for _, v := range attached {
		if v.Snapshot == nil {
			all = append(all, backup.Disk{Volume: v.ID, Name: v.Name, SizeGB: v.SizeGB})
		}
	}
	return all, err
}

// snapshotName is the name of the temporary snapshot of a backup.
func snapshotName(b backup.Backup) string { return backup.SnapshotPrefix + b.ID[:8] }

// target is the instance of a backup, as far as snapshots need it.
func target(b backup.Backup) croft.Instance {
	return croft.Instance{ID: b.Instance, Project: b.Project, Name: b.Of}
}

// advance carries a backup on as far as it can go now.
func (m *Manager) advance(ctx context.Context, b backup.Backup, j backup.Job) error {
	switch b.State {
	case backup.Creating:
		return m.advanceCopy(ctx, b, j)
	case backup.Checking:
		return m.advanceCheck(ctx, b, j)
	case backup.Removing:
		return m.advanceRemoval(ctx, b, j)
	}
	return m.tidy(ctx, b)
}

// tidy removes the temporary snapshot of a backup that is complete or failed.
func (m *Manager) tidy(ctx context.Context, b backup.Backup) error {
	if b.Snapshot == "" {
		return nil
	}
	if err := m.Snapshots.EndCapture(ctx, target(b), snapshotName(b)); err != nil {
		return err
	}
	v, err := m.Snapshots.FindSnapshot(ctx, target(b), snapshotName(b))
	if err == nil && !v.Removing {
		return nil
	}
	if err != nil && !errors.Is(err, croft.NotFound) {
		return err
	}
	b.Snapshot = ""
	_, err = m.put(ctx, b)
	return err
}

// fail ends a backup without a copy.
func (m *Manager) fail(ctx context.Context, b backup.Backup, why error) error {
	host, job := b.Host, b.Job
	b.Nothing = b.Nothing || !b.Copying
	b.State, b.Error, b.Job, b.Done = backup.Failed, why.Error(), "", time.Now().UTC()
	b.ErrorKind = cmp.Or(croft.KindOf(why), croft.Unavailable)
	b, err := m.put(ctx, b)
	if err != nil {
		return err
	}
	m.Log.Error("a backup failed", "backup", b.ID, "name", b.Name, "project", b.Project, "instance", b.Instance,
		"store",
		b.Store, "err", why)
	m.Failures.Inc()
	return errors.Join(m.RemoveJob(ctx, host, job), m.Snapshots.EndCapture(ctx, target(b), snapshotName(b)),
		m.tidy(ctx, b))
}

// snapshotTime is how long a host has to take the snapshot.
const snapshotTime = 10 * time.Minute

func (m *Manager) advanceCopy(ctx context.Context, b backup.Backup, j backup.Job) error {
	switch {
	case j.Report.Done && j.Report.Error != "":
		b.Nothing = j.Report.Nothing
		return m.fail(ctx, b, errors.New(j.Report.Error))
	case j.Report.Done:
		return m.copied(ctx, b, j)
	}
	if why, err := m.lost(ctx, b.Host); err != nil || why != "" {
		if why != "" {
			err = m.fail(ctx, b, errors.New(why))
		}
		return err
	}
	v, err := m.Snapshots.FindSnapshot(ctx, target(b), snapshotName(b))
	switch {
	case errors.Is(err, croft.NotFound) && b.Snapshot != "":
		return m.fail(ctx, b, croft.Errorf(croft.Conflict, "the instance, or its temporary snapshot, was removed while it "+
			"was copied"))
	case errors.Is(err, croft.NotFound):
		return m.capture(ctx, b)
	case err != nil:
		return err
	case v.Snapshot.Backup != b.Name:
		return m.fail(ctx, b, croft.Errorf(croft.Conflict, "the instance has a snapshot %s already: remove it", v.Name))
	case v.Removing:
		return m.fail(ctx, b, croft.Errorf(croft.Conflict, "the instance is being removed"))
	case v.Session != "":
		return nil // it claims nothing yet: if nothing fits, or the process that asked for it dies, its record goes
	case b.Snapshot == "":
		b.Snapshot = v.ID
		_, err = m.put(ctx, b)
		return err
	case v.MadeGB == 0 && v.Error != "":
		return m.fail(ctx, b, errors.New("no snapshot was taken: "+v.Error))
	case v.MadeGB == 0 && time.Since(b.Created) > snapshotTime:
		return m.fail(ctx, b, fmt.Errorf("its host has taken no snapshot within %s", wording.Duration(snapshotTime)))
	case v.MadeGB == 0 || j.ID != "":
		return nil
	case !b.Copying: // the store gets data only after that is recorded
		b.Copying = true
		if b, err = m.put(ctx, b); err != nil {
			return err
		}
	}
	return m.orderCopy(ctx, b, v)
}

// capture orders the temporary snapshot. An earlier attempt, whose process died, left nothing: the record would name
// it.
func (m *Manager) capture(ctx context.Context, b backup.Backup) error {
	st, err := m.Scheduler.View.FindByID(ctx, b.Instance)
	if errors.Is(err, croft.NotFound) || err == nil && st.Instance.Project != b.Project {
		return m.fail(ctx, b, croft.Errorf(croft.Conflict, "the instance was removed"))
	}
	if err != nil {
		return err
	}
	attached, err := m.Snapshots.AttachedTo(ctx, b.Instance)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(attached, former) && time.Since(b.Created) < snapshotTime {
		return nil // the host is still merging what the backup before left
	}
	v, err := m.Snapshots.CaptureFor(ctx, st, snapshotName(b), b.Name)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		if _, there := m.Snapshots.FindSnapshot(ctx, target(b), snapshotName(b)); there == nil {
			return nil // another manager was faster
		}
		if errors.Is(err, croft.NoCapacity) && time.Since(b.Created) < snapshotTime {
			all, failed := m.Snapshots.Snapshots(ctx, "")
			if failed != nil {
				return failed
			}
			other := func(v croft.Volume) bool { return v.Host == st.Instance.Host && temporary(v) }
			if slices.ContainsFunc(all, other) {
				return nil // the host has room once it has copied and merged that
			}
		}
		return m.fail(ctx, b, fmt.Errorf("no snapshot was taken: %w", err))
	}
	b.Snapshot, b.Host = v.ID, v.Host
	_, err = m.put(ctx, b)
	return err
}

// temporary reports whether v is the snapshot of a backup.
func temporary(v croft.Volume) bool { return v.Snapshot != nil && v.Snapshot.Backup != "" }

// former reports whether v is the snapshot of a backup that is made, which its host merges.
func former(v croft.Volume) bool { return temporary(v) && v.Removing }

// orderCopy orders the host to copy the snapshot, which it has taken.
func (m *Manager) orderCopy(ctx context.Context, b backup.Backup, v croft.Volume) error {
	s, err := m.Store.Store(ctx, b.Store)
	if err != nil {
		return m.fail(ctx, b, err)
	}
	attached, err := m.Snapshots.AttachedTo(ctx, b.Instance)
	if err != nil {
		return err
	}
	names := map[croft.VolumeID]croft.Volume{}
	for _, a := range attached {
		names[a.ID] = a
	}
	disks := []backup.Disk{{SizeGB: b.Spec.Resources[croft.DiskGB]}}
	for _, id := range v.Snapshot.Volumes {
		disks = append(disks, backup.Disk{Volume: id, Name: names[id].Name, SizeGB: names[id].SizeGB})
	}
	described := b
	described.Taken, described.Method, described.Note = v.Snapshot.Taken, v.Snapshot.Method, v.Snapshot.Note
	described.Snapshot, described.Job = "", ""
	text, err := json.Marshal(described)
	if err != nil {
		return err
	}
	err = m.order(ctx, s, backup.Job{ID: b.Job, Host: v.Host, Kind: backup.Copy, Backup: b.ID, Instance: b.Instance,
		Snapshot: v.ID, Disks: disks, Describe: text})
	if croft.KindOf(err) == croft.Invalid || croft.KindOf(err) == croft.NotFound {
		return m.fail(ctx, b, err)
	}
	return err
}

// copied records a complete copy.
func (m *Manager) copied(ctx context.Context, b backup.Backup, j backup.Job) error {
	if len(j.Report.Disks) != len(j.Disks) {
		return m.fail(ctx, b, errors.New("its host did not report all disks"))
	}
	var said backup.Backup
	if err := json.Unmarshal(j.Describe, &said); err != nil {
		return m.fail(ctx, b, errors.New("its description is damaged"))
	}
	host, job := b.Host, b.Job
	b.Taken, b.Method, b.Note = said.Taken, said.Method, said.Note
	b.Disks, b.State, b.Job, b.Done = nil, backup.Ready, "", time.Now().UTC()
	for i, d := range j.Report.Disks {
		asked := j.Disks[i] // a host says only what it copied
		asked.Restic, asked.Bytes, asked.SHA256, asked.Added = d.Restic, d.Bytes, d.SHA256, d.Added
		b.Disks = append(b.Disks, asked)
	}
	b, err := m.put(ctx, b)
	if err != nil {
		return err
	}
	m.Log.Info("backup made", "backup", b.ID, "name", b.Name, "project", b.Project, "instance", b.Instance)
	return errors.Join(m.RemoveJob(ctx, host, job), m.tidy(ctx, b))
}

// Check orders a host to read all data of a backup. Conflict: it is not complete.
func (m *Manager) Check(ctx context.Context, project croft.Project, name string) (backup.Backup, error) {
	return repeated(func() (backup.Backup, error) { return m.check(ctx, project, name) })
}

func (m *Manager) check(ctx context.Context, project croft.Project, name string) (backup.Backup, error) {
	b, err := m.Backup(ctx, project, name)
	switch {
	case err != nil || b.State == backup.Checking:
		return b, err
	case len(b.Disks) == 0 || b.State == backup.Removing:
		return b, croft.Errorf(croft.Conflict, "check backup %s: it is %s", name, b.State)
	}
	if b.Host, err = m.able(ctx, b.Host); err != nil {
		return b, fmt.Errorf("check backup %s: %w", name, err)
	}
	b.State, b.Job, b.Error = backup.Checking, newJob(), ""
	if b, err = m.put(ctx, b); err != nil {
		return b, fmt.Errorf("check backup %s: %w", name, err)
	}
	return b, m.advance(ctx, b, backup.Job{})
}

// jobFor writes the job of a backup.
func (m *Manager) jobFor(ctx context.Context, b backup.Backup, kind backup.Kind) error {
	s, err := m.Store.Store(ctx, b.Store)
	if err != nil {
		return err
	}
	return m.order(ctx, s, backup.Job{ID: b.Job, Host: b.Host, Kind: kind, Backup: b.ID, Instance: b.Instance,
		Disks: b.Disks})
}

func (m *Manager) advanceCheck(ctx context.Context, b backup.Backup, j backup.Job) error {
	end := func(state backup.State, why string) error {
		host, job := b.Host, b.Job
		b.State, b.Error, b.Job = state, why, ""
		if state != backup.Ready || why == "" {
			b.Checked = time.Now().UTC()
		}
		if _, err := m.put(ctx, b); err != nil {
			return err
		}
		if why != "" {
			m.Log.Error("a backup was not verified", "backup", b.ID, "name", b.Name, "project", b.Project, "err", why)
		}
		return m.RemoveJob(ctx, host, job)
	}
	switch {
	case j.Report.Done && j.Report.Damaged:
		return end(backup.Damaged, j.Report.Error)
	case j.Report.Done && j.Report.Error != "":
		return end(backup.Ready, "not verified: "+j.Report.Error)
	case j.Report.Done:
		return end(backup.Ready, "")
	}
	why, err := m.lost(ctx, b.Host)
	switch {
	case err != nil:
		return err
	case why != "":
		return end(backup.Ready, "not verified: "+why)
	case j.ID == "":
		return m.jobFor(ctx, b, backup.Verify)
	}
	return nil
}

// Remove orders the removal of a backup from its store. A backup that is being made is given up.
func (m *Manager) Remove(ctx context.Context, project croft.Project, name string) (backup.Backup, error) {
	return repeated(func() (backup.Backup, error) { return m.remove(ctx, project, name) })
}

func (m *Manager) remove(ctx context.Context, project croft.Project, name string) (backup.Backup, error) {
	b, err := m.Backup(ctx, project, name)
	if err != nil || b.State == backup.Removing {
		return b, err
	}
	if b.State == backup.Checking {
		return b, croft.Errorf(croft.Conflict, "remove backup %s: it is being checked: try again later", name)
	}
	if len(b.Restoring) > 0 {
		return b, croft.Errorf(croft.Conflict, "remove backup %s: an instance is being restored from it, %s", name,
			b.Restoring[0])
	}
	if b.State == backup.Creating {
		if err := m.fail(ctx, b, croft.Errorf(croft.Conflict, "it was removed while it was made")); err != nil {
			return b, err
		}
		if b, err = m.Backup(ctx, project, name); err != nil {
			return b, err
		}
	}
	return m.discard(ctx, b)
}

// discard orders the removal of a backup that nothing is done with.
func (m *Manager) discard(ctx context.Context, b backup.Backup) (_ backup.Backup, err error) {
	if b.Nothing {
		b.State, b.Job, b.Error = backup.Removing, "", ""
		if b, err = m.put(ctx, b); err != nil {
			return b, fmt.Errorf("remove backup %s: %w", b.Name, err)
		}
		return b, m.advance(ctx, b, backup.Job{})
	}
	if b.Host, err = m.able(ctx, b.Host); err != nil {
		return b, fmt.Errorf("remove backup %s: %w", b.Name, err)
	}
	b.State, b.Job, b.Error = backup.Removing, newJob(), ""
	if b, err = m.put(ctx, b); err != nil {
		return b, fmt.Errorf("remove backup %s: %w", b.Name, err)
	}
	return b, m.advance(ctx, b, backup.Job{})
}

// retryRemoval is how long a removal that failed waits for its next attempt.
const retryRemoval = time.Minute

func (m *Manager) advanceRemoval(ctx context.Context, b backup.Backup, j backup.Job) error {
	if err := m.tidy(ctx, b); err != nil || b.Snapshot != "" {
		return err
	}
	switch {
	case b.Nothing || j.Report.Done && j.Report.Error == "":
		if err := m.RemoveBackup(ctx, b); err != nil {
			return err
		}
		m.Log.Info("backup removed", "backup", b.ID, "name", b.Name, "project", b.Project)
		return m.RemoveJob(ctx, b.Host, b.Job)
	case j.Report.Done && b.Error == "":
		b.Error = "not removed yet: " + j.Report.Error
		_, err := m.put(ctx, b)
		return err
	}
	why, err := m.lost(ctx, b.Host)
	switch {
	case err != nil:
		return err
	case why != "" || j.Report.Done && time.Since(j.Report.At) > retryRemoval:
		host, job := b.Host, b.Job
		if b.Host, err = m.able(ctx, ""); err != nil {
			return err
		}
		b.Job, b.Error = newJob(), ""
		if b, err = m.put(ctx, b); err != nil {
			return err
		}
		return errors.Join(m.RemoveJob(ctx, host, job), m.jobFor(ctx, b, backup.Discard))
	case j.ID == "":
		return m.jobFor(ctx, b, backup.Discard)
	}
	return nil
}
