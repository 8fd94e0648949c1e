package compute

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"croft"
	"croft/compute/storage"
)

// The file of a volume on shared storage is used by the host that has its lock. A host takes the lock before it makes
// the file or gives it to a domain, and keeps it as long as the volume is attached to an instance here. The lock of a
// volume that is attached to none is released after each use.

// inDirOf runs f, which accesses the file of a volume in its directory. f may go on after inDirOf has returned, so it
// writes to nothing of the caller's.
func inDirOf[T any](ctx context.Context, a *Agent, v croft.Volume, f func(dir string) (T, error)) (none T, _ error) {
	if v.Storage == "" {
		return f(a.volumeDir(v.ID))
	}
	dir, err := a.storageOf(v.Storage)
	if err != nil {
		return none, err
	}
	return storage.Use(ctx, dir, v.ID.Consumer(), func() (T, error) { return f(dir.Volume(v.ID)) })
}

// lockVolume makes this host the one that may use the file of a volume on shared storage, for an instance or, if inst
// is empty, until unlockVolume. Unavailable: another host has it.
func (a *Agent) lockVolume(ctx context.Context, v croft.Volume, inst croft.InstanceID) error {
	if v.Storage == "" {
		return nil
	}
	dir, err := a.storageOf(v.Storage)
	if err == nil {
		a.lockedFor.Store(v.ID, inst)
		err = dir.AcquireVolume(ctx, v.ID, v.TakesFrom...)
	}
	if errors.Is(err, croft.Conflict) {
		err = a.lockFromDead(ctx, v, dir, err)
	}
	if errors.Is(err, croft.Conflict) { // which may release it
		err = croft.Errorf(croft.Unavailable, "%w", err)
	}
	return err
}

// lockFromDead takes the lock of a volume from a host that was declared dead after another host became the keeper, as
// when its instance was removed by force while it was silent. Otherwise it returns held.
func (a *Agent) lockFromDead(ctx context.Context, v croft.Volume, dir *storage.Dir, held error) error {
	holder, err := dir.Holder(ctx, v.ID.Consumer())
	if err != nil || holder == "" || slices.Contains(v.TakesFrom, holder) {
		return cmp.Or(err, held)
	}
	hosts, err := a.Registry.Hosts(ctx, holder)
	if err != nil || !hosts[holder].IsDead() {
		return cmp.Or(err, held)
	}
	return dir.AcquireVolume(ctx, v.ID, holder)
}

// unlockVolume releases the lock of a volume on shared storage that an instance has had, unless another instance or a
// guest here has the volume. The caller has the turn of the volume. If the record is not known, v has only an ID: then
// the volume may be on any storage that this host mounts, or here. It is no error that this host does not have the
// lock.
func (a *Agent) unlockVolume(ctx context.Context, v croft.Volume, of croft.InstanceID) error {
	if len(a.shared) == 0 {
		return nil
	}
	if other, has := a.lockedFor.Load(v.ID); has && other != croft.InstanceID("") && other != of {
		if here, err := a.ordered(ctx, other.(croft.InstanceID)); err != nil || here {
			return err
		}
	}
	if local, err := exists(a.volumeDir(v.ID)); err != nil || local {
		return err
	}
	switch err := a.unused(ctx, v.ID, ""); {
	case errors.Is(err, croft.Conflict):
		return nil
	case err != nil:
		return err
	}
	if err := a.releaseVolume(ctx, v); err != nil {
		return err
	}
	a.lockedFor.Delete(v.ID)
	return nil
}

// releaseVolume releases the lock of a volume, if this host has it.
func (a *Agent) releaseVolume(ctx context.Context, v croft.Volume) error {
	if v.Storage != "" {
		dir, err := a.storageOf(v.Storage)
		if err == nil {
			err = dir.Release(ctx, v.ID.Consumer())
		}
		return err
	}
	for _, s := range a.shared {
		if _, ok := s.mounted(); !ok {
			continue // sweepLocks wakes the volume when it is mounted again
		}
		if err := s.dir.Release(ctx, v.ID.Consumer()); err != nil {
			return err
		}
	}
	return nil
}

// isLocked reports whether this host may have the lock of a volume.
func (a *Agent) isLocked(id croft.VolumeID) bool {
	_, may := a.lockedFor.Load(id)
	return may
}

// inTurn runs f while nothing else opens, makes or removes the file of a volume.
func (a *Agent) inTurn(ctx context.Context, id croft.VolumeID, f func() error) error {
	end, err := a.volumeTurns.Take(ctx, id)
	if err != nil {
		return err
	}
	defer end()
	return f()
}

// sweepLocks wakes the volumes of a storage whose locks this host has, and the instances whose lock it has without a
// disk: passVolume and a pass without an order release the lock that a process left, which ended between two steps.
func (a *Agent) sweepLocks(ctx context.Context, s *shared) error {
	if a.Volumes == nil {
		return nil
	}
	locked, err := s.dir.Locked(ctx)
	for _, id := range locked.Volumes {
		a.lockedFor.LoadOrStore(id, croft.InstanceID(""))
		a.volumeWorkers.Wake(ctx, id)
	}
	for _, id := range locked.Bare {
		a.workers.Wake(ctx, id)
	}
	return err
}

// removeLocks removes the locks that this host has on disks of the pass's instance that it never made, or has removed.
func (p *pass) removeLocks(ctx context.Context) error {
	for _, s := range p.agent.shared {
		if _, ok := s.mounted(); !ok {
			continue // sweepLocks wakes the instance when it is mounted again
		}
		if err := s.dir.RemoveBare(ctx, p.id); err != nil {
			return err
		}
	}
	return nil
}

// usersOf returns the guests that have a volume.
func (a *Agent) usersOf(ctx context.Context, id croft.VolumeID) (users []croft.InstanceID, err error) {
	domains, err := a.Hypervisor.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, d := range domains {
		has, err := a.Hypervisor.Volumes(ctx, d.ID)
		if err != nil && !errors.Is(err, croft.NotFound) {
			return users, err
		}
		if slices.Contains(has, id) {
			users = append(users, d.ID)
		}
	}
	return users, nil
}

// elsewhere returns the volumes of the pass's domain, with their IDs only, whose files are not in the state directory:
// they are on shared storage.
func (p *pass) elsewhere(ctx context.Context) (all []croft.Volume, err error) {
	if len(p.agent.shared) == 0 || p.have.Domain == nil {
		return nil, nil
	}
	has, err := p.agent.Hypervisor.Volumes(ctx, p.id)
	if err != nil && !errors.Is(err, croft.NotFound) {
		return nil, err
	}
	for _, id := range has {
		local, err := exists(p.agent.volumeDir(id))
		if err != nil {
			return nil, err
		}
		if !local {
			all = append(all, croft.Volume{ID: id})
		}
	}
	return all, nil
}

// takenVolume returns a volume of the pass's domain that another host has, or may have any moment, because the instance
// was lost with this one; empty: none.
func (p *pass) takenVolume(ctx context.Context) (croft.VolumeID, croft.HostID, error) {
	all, err := p.elsewhere(ctx)
	for _, v := range all {
		if p.want.Want == croft.WantLeft {
			return v.ID, "", nil
		}
		for _, s := range p.agent.shared {
			if _, ok := s.mounted(); !ok {
				continue // the guest waits for its disk by itself
			}
			var holder croft.HostID
			err := p.agent.inTurn(ctx, v.ID, func() (err error) {
				holder, err = s.dir.Holder(ctx, v.ID.Consumer())
				return err
			})
			if err == nil && holder != "" && holder != p.agent.Host.ID {
				return v.ID, holder, nil
			}
		}
	}
	return "", "", err
}

// lockVolumes makes this host the one that may use the volumes of the instance that are on shared storage.
func (p *pass) lockVolumes(ctx context.Context) error {
	attached, err := p.volumes(ctx)
	for _, v := range attached {
		if err == nil && !v.Detaching {
			if err = p.agent.lockVolume(ctx, v, p.id); err != nil {
				err = croft.Errorf(croft.KindOf(err), "volume %s: %w", v.Name, err)
			}
		}
	}
	return err
}

// unlockVolumes releases the locks of volumes that the instance has had, so that other hosts can have them.
func (p *pass) unlockVolumes(ctx context.Context, all []croft.Volume) error {
	for _, v := range all {
		err := p.agent.inTurn(ctx, v.ID, func() error { return p.agent.unlockVolume(ctx, v, p.id) })
		if err != nil {
			return err
		}
	}
	return nil
}

// hadVolumes returns the volumes that the instance has had here, for unlockVolumes.
func (p *pass) hadVolumes(ctx context.Context) ([]croft.Volume, error) {
	all, err := p.volumes(ctx)
	if p.want.Move != nil {
		all = append(all, p.want.Move.Volumes...)
	}
	for _, v := range p.had {
		if !slices.ContainsFunc(all, func(known croft.Volume) bool { return known.ID == v.ID }) {
			all = append(all, v)
		}
	}
	return all, err
}

// leaveShared releases the volumes of a move that are on shared storage, for the other host. The guest is off.
func (p *pass) leaveShared(ctx context.Context) error {
	for _, v := range p.want.Move.Volumes {
		if v.Storage == "" {
			continue
		}
		if err := p.agent.releaseVolume(ctx, v); err != nil {
			return err
		}
		p.agent.lockedFor.Delete(v.ID)
	}
	return nil
}
