package hosts

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"croft"
	"croft/internal/wording"
	"croft/schedule"
)

// Forget removes a host that is gone for good. Conflict: it is alive, or has instances and force is not set. With force
// its instances are lost: their claims are released, their records keep the data to recreate them until a user
// recreates or destroys them, and orders to leave them off remain in case the host returns. Host.Lost lists them.
func (f *Fleet) Forget(ctx context.Context, idOrName string, force bool) (Host, error) {
	h, err := f.find(ctx, idOrName)
	if err == nil {
		h.Lost, err = f.forget(ctx, h, force)
	}
	if err != nil {
		return h, fmt.Errorf("forget host %s: %w", idOrName, err)
	}
	f.Log.Info("host forgotten", "host", h.ID)
	return h, nil
}

func (f *Fleet) forget(ctx context.Context, h Host, force bool) (lost []LostInstance, err error) {
	switch {
	case !force && h.Alive:
		return nil, croft.Errorf(croft.Conflict, "it is alive; stop its agent first, or add --force")
	case !force && h.Count > 0:
		return nil, croft.Errorf(croft.Conflict, "%s on it; destroy or move them first, or mark them as lost with --force",
			counted(h.Count))
	}
	if err := f.keepsVolumes(ctx, h.ID, force); err != nil {
		return nil, err
	}
	for _, st := range h.Instances {
		if st.Instance.Storage != "" && !h.IsDead() {
			return nil, croft.Errorf(croft.Conflict, "the disk of %s is on shared storage, and this host may still write to it: "+
				"`croft host fence %s` first", st.Instance.Name, h.Name)
		}
		if shared, err := f.onShared(ctx, st.Instance); err != nil {
			return nil, err
		} else if len(shared) > 0 && !h.IsDead() {
			return nil, croft.Errorf(croft.Conflict, "volume %s of %s is on shared storage, and this host may still write "+
				"to it: `croft host fence %s` first", shared[0].Name, st.Instance.Name, h.Name)
		}
	}
	if err := f.Members.MayRemoveEtcdMember(ctx, h.ID); err != nil {
		return nil, err
	}
	if !force {
		if err := f.nobodyWaitsFor(ctx, h.ID); err != nil {
			return nil, err
		}
	}
	// From here on no new order can be written for the host, so loseAll finds all instances.
	if err := f.Hosts.Drain(ctx, h.ID); err != nil {
		return nil, err
	}
	if err := f.keepsVolumes(ctx, h.ID, force); err != nil { // created meanwhile
		return nil, err
	}
	if lost, err = f.loseAll(ctx, h, force, true); err != nil {
		return lost, err
	}
	if err := f.freeClaims(ctx, h.ID); err != nil {
		return lost, err
	}
	if err := f.Claims.RemoveProvider(ctx, h.ID); err != nil {
		return lost, err
	}
	if err := f.Hosts.ForgetHost(ctx, h.ID); err != nil {
		return lost, err
	}
	// Last, so that a host that loses its etcd server can tell whether it was forgotten.
	return lost, f.Members.RemoveEtcdMember(ctx, h.ID)
}

// keepsVolumes returns a Conflict if the host has volumes, unless it is forgotten by force: then their records stay,
// and the volumes are lost until the host returns. Volumes on shared storage get another keeper when one is needed.
func (f *Fleet) keepsVolumes(ctx context.Context, host croft.HostID, force bool) error {
	if f.Volumes == nil || force {
		return nil
	}
	all, err := f.Volumes.HostVolumes(ctx, host)
	all = croft.LocalVolumes(all)
	if err != nil || len(all) == 0 {
		return err
	}
	return croft.Errorf(croft.Conflict, "it has %s, such as %s %s of project %s; remove them first, or add "+
		"--force: they stay listed, and their data is lost unless the host returns",
		wording.List(counts(all, func(noun string, names []string) string { return wording.Count(len(names), noun) })),
		all[0].Noun(), all[0].Name, all[0].Project)
}

// nobodyWaitsFor returns a Conflict if an instance that was moved away from the host waits until the host has nothing
// left of it: once the host is forgotten the instance starts, although its guest may still run there.
func (f *Fleet) nobodyWaitsFor(ctx context.Context, host croft.HostID) error {
	all, err := f.Instances.List(ctx, "")
	if err != nil {
		return err
	}
	for _, st := range all {
		inst := st.Instance
		if !slices.Contains(inst.Former(), host) {
			continue
		}
		remains, err := f.Orders.Remains(ctx, host, inst.ID)
		if err != nil {
			return err
		}
		if remains {
			return croft.Errorf(croft.Conflict,
				"instance %s was moved away from it and may still run there; bring the host back, or add --force if "+
					"it is permanently lost", inst.Name)
		}
	}
	return nil
}

func counted(n int) string {
	if n == 1 {
		return "one instance is"
	}
	return fmt.Sprintf("%d instances are", n)
}

// LostInstance names an instance that was lost with its host.
type LostInstance struct {
	ID      croft.InstanceID `json:"id" format:"uuid"`  // its UUID
	Project croft.Project    `json:"project"`           // the project that it belongs to
	Name    string           `json:"name"`              // its name in the project
	Lacks   string           `json:"lacks"`             // the data that stayed on the host
	To      croft.HostID     `json:"to,omitempty"`      // the host that it was recreated on; empty: it stays lost
	ToName  string           `json:"to_name,omitempty"` // name of that host
	Kept    bool             `json:"kept,omitempty"`    // it has its disk, which is on shared storage
	Stays   string           `json:"stays,omitempty"`   // why it was not recreated
	// name of the backup that its disks are made from or, if it stays lost, of its last one; empty: none
	Backup string `json:"backup,omitempty"`
}

// loseAll marks the instances of a host as lost, and releases their claims. With bury, instances that are being
// destroyed, and held claims, end. It can be repeated.
func (f *Fleet) loseAll(ctx context.Context, h Host, force, bury bool) (lost []LostInstance, err error) {
	all, err := f.Instances.List(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, st := range all {
		inst := st.Instance
		here := inst.Host == h.ID
		if inst.State == croft.StateLost { // by an earlier call, which may have ended before it released the claim
			here = force && inst.Lost != nil && inst.Lost.Host == h.ID
		}
		if inst.Copying && inst.Moving == h.ID {
			if h.IsDead() && inst.Storage != "" { // the lock of its disk may be there already
				inst.TakesFrom = append(slices.Clone(inst.TakesFrom), h.ID)
			}
			if err := f.takeVolumesFrom(ctx, inst, h.Host); err != nil {
				return lost, err
			}
			if err := f.EndCopy(ctx, inst, "the host that it was moving to was forgotten"); err != nil {
				return lost, err
			}
		}
		switch {
		case !here:
		case !force:
			return lost, croft.Errorf(croft.Conflict, "instance %s has just come to it; try again", inst.Name)
		case inst.State == croft.StateScheduled || inst.State == croft.StateLost:
			lacks, err := f.lose(ctx, inst, h)
			if errors.Is(err, croft.NotFound) { // its owner has removed it since it was listed
				continue
			}
			if err != nil {
				return lost, err
			}
			lost = append(lost, LostInstance{ID: inst.ID, Project: inst.Project, Name: inst.Name, Lacks: lacks,
				Kept: lacks == noData})
		case bury:
			if err := f.bury(ctx, inst); err != nil && !errors.Is(err, croft.NotFound) {
				return lost, err
			}
		}
	}
	return lost, nil
}

// lose marks an instance of a host as lost, and says which data it lacks then. The record comes first: it leads a retry
// to the claim.
func (f *Fleet) lose(ctx context.Context, inst croft.Instance, h Host) (lacks string, err error) {
	disks, err := f.lostDisks(ctx, inst, h.ID)
	if err != nil {
		return "", err
	}
	lacks = lacking(inst, disks)
	if inst.State != croft.StateLost {
		why := croft.Loss{At: time.Now().UTC().Truncate(time.Second), Host: h.ID, HostName: h.Name,
			Reason: "its host was declared dead, with " + lacks}
		if lacks == noData {
			why.Reason = "its host was declared dead; its disk is on shared storage"
		}
		if h.Death != nil {
			why.Death = h.Death.CreateRevision
		}
		inst, err = f.Instances.Lose(ctx, inst, why, f.order(inst, inst.Host, croft.WantLeft))
		if err != nil {
			return "", fmt.Errorf("mark instance %s as lost: %w", inst.Name, err)
		}
		f.Log.Info("instance lost with its host", "instance", inst.ID, "project", inst.Project, "name", inst.Name,
			"host", h.ID)
	}
	for _, v := range disks {
		if v.Snapshot != nil { // its record, which is marked as lost, permits no claim any more
			if err := f.Claims.Release(ctx, v.ID.Consumer(), croft.On()); err != nil {
				return lacks, err
			}
		}
	}
	if inst.Storage != "" {
		return lacks, f.keepDisk(ctx, inst)
	}
	return lacks, f.Claims.Release(ctx, inst.ID, func(ctx context.Context) ([]croft.HostID, error) {
		now, err := f.Instances.Fence(ctx, inst)
		if err == nil && !now.Same(inst) {
			err = croft.Errorf(croft.Conflict, "instance %s was changed by another request; try again", inst.Name)
		}
		inst = now
		return nil, err
	})
}

// keepDisk releases all that a lost instance claims, except its disk on shared storage.
func (f *Fleet) keepDisk(ctx context.Context, inst croft.Instance) error {
	had, err := f.Claims.ClaimOf(ctx, inst.ID)
	if err != nil {
		return err
	}
	now, err := f.Instances.Fence(ctx, inst)
	if err == nil && !now.Same(inst) {
		err = croft.Errorf(croft.Conflict, "instance %s was changed by another request; try again", inst.Name)
	}
	if err != nil {
		return err
	}
	return f.Claims.Reclaim(ctx, had, croft.Owner{Partition: f.Partition, Project: inst.Project},
		schedule.WithDisk(croft.Candidate{}, inst))
}

// takeVolumesFrom notes that the dead target of a move may have the locks of the instance's volumes on shared storage.
func (f *Fleet) takeVolumesFrom(ctx context.Context, inst croft.Instance, dead croft.Host) error {
	shared, err := f.onShared(ctx, inst)
	for _, v := range shared {
		if err == nil && dead.IsDead() {
			err = f.Volumes.TakeFrom(ctx, v, dead)
		}
	}
	return err
}

// lostDisks returns the volumes that are attached to an instance, and its snapshots on a host, which are lost with it
// or were lost by an earlier call. Disks on shared storage are not lost.
func (f *Fleet) lostDisks(ctx context.Context, inst croft.Instance, host croft.HostID) ([]croft.Volume, error) {
	if f.Volumes == nil {
		return nil, nil
	}
	disks, err := f.Volumes.AttachedTo(ctx, inst.ID)
	disks = croft.LocalVolumes(disks)
	if err != nil || inst.State != croft.StateLost {
		return disks, err
	}
	all, err := f.Volumes.HostVolumes(ctx, host)
	return append(disks, slices.DeleteFunc(all, func(v croft.Volume) bool {
		return v.Snapshot == nil || !v.Snapshot.Lost || v.Instance != inst.ID
	})...), err
}

// lacking says which data of an instance is on its host only: its disk, unless that is on shared storage, and these
// volumes and snapshots.
func lacking(inst croft.Instance, disks []croft.Volume) string {
	lacks := counts(disks, func(noun string, names []string) string {
		return wording.Count(len(names), noun) + " (" + strings.Join(names, ", ") + ")"
	})
	switch {
	case inst.Storage == "":
		lacks = append([]string{"its disk"}, lacks...)
	case len(lacks) == 0:
		return noData
	}
	return wording.List(lacks)
}

// counts describes the snapshots among disks, and then the volumes.
func counts(disks []croft.Volume, describe func(noun string, names []string) string) (all []string) {
	names := map[string][]string{}
	for _, v := range disks {
		names[v.Noun()] = append(names[v.Noun()], v.Name)
	}
	for _, noun := range slices.Sorted(maps.Keys(names)) {
		slices.Sort(names[noun])
		all = append(all, describe(noun, names[noun]))
	}
	return all
}

// noData is what an instance lacks whose disk is on shared storage.
const noData = "nothing: its disk is on shared storage"

// bury ends an instance of a forgotten host, like `schedule remove --force`.
func (f *Fleet) bury(ctx context.Context, inst croft.Instance) (err error) {
	host := inst.Host
	if inst.State != croft.StateDestroying { // from here on it cannot be moved away with its claim
		inst, err = f.Instances.Reorder(ctx, inst, f.order(inst, host, croft.WantGone))
		if err != nil {
			return fmt.Errorf("condemn instance %s: %w", inst.Name, err)
		}
	}
	// The claim goes before the record, because a retry finds the claim by the record.
	err = f.Claims.Release(ctx, inst.ID, croft.IfSame(&inst, f.Instances.Fence))
	if err != nil {
		return err
	}
	if err := f.Instances.Bury(ctx, inst, f.order(inst, host, croft.WantGone)); err != nil {
		return fmt.Errorf("bury instance %s: %w", inst.Name, err)
	}
	f.Log.Info("instance buried", "instance", inst.ID, "host", host)
	return nil
}

// freeClaims releases claims that crashes left on a host without instances. Claims of requests in flight end with those
// requests, since no order can follow; Placement keeps the provider until then.
func (f *Fleet) freeClaims(ctx context.Context, host croft.HostID) error {
	claims, err := f.Claims.Claims(ctx, host)
	if err != nil && !errors.Is(err, croft.NotFound) {
		return err
	}
	for id := range claims {
		if err := f.releaseUnused(ctx, id, host); err != nil {
			return err
		}
	}
	return nil
}

// releaseUnused releases a claim on hosts that are neither the location nor the target of an instance with its UUID.
func (f *Fleet) releaseUnused(ctx context.Context, id croft.InstanceID, on ...croft.HostID) error {
	errUsed := errors.New("its instance is there")
	err := f.Claims.Release(ctx, id, func(ctx context.Context) ([]croft.HostID, error) {
		inst, err := f.Instances.Instance(ctx, id)
		switch {
		case errors.Is(err, croft.NotFound):
			return on, nil
		case err != nil:
			return nil, err
		}
		left := slices.DeleteFunc(slices.Clone(on), func(h croft.HostID) bool {
			return inst.State == croft.StateScheduling || slices.Contains(inst.Places(), h)
		})
		if len(left) == 0 {
			return nil, errUsed
		}
		return left, nil
	})
	if errors.Is(err, errUsed) {
		return nil
	}
	return err
}
