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
	"croft/internal/delay"
	"croft/schedule"
)

// RestoreRequest asks for disks from a backup.
type RestoreRequest struct {
	Project croft.Project
	Backup  string
	As      string       // name of a new instance
	InPlace bool         // in the instance of the backup, which must be stopped
	Host    croft.HostID // of a new instance; empty: any
	// restore only the instance's own disk, though the backup has volumes too
	WithoutVolumes bool
}

// own returns what a request restores of a backup.
func (r RestoreRequest) own(b backup.Backup) schedule.Copy {
	from := schedule.Copy{FromBackup: croft.FromBackup{ID: b.ID, Name: b.Name, OwnDisk: r.WithoutVolumes}}
	if !r.WithoutVolumes {
		from.Volumes = volumesOf(b)
	}
	return from
}

// volumesOf returns the volumes that a backup has.
func volumesOf(b backup.Backup) (all []croft.VolumeID) {
	for _, d := range b.Disks {
		if d.Volume != "" {
			all = append(all, d.Volume)
		}
	}
	return all
}

// Restore restores a backup as a new instance, or in place. It returns once that is ordered. Conflict: the backup is
// not complete, is damaged or is being removed; or the instance is not stopped, has snapshots or other disks.
func (m *Manager) Restore(ctx context.Context, r RestoreRequest) (croft.Instance, error) {
	return repeated(func() (croft.Instance, error) { return m.restore(ctx, r) })
}

func (m *Manager) restore(ctx context.Context, r RestoreRequest) (inst croft.Instance, err error) {
	b, err := m.Backup(ctx, r.Project, r.Backup)
	if err != nil {
		return inst, err
	}
	what := fmt.Sprintf("restore backup %s", b.Name)
	switch {
	case !b.Usable():
		return inst, croft.Errorf(croft.Conflict, "%s: it is %s", what, b.State)
	case r.InPlace == (r.As != ""):
		return inst, croft.Errorf(croft.Invalid, "%s: give either the name of a new instance or in-place", what)
	case len(b.Restoring) >= backup.MaxRestoring:
		return inst, croft.Errorf(croft.Conflict, "%s: %d instances are being restored from it: try again later", what,
			len(b.Restoring))
	}
	if r.InPlace {
		inst, err = m.restoreInPlace(ctx, b, r)
	} else {
		inst, err = m.restoreAs(ctx, b, r)
	}
	if err != nil {
		return inst, fmt.Errorf("%s: %w", what, err)
	}
	m.Log.Info("restore ordered", "backup", b.ID, "instance", inst.ID, "name", inst.Name)
	b, err = repeated(func() (backup.Backup, error) {
		b, err := m.Backup(ctx, b.Project, b.Name)
		if err == nil && !slices.Contains(b.Restoring, inst.ID) { // this process was suspended before the order
			b, err = m.begin(ctx, b, inst.ID, inst.Generation-1)
		}
		return b, err
	})
	if err == nil {
		err = m.restoring(ctx, b, inst.ID, map[string]backup.Job{}, map[string]bool{})
	}
	// It is ordered, so every manager goes on with it: one was faster, or this process may not open the store's access.
	if err != nil && !errors.Is(err, croft.Conflict) {
		m.Log.Warn("a server goes on with a restore", "backup", b.ID, "instance", inst.ID, "reason", err)
	}
	return inst, nil
}

// begin notes in the record of a backup that an instance is restored from it, before that is ordered. It writes also
// where the record names the instance already: that may be about to be forgotten, because an earlier restore has ended.
// The generation is the instance's before the order.
func (m *Manager) begin(ctx context.Context, b backup.Backup, id croft.InstanceID, generation int64) (
	backup.Backup, error) {
	if !slices.Contains(b.Restoring, id) {
		b.Restoring = append(slices.Clone(b.Restoring), id)
	}
	b.Before = maps.Clone(b.Before)
	if b.Before == nil {
		b.Before = map[croft.InstanceID]int64{}
	}
	b.Before[id] = generation
	b.Asked = time.Now().UTC()
	return m.put(ctx, b)
}

// forget removes an instance from the restores of a backup.
func (m *Manager) forget(ctx context.Context, b backup.Backup, id croft.InstanceID) (backup.Backup, error) {
	b.Restoring = slices.DeleteFunc(slices.Clone(b.Restoring),
		func(one croft.InstanceID) bool { return one == id })
	b.Before = maps.Clone(b.Before)
	delete(b.Before, id)
	return m.put(ctx, b)
}

func (m *Manager) restoreAs(ctx context.Context, b backup.Backup, r RestoreRequest) (croft.Instance, error) {
	query, err := schedule.ParseQuery(cmp.Or(b.Spec.Query, b.Spec.Resources.String()))
	if err != nil {
		return croft.Instance{}, fmt.Errorf("read its query: %w", err)
	}
	if r.Host != "" {
		query.Groups = slices.Clone(query.Groups)
		query.Groups[0].InTree = r.Host
	}
	id := croft.NewInstanceID()
	var disks []croft.NewDisk
	if !r.WithoutVolumes {
		if disks, err = m.newDisks(ctx, b, r.As); err != nil {
			return croft.Instance{}, err
		}
	}
	settings := b.Spec.InstanceSettings
	settings.FixedAddress = "" // the original may still have it
	return m.noted(ctx, b, id, 0, func() (croft.Instance, error) {
		d, err := m.Scheduler.Request(ctx, schedule.Request{ID: id, Project: b.Project, Name: r.As, Query: query,
			Image: b.Spec.Image, Named: b.Spec.ImageName, Public: b.Spec.ImagePublic, CD: b.Spec.ISO,
			GuestSettings: b.Spec.GuestSettings, InstanceSettings: settings, Disks: disks,
			Backup: &croft.FromBackup{ID: b.ID, Name: b.Name, Generation: 1, OwnDisk: r.WithoutVolumes}})
		return d.Instance, err
	})
}

// newDisks returns the volumes that a new instance gets from a backup. They have the names of the former ones, by which
// the guest finds them, unless the project has volumes of these names.
func (m *Manager) newDisks(ctx context.Context, b backup.Backup, instance string) (all []croft.NewDisk, err error) {
	for _, d := range b.Disks {
		if d.Volume == "" {
			continue
		}
		name := d.Name
		_, err := m.Snapshots.Find(ctx, b.Project, name)
		switch {
		case err == nil:
			name = instance + "-" + d.Name
		case !errors.Is(err, croft.NotFound):
			return nil, err
		}
		all = append(all, croft.NewDisk{Name: name, SizeGB: d.SizeGB, CopyOf: d.Volume})
	}
	return all, nil
}

// noted orders a restore that the record of the backup names meanwhile. It names it no longer if the order was refused;
// where the result is unknown, a Manager finds out.
func (m *Manager) noted(ctx context.Context, b backup.Backup, id croft.InstanceID, generation int64,
	order func() (croft.Instance, error)) (croft.Instance, error) {
	if _, err := m.begin(ctx, b, id, generation); err != nil {
		return croft.Instance{}, err
	}
	inst, err := order()
	kind := croft.KindOf(err)
	known := kind != "" && kind != croft.Unavailable
	if earlier := slices.Contains(b.Restoring, id); known && !earlier {
		after, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
		defer cancel()
		if undo := m.withdraw(after, b, id); undo != nil {
			m.Log.Warn("a refused restore is forgotten later", "backup", b.ID, "instance", id, "reason", undo)
		}
	}
	return inst, err
}

// undoTimeout limits the time to forget a refused restore.
const undoTimeout = 10 * time.Second

// withdraw removes an instance from those that are restored from a backup.
func (m *Manager) withdraw(ctx context.Context, b backup.Backup, id croft.InstanceID) error {
	_, err := repeated(func() (backup.Backup, error) {
		b, err := m.Backup(ctx, b.Project, b.Name)
		if err != nil || !slices.Contains(b.Restoring, id) {
			return b, err
		}
		return m.forget(ctx, b, id)
	})
	return err
}

// LastBackup implements schedule.Config.LastBackup.
func (m *Manager) LastBackup(ctx context.Context, inst croft.Instance) (schedule.Copy, error) {
	return repeated(func() (schedule.Copy, error) { return m.lastBackup(ctx, inst) })
}

func (m *Manager) lastBackup(ctx context.Context, inst croft.Instance) (from schedule.Copy, err error) {
	last, err := m.newest(ctx, inst)
	if err == nil {
		_, err = m.begin(ctx, last, inst.ID, inst.Generation)
	}
	return RestoreRequest{}.own(last), err
}

// newest returns the last backup of an instance to restore it from. NotFound.
func (m *Manager) newest(ctx context.Context, inst croft.Instance) (last backup.Backup, err error) {
	all, err := m.Backups(ctx, inst.Project)
	if err != nil {
		return last, err
	}
	slices.SortFunc(all, backup.Newest)
	at := slices.IndexFunc(all, func(b backup.Backup) bool { return b.Instance == inst.ID && b.Usable() })
	if at < 0 {
		return last, croft.Errorf(croft.NotFound, "instance %s has no backup", inst.Name)
	}
	return all[at], nil
}

// LastOf returns the names of the last backups to restore instances from, by their UUIDs; an instance without one is
// left out. It reads the backups once.
func (m *Manager) LastOf(ctx context.Context, all []croft.Instance) (map[croft.InstanceID]string, error) {
	last := map[croft.InstanceID]string{}
	if len(all) == 0 {
		return last, nil
	}
	kept, err := m.Backups(ctx, "")
	slices.SortFunc(kept, backup.Newest)
	for _, b := range slices.Backward(kept) {
		if b.Usable() && slices.ContainsFunc(all, func(i croft.Instance) bool {
			return i.ID == b.Instance && i.Project == b.Project
		}) {
			last[b.Instance] = b.Name
		}
	}
	return last, err
}

// Newest returns the name of the last backup of an instance to restore it from; empty: there are none.
func (m *Manager) Newest(ctx context.Context, inst croft.Instance) (string, error) {
	last, err := m.newest(ctx, inst)
	if errors.Is(err, croft.NotFound) {
		return "", nil
	}
	return last.Name, err
}

func (m *Manager) restoreInPlace(ctx context.Context, b backup.Backup, r RestoreRequest) (croft.Instance, error) {
	st, err := m.Scheduler.View.FindByID(ctx, b.Instance)
	if errors.Is(err, croft.NotFound) || err == nil && st.Instance.Project != b.Project {
		return st.Instance, croft.Errorf(croft.NotFound, "its instance %s was removed: restore it as a new one, with "+
			"--as NAME", b.Of)
	}
	if err != nil {
		return st.Instance, err
	}
	if st.Instance.Storage != "" {
		return st.Instance, croft.Errorf(croft.Conflict, "the disk of instance %s is on shared storage, where disks "+
			"are not restored in place: restore it as a new instance", st.Instance.Name)
	}
	inst := st.Instance
	disks := m.withoutCapture
	if inst.State == croft.StateLost || st.Unbuilt() { // it has no disks that a host works on
		disks = func(ctx context.Context, inst croft.Instance) ([]croft.Volume, error) {
			return m.Snapshots.AttachedTo(ctx, inst.ID)
		}
	} else if err := cannot(st); err != nil {
		return inst, err
	}
	attached, err := disks(ctx, inst)
	if err == nil {
		err = fits(b, r, inst, attached)
	}
	if err != nil {
		return inst, err
	}
	return m.noted(ctx, b, inst.ID, inst.Generation, func() (croft.Instance, error) {
		if inst.State == croft.StateLost {
			return m.Scheduler.RecreateFrom(ctx, inst, r.own(b))
		}
		return m.Scheduler.Restore(ctx, inst, r.own(b).FromBackup)
	})
}

// fits returns a Conflict unless the disks of a backup can replace the ones of an instance.
func fits(b backup.Backup, r RestoreRequest, inst croft.Instance, attached []croft.Volume) error {
	has := map[croft.VolumeID]int64{"": inst.Spec.Resources[croft.DiskGB]}
	for _, v := range attached {
		if v.Snapshot != nil {
			return croft.Errorf(croft.Conflict, "instance %s has snapshot %s, which would be lost: remove it "+
				"first",
				inst.Name, v.Name)
		}
		if v.Storage != "" && inst.State != croft.StateLost {
			return croft.Errorf(croft.Conflict, "volume %s of instance %s is on shared storage, where disks are "+
				"not restored in place: detach it first, or restore the backup as a new instance", v.Name, inst.Name)
		}
		has[v.ID] = v.SizeGB
	}
	for _, d := range b.Disks {
		switch size, there := has[d.Volume]; {
		case d.Volume != "" && r.WithoutVolumes:
		case !there:
			return croft.Errorf(croft.Conflict, "volume %s is not attached to instance %s any more: add "+
				"--without-volumes to restore the instance's own disk only, or restore all as a new instance, with "+
				"--as NAME", d.Name, inst.Name)
		case size < d.SizeGB:
			return croft.Errorf(croft.Conflict, "a disk of the backup has %d GiB, and that of the instance "+
				"has %d",
				d.SizeGB, size)
		}
	}
	return nil
}

// captureTime is how long a restore waits for a host that removes the temporary snapshot of a backup.
const captureTime = 15 * time.Second

// withoutCapture returns the volumes and snapshots of an instance once it has no temporary snapshot of a backup any
// more. Conflict: a backup is being made, or its host is still removing the snapshot.
func (m *Manager) withoutCapture(ctx context.Context, inst croft.Instance) ([]croft.Volume, error) {
	if err := m.inProgress(ctx, inst); err != nil {
		return nil, err
	}
	for end := time.Now().Add(captureTime); ; {
		attached, err := m.Snapshots.AttachedTo(ctx, inst.ID)
		at := slices.IndexFunc(attached, temporary)
		if err != nil || at < 0 {
			return attached, err
		}
		if time.Now().After(end) {
			return nil, croft.Errorf(croft.Conflict, "the host of instance %s is still removing the temporary "+
				"snapshot of backup %s: try again later", inst.Name, attached[at].Snapshot.Backup)
		}
		if err := delay.For(ctx, captureLook); err != nil {
			return nil, err
		}
	}
}

// captureLook is the pause between two looks for a temporary snapshot.
const captureLook = 200 * time.Millisecond

// forgetAfter is how long the record of a backup names an instance for which no order to restore it is found.
const forgetAfter = 2 * time.Minute

// mayFollow reports whether the order of the latest restore from a backup may still come.
func (m *Manager) mayFollow(b backup.Backup) bool {
	return time.Since(b.Asked) < cmp.Or(m.ForgetAfter, forgetAfter)
}

// restores carries on all restores.
func (m *Manager) restores(ctx context.Context, jobs map[string]backup.Job, wanted map[string]bool) (err error) {
	all, err := m.Backups(ctx, "")
	if err != nil {
		return err
	}
	for _, b := range all {
		for _, id := range b.Restoring {
			if failed := m.restoring(ctx, b, id, jobs, wanted); failed != nil {
				if !errors.Is(failed, croft.Conflict) {
					err = errors.Join(err, failed)
				}
				break // the record has changed
			}
		}
	}
	return err
}

// restoring carries on the restore of an instance from a backup: it gives the host the access to the store, and records
// the end.
func (m *Manager) restoring(ctx context.Context, b backup.Backup, id croft.InstanceID, jobs map[string]backup.Job,
	wanted map[string]bool) error {
	st, err := m.Scheduler.View.FindByID(ctx, id)
	if err != nil && !errors.Is(err, croft.NotFound) {
		return err
	}
	inst := st.Instance
	end := func() error {
		if from := inst.Backup; from != nil && from.Generation <= b.Before[id] && m.mayFollow(b) {
			return nil // an order is about to follow that needs the note
		}
		if _, err := m.forget(ctx, b, id); err != nil {
			return err
		}
		var err error
		for _, j := range jobs { // also of earlier orders
			if j.Kind == backup.Restore && j.Instance == id && j.Backup == b.ID {
				err = errors.Join(err, m.RemoveJob(ctx, j.Host, j.ID))
			}
		}
		return err
	}
	if err != nil || inst.Backup == nil || inst.Backup.ID != b.ID || inst.Backup.Generation == 0 ||
		inst.Rebuilt >= inst.Backup.Generation || inst.Project != b.Project {
		if m.mayFollow(b) {
			return nil // the order may follow
		}
		return end()
	}
	if inst.State != croft.StateScheduled {
		return nil // a lost one waits for another host
	}
	name := backup.RestoreJob(id, inst.Generation)
	j := jobs[name]
	wanted[name] = true
	switch {
	case j.ID != "" && j.Host != inst.Host:
		return m.RemoveJob(ctx, j.Host, j.ID)
	case !st.Restoring() && !j.Report.Done: // a later order came before this look, and needs no job
		return end()
	case j.Report.Done && j.Report.Error == "":
		return end()
	case j.Report.Done:
		if j.Report.Damaged && b.State == backup.Ready {
			b.State, b.Error = backup.Damaged, j.Report.Error
			if b, err = m.put(ctx, b); err != nil {
				return err
			}
		}
		if !inst.Backup.InPlace {
			return nil // the instance shows why it failed, and an order to start it tries again
		}
		m.Log.Error("an instance was not restored, and keeps its disks", "instance", id, "backup", b.ID, "err",
			j.Report.Error)
		if err := m.Scheduler.EndRestore(ctx, inst, *inst.Backup, j.Report.Error); err != nil {
			return err
		}
		return end()
	case j.ID == "":
		s, err := m.Store.Store(ctx, b.Store)
		if err != nil {
			return err
		}
		disks := slices.DeleteFunc(slices.Clone(b.Disks), func(d backup.Disk) bool {
			return d.Volume != "" && inst.Backup.OwnDisk
		})
		return m.order(ctx, s, backup.Job{ID: name, Host: inst.Host, Kind: backup.Restore, Backup: b.ID, Instance: id,
			Disks: disks})
	}
	return nil
}
