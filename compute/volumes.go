package compute

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"croft"
	"croft/internal/durable"
)

// Each volume has a directory below volumesDir with its disk and a file that says whose it is. The directory outlives
// instances: only a record that orders the removal of the volume removes it.
const (
	volumesDir  = "volumes"
	volumeOwner = "owner.json"
)

// owner is the mark of a volume's directory.
type owner struct {
	Partition croft.PartitionID `json:"partition"`
	Volume    croft.VolumeID    `json:"volume"`
	Project   croft.Project     `json:"project"`
	Name      string            `json:"name"`
}

func (a *Agent) volumeDir(id croft.VolumeID) string {
	return filepath.Join(a.Dir, volumesDir, string(id))
}

// volumeFile returns the file that was made for a volume. Snapshots put overlays on it.
func (a *Agent) volumeFile(id croft.VolumeID) string { return filepath.Join(a.volumeDir(id), diskFile) }

// disk returns a volume, with its file in a directory, as part of a machine.
func (a *Agent) disk(v croft.Volume, dir string) (Volume, error) {
	layers, err := a.topmost(dir)
	if err != nil {
		return Volume{}, err
	}
	return Volume{ID: v.ID, Path: layers[0].Path, Below: layers[1:], Serial: v.Serial()}, nil
}

// passVolume makes the file of a volume what its record orders. A volume that is attached is the matter of its
// instance's pass, so that nothing else opens its file meanwhile. The workers run at most one per volume at a time.
func (a *Agent) passVolume(ctx context.Context, id croft.VolumeID) {
	if !a.locked.Load() {
		return
	}
	end, err := a.volumeTurns.Take(ctx, id)
	if err != nil {
		return
	}
	defer end()
	v, err := a.Volumes.Volume(ctx, a.Host.ID, id)
	switch {
	case errors.Is(err, croft.NotFound): // another host keeps it, or it is gone
		a.knownVolumes.Delete(id)
		if !a.isLocked(id) {
			return
		}
		if err := a.unlockVolume(ctx, croft.Volume{ID: id}, ""); err != nil {
			a.awaitedVolumes.Store(id, true)
			a.logUnless(ctx, err, "release the lock of a volume")
		}
		return
	case err == nil && v.Instance != "":
		var here bool
		switch here, err = a.ordered(ctx, v.Instance); {
		case err != nil || here:
		case v.Detaching:
			err = a.release(ctx, v)
		case v.Snapshot != nil && v.Removing:
			err = a.removeVolume(ctx, v)
		}
		a.reporters.Put(v.Instance) // this context ends with the pass
	case err == nil && v.Removing:
		err = a.removeVolume(ctx, v)
	case err == nil && v.Snapshot == nil && v.ClaimedGB > v.MadeGB:
		err = a.makeVolume(ctx, v)
	}
	if v.ID != "" && v.Instance == "" && a.isLocked(id) {
		err = errors.Join(err, a.unlockVolume(ctx, v, ""))
	}
	a.volumeFailed(ctx, v, err)
}

// ordered reports whether the host has an order about an instance.
func (a *Agent) ordered(ctx context.Context, id croft.InstanceID) (bool, error) {
	_, err := a.Orders.Order(ctx, a.Host.ID, id)
	if errors.Is(err, croft.NotFound) {
		return false, nil
	}
	return err == nil, err
}

// release ends the attachment of a volume to an instance that is not on the host any more.
func (a *Agent) release(ctx context.Context, v croft.Volume) error {
	if err := a.unused(ctx, v.ID, ""); err != nil {
		return err
	}
	if v.Storage != "" {
		if err := a.unlockVolume(ctx, v, v.Instance); err != nil {
			return err
		}
	}
	return a.Volumes.DetachedVolume(ctx, a.Host.ID, v.ID, v.Instance)
}

// volumeFailed records why the orders about a volume are not carried out, and logs it. They are soon tried again.
func (a *Agent) volumeFailed(ctx context.Context, v croft.Volume, err error) {
	if err == nil || ctx.Err() != nil {
		return
	}
	a.Log.Warn("the orders about a volume are not carried out; they are tried again", "volume", v.ID, "host", a.Host.ID,
		"err", err)
	if v.ID == "" {
		return // it could not be read; the next resync tries again
	}
	a.awaitedVolumes.Store(v.ID, true)
	if err := a.Volumes.FailedVolume(ctx, a.Host.ID, v.ID, err.Error()); !errors.Is(err, croft.NotFound) && err != nil {
		a.logUnless(ctx, err, "note why a volume failed")
	}
}

// makeVolume makes the file of a volume that is not attached, or makes it larger.
func (a *Agent) makeVolume(ctx context.Context, v croft.Volume) error {
	if err := a.lockVolume(ctx, v, v.Instance); err != nil {
		return err
	}
	if err := a.makeMark(ctx, v); err != nil {
		return err
	}
	if err := a.unused(ctx, v.ID, v.Instance); err != nil {
		return err
	}
	_, err := inDirOf(ctx, a, v, func(dir string) (none struct{}, _ error) {
		if v.MadeGB > 0 {
			if layers, err := a.topmost(dir); err != nil || len(layers) > 1 {
				return none, cmp.Or(err, croft.Errorf(croft.Conflict, "a snapshot of it is not removed yet"))
			}
		}
		file := filepath.Join(dir, diskFile)
		if v.CopyOf != "" && v.MadeGB == 0 {
			// Only its instance's pass writes the data. An empty volume would look as if it had them.
			if there, err := exists(file); err != nil || !there {
				return none, cmp.Or(err, croft.Errorf(croft.Conflict,
					"its instance ended before the data of the backup had arrived: remove it, and restore the backup again"))
			}
		}
		a.Log.Info("making a volume", "volume", v.ID, "host", a.Host.ID, "size_gb", v.ClaimedGB)
		return none, a.Images.Volume(ctx, file, v.ClaimedGB)
	})
	if err != nil {
		return err
	}
	return a.Volumes.MadeVolume(ctx, a.Host.ID, v.ID, v.ClaimedGB)
}

// makeMark makes the directory of a volume or a snapshot, with its mark.
func (a *Agent) makeMark(ctx context.Context, v croft.Volume) error {
	if v.Storage != "" && v.MadeGB == 0 {
		shared, err := a.storageOf(v.Storage)
		if err == nil {
			err = shared.PrepareVolume(ctx, v.ID)
		}
		if err != nil {
			return err
		}
	}
	_, err := inDirOf(ctx, a, v, func(dir string) (none struct{}, _ error) {
		mark, err := a.markIn(dir, v.ID)
		switch {
		case err != nil || mark != nil:
			return none, err
		case v.MadeGB > 0:
			return none, croft.Errorf(croft.Unavailable, "its file is missing on %s: it was removed past croft",
				place(v))
		}
		text, _ := json.Marshal(owner{a.Partition, v.ID, v.Project, v.Name}) // plain strings: cannot fail
		if err := os.MkdirAll(dir, dirMode); err != nil {
			return none, fmt.Errorf("make the directory of the volume: %w", err)
		}
		if err := durable.Write(filepath.Join(dir, volumeOwner), text, 0o600); err != nil {
			return none, fmt.Errorf("mark the volume: %w", err)
		}
		return none, nil
	})
	return err
}

// place says in messages where a volume is.
func place(v croft.Volume) string {
	if v.Storage != "" {
		return "its shared storage"
	}
	return "the host"
}

// markOf returns the mark of a volume's directory on this host, like markIn.
func (a *Agent) markOf(id croft.VolumeID) (*owner, error) { return a.markIn(a.volumeDir(id), id) }

// markIn returns the mark of a volume's directory; nil: it has no mark. Conflict: the directory belongs to another
// installation.
func (a *Agent) markIn(dir string, id croft.VolumeID) (*owner, error) {
	text, err := os.ReadFile(filepath.Join(dir, volumeOwner))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var mark owner
	if err == nil {
		err = json.Unmarshal(text, &mark)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the mark of the volume: %w", err)
	case mark.Partition != a.Partition || mark.Volume != id:
		return nil, croft.Errorf(croft.Conflict, "the directory of the volume belongs to another installation, %s",
			mark.Partition)
	}
	return &mark, nil
}

// unused returns a Conflict if a domain other than the instance's has the volume, as after a forced removal of an
// instance whose guest still runs.
func (a *Agent) unused(ctx context.Context, id croft.VolumeID, but croft.InstanceID) error {
	domains, err := a.Hypervisor.List(ctx)
	if err != nil {
		return err
	}
	for _, d := range domains {
		if d.ID == but {
			continue
		}
		has, err := a.Hypervisor.Volumes(ctx, d.ID)
		if err != nil && !errors.Is(err, croft.NotFound) {
			return err
		}
		if !slices.Contains(has, id) {
			continue
		}
		if freed, err := a.freeLeftover(ctx, d, id); err != nil {
			return err
		} else if !freed {
			return croft.Errorf(croft.Conflict, "a guest on the host still has the volume, that of instance %s", d.ID)
		}
	}
	return nil
}

// freeLeftover takes a volume away from the guest of a lost instance that is kept here, if that is off. The volume has
// been detached from the instance, which is elsewhere or nowhere.
func (a *Agent) freeLeftover(ctx context.Context, d Domain, id croft.VolumeID) (bool, error) {
	o, err := a.Orders.Order(ctx, a.Host.ID, d.ID)
	if errors.Is(err, croft.NotFound) || err == nil && (o.Want != croft.WantLeft || d.Power != PowerOff) {
		return false, nil
	}
	if err == nil {
		a.Log.Info("taking a volume away from the guest of a lost instance", "volume", id, "instance", d.ID, "host",
			a.Host.ID)
		err = a.Hypervisor.Detach(ctx, d.ID, id)
	}
	return err == nil, err
}

// removeVolume removes the file, the claim and the record of a volume, in this order: a retry finds each by the next.
func (a *Agent) removeVolume(ctx context.Context, v croft.Volume) error {
	if err := a.lockVolume(ctx, v, ""); err != nil {
		return err
	}
	if _, err := inDirOf(ctx, a, v, func(dir string) (*owner, error) { return a.markIn(dir, v.ID) }); err != nil {
		return err
	}
	if err := a.unused(ctx, v.ID, ""); err != nil {
		return err
	}
	if v.Snapshot != nil {
		if err := a.dissolve(ctx, v); err != nil {
			return err
		}
	}
	a.Log.Info("removing a "+v.Noun(), v.Noun(), v.ID, "host", a.Host.ID)
	if err := a.removeFiles(ctx, v); err != nil {
		return err
	}
	if err := a.Inventory.Release(ctx, v.ID.Consumer(), func(ctx context.Context) ([]croft.HostID, error) {
		now, err := a.Volumes.Volume(ctx, a.Host.ID, v.ID)
		if err == nil && !now.Removing {
			err = croft.Errorf(croft.Conflict, "the volume is not to be removed")
		}
		return []croft.HostID{v.Provider()}, err
	}); err != nil && !errors.Is(err, croft.NotFound) {
		return err
	}
	return a.Volumes.ForgetVolume(ctx, a.Host.ID, v.ID)
}

// removeFiles removes the directory of a volume or a snapshot.
func (a *Agent) removeFiles(ctx context.Context, v croft.Volume) error {
	if v.Storage != "" {
		dir, err := a.storageOf(v.Storage)
		if err == nil {
			err = dir.RemoveVolume(ctx, v.ID)
		}
		return err
	}
	// The mark goes last, so that files left by a crash are known to be the volume's.
	for _, path := range []string{a.volumeFile(v.ID), a.volumeDir(v.ID)} {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove the file of the volume: %w", err)
		}
	}
	return nil
}

// ownVolumes returns the volumes whose directories are on the host.
func (a *Agent) ownVolumes() (all []croft.VolumeID, err error) {
	entries, err := os.ReadDir(filepath.Join(a.Dir, volumesDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		id, err := croft.ParseVolumeID(e.Name())
		if err != nil || !e.IsDir() {
			continue
		}
		if mark, err := a.markOf(id); err == nil && mark != nil {
			all = append(all, id)
		}
	}
	return all, nil
}

// watchVolumes wakes the volumes of the host as they change, until ctx ends.
func (a *Agent) watchVolumes(ctx context.Context) {
	if a.Volumes != nil {
		_ = a.Volumes.WatchVolumes(ctx, a.Host.ID, func(id croft.VolumeID) {
			a.knownVolumes.Store(id, true)
			a.volumeWorkers.Wake(ctx, id)
		})
	}
}

// wakeVolumes wakes all volumes of the host that are known.
func (a *Agent) wakeVolumes(ctx context.Context) {
	a.knownVolumes.Range(func(id, _ any) bool {
		a.volumeWorkers.Wake(ctx, id.(croft.VolumeID))
		return true
	})
}

// lookAgainAtVolumes wakes the volumes whose orders were not carried out.
func (a *Agent) lookAgainAtVolumes(ctx context.Context) {
	a.awaitedVolumes.Range(func(id, _ any) bool {
		a.awaitedVolumes.Delete(id)
		a.volumeWorkers.Wake(ctx, id.(croft.VolumeID))
		return true
	})
}

// volumes returns the volumes that are attached to the pass's instance, as read from the store.
func (p *pass) volumes(ctx context.Context) ([]croft.Volume, error) {
	all, err := p.attached(ctx)
	return slices.DeleteFunc(all, func(v croft.Volume) bool { return v.Snapshot != nil }), err
}

// attached returns the volumes and the snapshots of the pass's instance.
func (p *pass) attached(ctx context.Context) (all []croft.Volume, err error) {
	if p.agent.Volumes == nil || p.want == nil {
		return nil, nil
	}
	for _, id := range p.want.Volumes {
		v, err := p.agent.Volumes.Volume(ctx, p.agent.Host.ID, id)
		switch {
		case errors.Is(err, croft.NotFound): // it is on another host, as after a move past croft
			continue
		case err != nil:
			return nil, err
		}
		// A record of another project would come from a program that did not compare the projects.
		if v.Instance == p.id && v.Project == p.want.Project {
			all = append(all, v)
		}
	}
	return all, nil
}

// disks returns the volumes with which the domain is defined. Conflict: another guest has one of them. Unavailable: a
// file is missing.
func (p *pass) disks(ctx context.Context) (all []Volume, err error) {
	attached, err := p.volumes(ctx)
	if p.want.Want == croft.WantArriving { // their records are still those of the other host
		attached, err = p.want.Move.Volumes, nil
	}
	for _, v := range attached {
		if err == nil && !v.Detaching {
			var disk Volume
			err = p.agent.inTurn(ctx, v.ID, func() (err error) {
				disk, err = p.agent.attachable(ctx, v, p.id)
				return err
			})
			all = append(all, disk)
		}
	}
	return all, err
}

// attachable returns a volume as part of the machine of an instance, or why it cannot be attached to it now. From then
// on no other host can have it.
func (a *Agent) attachable(ctx context.Context, v croft.Volume, to croft.InstanceID) (Volume, error) {
	if err := a.lockVolume(ctx, v, to); err != nil {
		return Volume{}, croft.Errorf(croft.KindOf(err), "volume %s: %w", v.Name, err)
	}
	if err := a.unused(ctx, v.ID, to); err != nil {
		return Volume{}, err
	}
	return inDirOf(ctx, a, v, func(dir string) (disk Volume, _ error) {
		if _, err := os.Stat(filepath.Join(dir, diskFile)); err != nil {
			return disk, croft.Errorf(croft.Unavailable, "the file of volume %s is missing on %s", v.Name, place(v))
		}
		disk, err := a.disk(v, dir)
		if err == nil {
			err = a.belongTo(ctx, disk, v.Name, to)
		}
		return disk, err
	})
}

// belongTo returns a Conflict if a snapshot of another instance has an overlay on a volume: that overlay is going to be
// merged into the layer below, which a guest must not use meanwhile.
func (a *Agent) belongTo(ctx context.Context, disk Volume, name string, to croft.InstanceID) error {
	for _, file := range append([]Layer{{Path: disk.Path}}, disk.Below...) {
		id, is := snapshotOf(file.Path)
		if !is {
			continue
		}
		switch s, err := a.Volumes.Volume(ctx, a.Host.ID, id); {
		case errors.Is(err, croft.NotFound): // nothing is going to be done about it
		case err != nil:
			return err
		case s.Snapshot != nil && s.Snapshot.Instance != to:
			return croft.Errorf(croft.Conflict, "snapshot %s of volume %s is not removed yet", s.Name, name)
		}
	}
	return nil
}

// volumeOp is what a pass does about a volume of its instance.
type volumeOp string

const (
	attachVolume volumeOp = "attach"
	detachVolume volumeOp = "detach"
	growVolume   volumeOp = "grow"
	volumeIsOff  volumeOp = "note that it is detached"
)

// volumeStep is one operation about a volume.
type volumeStep struct {
	Op     volumeOp
	Volume croft.Volume
}

// planVolumes compares the volumes that are attached to an instance with the ones that its domain has. It is pure.
func planVolumes(attached []croft.Volume, has []croft.VolumeID, defined bool) (steps []volumeStep) {
	for _, v := range attached {
		there := slices.Contains(has, v.ID)
		switch {
		case v.Detaching && there:
			steps = append(steps, volumeStep{detachVolume, v}, volumeStep{volumeIsOff, v})
		case v.Detaching:
			steps = append(steps, volumeStep{volumeIsOff, v})
		case defined && !there:
			steps = append(steps, volumeStep{attachVolume, v})
		}
		if !v.Detaching && v.ClaimedGB > v.MadeGB {
			steps = append(steps, volumeStep{growVolume, v})
		}
	}
	return steps
}

// matchVolumes makes the volumes of the domain those that are attached to the instance. A volume that fails is recorded
// with the reason, and tried again. The error says which volumes a guest that is off would be started without.
func (p *pass) matchVolumes(ctx context.Context) (missing error) {
	if p.want == nil || len(p.want.Volumes) == 0 || p.want.Want.Withdrawn() || p.want.HostDeath != 0 {
		return nil
	}
	a := p.agent
	attached, err := p.volumes(ctx)
	if err != nil {
		return err
	}
	var has []croft.VolumeID
	if p.have.Domain != nil {
		if has, err = a.Hypervisor.Volumes(ctx, p.id); err != nil {
			return err
		}
	}
	failed := map[croft.VolumeID]bool{}
	for _, step := range planVolumes(attached, has, p.have.Domain != nil) {
		v := step.Volume
		if failed[v.ID] {
			continue
		}
		err := p.doVolume(ctx, step)
		if err == nil {
			continue
		}
		failed[v.ID] = true
		err = fmt.Errorf("%s volume %s: %w", step.Op, v.Name, err)
		a.volumeFailed(ctx, v, err)
		if step.Op == attachVolume {
			missing = errors.Join(missing, err)
		}
	}
	for _, v := range attached {
		if v.Error != "" && !failed[v.ID] && !v.Detaching {
			if err := a.Volumes.FailedVolume(ctx, a.Host.ID, v.ID, ""); err != nil && !errors.Is(err, croft.NotFound) {
				return err
			}
		}
	}
	return missing
}

func (p *pass) doVolume(ctx context.Context, step volumeStep) error {
	a, v := p.agent, step.Volume
	end, err := a.volumeTurns.Take(ctx, v.ID)
	if err != nil {
		return err
	}
	defer end()
	a.Log.Info("acting", "instance", p.id, "host", a.Host.ID, "volume", v.ID, "op", string(step.Op))
	switch step.Op {
	case attachVolume:
		disk, err := a.attachable(ctx, v, p.id)
		if err != nil {
			return err
		}
		return a.Hypervisor.Attach(ctx, p.id, disk)
	case detachVolume:
		return a.Hypervisor.Detach(ctx, p.id, v.ID)
	case growVolume:
		if p.have.Domain != nil {
			grown, err := a.Hypervisor.Grow(ctx, p.id, v.ID, v.ClaimedGB)
			if err != nil {
				return err
			}
			if grown {
				return a.Volumes.MadeVolume(ctx, a.Host.ID, v.ID, v.ClaimedGB)
			}
		}
		return a.makeVolume(ctx, v)
	case volumeIsOff:
		if v.Storage != "" {
			if err := a.unlockVolume(ctx, v, p.id); err != nil {
				return err
			}
		}
	}
	return a.Volumes.DetachedVolume(ctx, a.Host.ID, v.ID, p.id)
}
