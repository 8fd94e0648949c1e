package volumes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"croft"
	"croft/schedule"
)

// disksOf returns the snapshots of an instance, the oldest first, and the volumes that are attached to it.
func (m *Manager) disksOf(ctx context.Context, id croft.InstanceID) (snapshots, volumes []croft.Volume, err error) {
	all, err := m.AttachedTo(ctx, id)
	for _, v := range all {
		if v.Snapshot == nil {
			volumes = append(volumes, v)
		} else {
			snapshots = append(snapshots, v)
		}
	}
	slices.SortFunc(snapshots, func(a, b croft.Volume) int { return int(a.CreateRevision - b.CreateRevision) })
	return snapshots, volumes, err
}

// uncaptured returns a Conflict if a snapshot of its instance has a volume, which then keeps its size and its place.
func (m *Manager) uncaptured(ctx context.Context, v croft.Volume) error {
	if v.Instance == "" {
		return nil
	}
	snapshots, _, err := m.disksOf(ctx, v.Instance)
	for _, s := range snapshots {
		if slices.Contains(s.Snapshot.Volumes, v.ID) {
			return croft.Errorf(croft.Conflict, "snapshot %s of instance %s has it: remove the snapshot first", s.Name,
				m.nameOf(ctx, v.Instance))
		}
	}
	return err
}

// notLost returns a Conflict if a snapshot that was lost with its instance has a volume. Its host keeps the layers of
// the snapshot until that is removed.
func (m *Manager) notLost(ctx context.Context, v croft.Volume) error {
	all, err := m.Snapshots(ctx, v.Project)
	for _, s := range all {
		if s.Snapshot.Lost && slices.Contains(s.Snapshot.Volumes, v.ID) {
			return croft.Errorf(croft.Conflict, "snapshot %s of instance %s, lost with its host, has it: remove the "+
				"snapshot first", s.Name, m.nameOf(ctx, s.Snapshot.Instance))
		}
	}
	return err
}

// WithoutSnapshots returns a Conflict if an instance has snapshots, whose data would be lost with its disks.
func (m *Manager) WithoutSnapshots(ctx context.Context, inst croft.Instance, remedy string) error {
	snapshots, _, err := m.disksOf(ctx, inst.ID)
	if err != nil {
		return err
	}
	var names []string
	for _, s := range snapshots {
		names = append(names, s.Name)
	}
	return schedule.CheckSnapshotless(inst.Name, names, remedy)
}

// CreateSnapshot takes a snapshot of all disks of an instance. It returns once that is ordered; the host takes it at
// once. Without a name it gets one with the time. Conflict: the name is taken, or the instance or its disks are being
// changed. NoCapacity: its host has no room for what may be written from now on. OverQuota. Unavailable: its host is
// silent.
func (m *Manager) CreateSnapshot(ctx context.Context, st croft.Status, name string) (croft.Volume, error) {
	return m.snapshot(ctx, st, name, "")
}

// CaptureFor takes a snapshot like CreateSnapshot for a backup, which only EndCapture removes. One instance has one
// such
// snapshot at a time.
func (m *Manager) CaptureFor(ctx context.Context, st croft.Status, name, backup string) (croft.Volume, error) {
	return m.snapshot(ctx, st, name, backup)
}

// EndCapture orders the removal of a snapshot that CaptureFor took, and ends the request for one that is not claimed:
// its process may live on, and not know that the record was written. A missing one is no error.
func (m *Manager) EndCapture(ctx context.Context, inst croft.Instance, name string) error {
	v, err := m.FindSnapshot(ctx, inst, name)
	if errors.Is(err, croft.NotFound) || err == nil && v.Removing {
		return nil
	}
	if err == nil && v.Snapshot.Backup == "" {
		return nil // a user took it
	}
	if err == nil && v.Snapshot.Lost {
		return m.giveUpLost(ctx, v)
	}
	if err == nil && v.ClaimedGB == 0 {
		if v, err = m.undo(ctx, v); err == nil && v.ClaimedGB == 0 {
			return nil // otherwise it was settled meanwhile
		}
	}
	if err == nil {
		_, err = m.changeSnapshot(ctx, "remove", inst, name, func(v croft.Volume) (croft.Volume, error) {
			return m.condemn(ctx, v)
		})
	}
	return err
}

func (m *Manager) snapshot(ctx context.Context, st croft.Status, name, backup string) (v croft.Volume, err error) {
	inst, now := st.Instance, time.Now().UTC()
	if name == "" {
		name = "snapshot-" + now.Format("20060102-150405")
	}
	what := fmt.Sprintf("take snapshot %s of instance %s", name, inst.Name)
	if err := schedule.CheckName(name); err != nil {
		return v, err
	}
	snapshots, disks, err := m.disksOf(ctx, inst.ID)
	if err == nil {
		err = m.capturable(ctx, st, snapshots, disks, backup)
	}
	if err != nil {
		return v, fmt.Errorf("%s: %w", what, err)
	}
	v = croft.Volume{ID: croft.NewVolumeID(), Project: inst.Project, Name: name, Host: inst.Host, Instance: inst.ID,
		SizeGB: inst.Spec.Resources[croft.DiskGB], Created: now, Snapshot: &croft.Snapshot{Instance: inst.ID,
			Backup: backup}}
	for _, disk := range disks {
		v.SizeGB += disk.SizeGB
		v.Snapshot.Volumes = append(v.Snapshot.Volumes, disk.ID)
	}
	if v, err = m.Store.CreateSnapshot(ctx, v, inst, disks); err != nil {
		return v, fmt.Errorf("%s: %w", what, err)
	}
	size := v.SizeGB
	v, err = m.claim(ctx, v)
	if errors.Is(err, croft.NoCapacity) {
		err = croft.Errorf(croft.NoCapacity, "a snapshot claims the size of the disks for what is written after it, and "+
			"its host has no DISK_GB:%d left%s", size, m.only(ctx, inst.Host, nil))
	}
	if err != nil {
		return v, fmt.Errorf("%s: %w", what, err)
	}
	m.Log.Info("snapshot ordered", "snapshot", v.ID, "instance", inst.ID, "name", name, "host", v.Host)
	return v, nil
}

// capturable returns why no snapshot of an instance can be taken now.
func (m *Manager) capturable(ctx context.Context, st croft.Status, snapshots, disks []croft.Volume,
	backup string) error {
	inst := st.Instance
	switch {
	case inst.Storage != "":
		return croft.Errorf(croft.Conflict, "its disk is on shared storage, where croft takes no snapshots yet: take one of the "+
			"storage, or back the data up in the guest")
	case inst.State != croft.StateScheduled:
		return schedule.Unorderable(inst)
	case inst.Moving != "":
		return croft.Errorf(croft.Conflict, "it is being moved to another host: try again afterwards")
	case st.Observation == nil:
		return croft.Errorf(croft.Conflict, "its host has not made it yet: wait until it runs")
	case st.Observation.State == croft.StateFailed:
		return croft.Errorf(croft.Conflict, "it failed, so its disks may be incomplete: `schedule show %s` has the reason",
			inst.Name)
	case !slices.Contains([]croft.State{croft.StateBooting, croft.StateRunning, croft.StateStopped},
		st.Observation.State):
		return croft.Errorf(croft.Conflict, "it is %s: wait until its guest is on or off", st.Observation.State)
	case len(snapshots) >= croft.MaxSnapshots:
		return croft.Errorf(croft.Conflict, "it has %d snapshots, and may not have more: remove one first",
			len(snapshots))
	}
	for _, s := range snapshots {
		if s.Snapshot.Backup != "" && backup != "" {
			return croft.Errorf(croft.Conflict, "its backup %s is being made: wait until that is done",
				s.Snapshot.Backup)
		}
		if state := s.State(); state != croft.SnapshotReady {
			return croft.Errorf(croft.Conflict, "its snapshot %s is %s: wait, or remove that first", s.Name, state)
		}
	}
	for _, disk := range disks {
		if disk.Storage != "" {
			return croft.Errorf(croft.Conflict, "its volume %s is on shared storage, where croft takes no snapshots yet: "+
				"detach the volume first, or back the data up in the guest", disk.Name)
		}
		if disk.Detaching || disk.ClaimedGB < disk.SizeGB || disk.MadeGB < disk.ClaimedGB {
			return croft.Errorf(croft.Conflict, "volume %s is being changed: try again", disk.Name)
		}
	}
	return m.reachable(ctx, croft.Volume{Host: inst.Host})
}

// changeSnapshot finds a snapshot of an instance and changes it, again after a concurrent change.
func (m *Manager) changeSnapshot(ctx context.Context, verb string, inst croft.Instance, name string,
	do func(croft.Volume) (croft.Volume, error)) (croft.Volume, error) {
	return changeFound(fmt.Sprintf("%s snapshot %s of instance %s", verb, name, inst.Name),
		func() (croft.Volume, error) { return m.FindSnapshot(ctx, inst, name) }, do)
}

// RollBack orders that the disks of an instance become those of its newest snapshot: everything that was written since
// is discarded. Conflict: the instance runs, unless stop is true, which stops it first; or it is protected; or there is
// a newer snapshot.
func (m *Manager) RollBack(ctx context.Context, st croft.Status, name string, stop bool) (croft.Volume, error) {
	inst := st.Instance
	return m.changeSnapshot(ctx, "roll back to", inst, name, func(v croft.Volume) (croft.Volume, error) {
		snapshots, _, err := m.disksOf(ctx, inst.ID)
		if err != nil {
			return v, err
		}
		if inst.State != croft.StateScheduled {
			return v, schedule.Unorderable(inst)
		}
		if err := schedule.CheckUnprotected(inst); err != nil {
			return v, err
		}
		how := croft.RollbackOff
		if stop {
			how = croft.RollbackStop
		}
		newer := slices.IndexFunc(snapshots, func(s croft.Volume) bool { return s.CreateRevision > v.CreateRevision })
		switch {
		case v.Snapshot.Backup != "":
			return v, errBackup(v)
		case v.Snapshot.Rollback != "":
			return v, nil
		case v.State() != croft.SnapshotReady:
			return v, croft.Errorf(croft.Conflict, "it is %s", v.State())
		case newer >= 0:
			return v, croft.Errorf(croft.Conflict, "snapshot %s is newer: remove it first", snapshots[newer].Name)
		case !stop && !isOff(st):
			return v, croft.Errorf(croft.Conflict, "the instance runs: stop it first, or add --stop")
		}
		if err := m.reachable(ctx, v); err != nil {
			return v, err
		}
		return m.Store.RollBack(ctx, v, how)
	})
}

// errBackup refuses to change a snapshot that a backup is made from.
func errBackup(v croft.Volume) error {
	return croft.Errorf(croft.Conflict, "backup %s is being made from it: it is removed when that is done",
		v.Snapshot.Backup)
}

// isOff reports whether an instance is off, as ordered.
func isOff(st croft.Status) bool {
	return st.Order != nil && st.Order.Want == croft.WantStopped && st.Observation != nil &&
		st.Observation.State == croft.StateStopped && st.Observation.Generation == st.Order.Generation
}

// giveUpLost removes a lost snapshot. Its host, should it return, removes what it still has of it.
func (m *Manager) giveUpLost(ctx context.Context, v croft.Volume) error {
	err := m.Claims.Release(ctx, v.ID.Consumer(), croft.On())
	if err == nil {
		err = m.GiveUpLost(ctx, v)
	}
	if err != nil {
		return fmt.Errorf("remove snapshot %s: %w", v.Name, err)
	}
	m.Log.Info("lost snapshot given up", "snapshot", v.ID, "instance", v.Snapshot.Instance, "host", v.Host)
	return nil
}

// RemoveSnapshot orders the removal of a snapshot. The disks keep their data. A lost snapshot, and one whose request
// has not ended, is removed at once.
func (m *Manager) RemoveSnapshot(ctx context.Context, inst croft.Instance, name string) (croft.Volume, error) {
	find := func() (croft.Volume, error) { return m.FindSnapshot(ctx, inst, name) }
	if v, ended, err := m.endBegun(ctx, find); ended {
		return v, err
	}
	return m.changeSnapshot(ctx, "remove", inst, name, func(v croft.Volume) (croft.Volume, error) {
		if v.Snapshot.Backup != "" {
			return v, errBackup(v)
		}
		if v.Snapshot.Rollback != "" {
			return v, croft.Errorf(croft.Conflict, "the instance is being rolled back to it")
		}
		return m.condemn(ctx, v)
	})
}
