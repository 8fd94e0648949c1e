package schedule

import (
	"context"
	"errors"
	"fmt"

	"croft"
)

// tries bounds how often a change is retried because the record changed concurrently.
const tries = 8

// Stop orders an instance to be shut down; it keeps its claim and its disk.
// Conflict: it is being scheduled or destroyed, or is part of a cluster.
func (s *Scheduler) Stop(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error) {
	return s.turn(ctx, project, idOrName, "stop", croft.WantStopped, false)
}

// PowerOff orders the power of an instance to be cut without asking its guest, also if that is shutting down already.
// It keeps its claim and its disk. Conflict: as for Stop.
func (s *Scheduler) PowerOff(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error) {
	return s.turn(ctx, project, idOrName, "stop", croft.WantStopped, true)
}

// Start orders an instance to boot that is stopped or was left off by its restart policy, or to be built again if its
// build failed. Conflict: it is being scheduled or destroyed.
func (s *Scheduler) Start(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error) {
	return s.turn(ctx, project, idOrName, "start", croft.WantRunning, false)
}

// Reboot orders an instance to shut down and boot; a stopped one only boots. Conflict: as for Stop.
func (s *Scheduler) Reboot(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error) {
	return s.anew(ctx, project, idOrName, "reboot", func(o *croft.Order) { o.Rebooted = o.Generation })
}

// Rebuild orders a fresh disk made from the instance's image, and a boot from it. The instance keeps its host, claim
// and addresses; the old disk is deleted once the image is available. Conflict: as for Stop, or it is protected.
func (s *Scheduler) Rebuild(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error) {
	return s.anew(ctx, project, idOrName, "rebuild", func(o *croft.Order) { o.Rebuilt = o.Generation },
		CheckUnprotected)
}

// Eject orders that the CD drive of an instance is empty from now on. It runs on, or stays off. A lost instance has an
// empty drive once it is recreated. Repeating it is no error. Conflict: it has no CD drive, or as for Stop.
func (s *Scheduler) Eject(ctx context.Context, project croft.Project, idOrName string) (inst croft.Instance,
	err error) {
	err = s.changeOwn(ctx, project, idOrName, "eject the CD of", func(st croft.Status) (again bool, err error) {
		inst = st.Instance
		switch {
		case inst.Spec.ISO == nil:
			return false, croft.Errorf(croft.Conflict, "it has no CD drive: it was made without --iso")
		case inst.Ejected:
			return false, nil
		case inst.State == croft.StateLost:
			next := inst
			next.Ejected = true
			inst, err = s.Records.Amend(ctx, inst, next)
			return true, err
		case inst.State != croft.StateScheduled || st.Order == nil:
			return false, Unorderable(inst)
		}
		want := st.Order.Want
		if ended(&st) != "" { // another order to run would start it
			want = croft.WantStopped
		}
		order := NewOrder(s.Partition, inst, inst.Host, want)
		order.Ejected = true
		inst, err = s.writeOrder(ctx, st.Host, s.Records.Reorder, inst, order)
		return true, err
	})
	return inst, err
}

// Restore orders that the disks of a stopped instance become those of a backup. Its host keeps the present ones until
// the others are complete and verified. One without disks, because it could not be built from a backup, is built from
// this one. Conflict: it is not stopped, or it is protected and
// has disks.
func (s *Scheduler) Restore(ctx context.Context, inst croft.Instance, from croft.FromBackup) (croft.Instance, error) {
	return s.restore(ctx, inst, func(st croft.Status, o *croft.Order) error {
		if st.Unbuilt() {
			from.Generation, o.Want = o.Generation, croft.WantRunning
			o.Backup = &from
			return nil
		}
		switch off := st.Observation != nil && st.Observation.Generation == st.Instance.Generation &&
			st.Observation.State == croft.StateStopped; {
		case st.Restoring():
			return croft.Errorf(croft.Conflict, "it is being restored from backup %s: try again later",
				st.Instance.Backup.Name)
		case !off || st.Order == nil || st.Order.Want != croft.WantStopped:
			return croft.Errorf(croft.Conflict, "it is not stopped: `schedule stop --wait %s` first", st.Instance.Name)
		case st.Instance.Moving != "" || st.Instance.Resizing != nil:
			return croft.Errorf(croft.Conflict, "it is being moved or resized: try again later")
		}
		from.Generation, from.InPlace = o.Generation, true
		o.Backup = &from
		return CheckUnprotected(st.Instance)
	})
}

// EndRestore gives up to restore an instance in place, if that is still ordered by from: it keeps its disks.
func (s *Scheduler) EndRestore(ctx context.Context, inst croft.Instance, from croft.FromBackup, why string) error {
	_, err := s.restore(ctx, inst, func(st croft.Status, o *croft.Order) error {
		if now := st.Instance.Backup; now == nil || *now != from || st.Order == nil {
			return croft.Errorf(croft.Conflict, "another order has replaced it")
		}
		from.Generation, from.Error = 0, why
		o.Backup, o.Want = &from, st.Order.Want
		return nil
	})
	return err
}

func (s *Scheduler) restore(ctx context.Context, inst croft.Instance, change func(croft.Status, *croft.Order) error) (
	_ croft.Instance, err error) {
	err = s.changeOwn(ctx, inst.Project, string(inst.ID), "restore", func(st croft.Status) (again bool, err error) {
		if st.Instance.CreateRevision != inst.CreateRevision {
			return false, croft.Errorf(croft.NotFound, "it was removed meanwhile")
		}
		inst = st.Instance
		if inst.State != croft.StateScheduled {
			return false, Unorderable(inst)
		}
		order := NewOrder(s.Partition, inst, inst.Host, croft.WantStopped)
		if err := change(st, &order); err != nil {
			return false, err
		}
		inst, err = s.writeOrder(ctx, st.Host, s.Records.Reorder, inst, order)
		return true, err
	})
	return inst, err
}

// anew orders an instance to run. change completes the order.
func (s *Scheduler) anew(ctx context.Context, project croft.Project, idOrName, verb string,
	change func(*croft.Order), checks ...func(croft.Instance) error) (inst croft.Instance, err error) {
	err = s.changeOwn(ctx, project, idOrName, verb, func(st croft.Status) (again bool, err error) {
		inst = st.Instance
		if inst.State != croft.StateScheduled {
			return false, Unorderable(inst)
		}
		for _, check := range checks {
			if err := check(inst); err != nil {
				return false, err
			}
		}
		order := NewOrder(s.Partition, inst, inst.Host, croft.WantRunning)
		change(&order)
		inst, err = s.writeOrder(ctx, st.Host, s.Records.Reorder, inst, order)
		return true, err
	})
	return inst, err
}

// turn orders the wanted state; with cut the guest is not asked. If that is already ordered it does nothing, unless
// the order failed or the guest has ended: then it orders a new attempt. For cut, an order that asks the guest does
// not count.
func (s *Scheduler) turn(ctx context.Context, project croft.Project, idOrName, verb string,
	want croft.Want, cut bool) (inst croft.Instance, err error) {
	change := s.changeOwn
	if want == croft.WantRunning { // any caller may boot a cluster member that is off
		change = s.change
	}
	err = change(ctx, project, idOrName, verb, func(st croft.Status) (again bool, err error) {
		inst = st.Instance
		if inst.State != croft.StateScheduled {
			return false, Unorderable(inst)
		}
		if o := st.Order; o != nil && o.Want == want && failed(&st) == nil &&
			(cut && o.Cut || !cut && ended(&st) == "") {
			return false, nil
		}
		order := NewOrder(s.Partition, inst, inst.Host, want)
		order.Cut = cut
		inst, err = s.writeOrder(ctx, st.Host, s.Records.Reorder, inst, order)
		return true, err
	})
	return inst, err
}

// change calls do with the instance as stored. If do returns again and a Conflict, the instance was changed
// concurrently, and do is called with the new stored state.
func (s *Scheduler) change(ctx context.Context, project croft.Project, idOrName, verb string,
	do func(croft.Status) (again bool, err error)) error {
	var err error
	name := idOrName // for messages
	for again, try := true, 0; again && try < tries; try++ {
		st, found := s.View.Find(ctx, project, idOrName)
		if found != nil {
			return fmt.Errorf("%s %s: %w", verb, idOrName, found)
		}
		name = st.Instance.Name
		if again, err = do(st); err == nil {
			return nil
		}
		again = again && errors.Is(err, croft.Conflict)
	}
	return fmt.Errorf("%s %s: %w", verb, name, err)
}

// Destroyed is the result of Destroy.
type Destroyed struct {
	Instance croft.Instance
	Gone     bool // nothing to wait for; otherwise the host's agent removes it
}

// Destroy orders an instance to be removed with its disks, addresses, claim and name. An instance without an order on
// any host, such as a held or a lost one, is removed immediately. Destroying it again is no error.
//
// With force, an instance on a silent host loses its claim and name immediately, and a tombstone waits for the host's
// return. While the host's agent runs, force changes nothing: the agent removes the instance, and releasing the claim
// earlier would let two instances use the same memory. An instance that is part of a cluster is destroyed only with
// force. Conflict: it is protected, or part of a cluster, and force is not set.
func (s *Scheduler) Destroy(ctx context.Context, project croft.Project, idOrName string, force bool) (d Destroyed,
	err error) {
	return s.destroy(ctx, project, idOrName, force, func(croft.Instance) bool { return true })
}

// DestroyThis destroys exactly the given instance. NotFound: it is gone, even if another instance has its ID now.
func (s *Scheduler) DestroyThis(ctx context.Context, inst croft.Instance) (Destroyed, error) {
	return s.destroy(ctx, inst.Project, string(inst.ID), false, func(found croft.Instance) bool {
		return found.CreateRevision == inst.CreateRevision
	})
}

// GiveUp ends a request in progress, and releases its claim, if its record is still exactly as given; its scheduler
// then cannot write an order. Conflict: the record was changed, or is not scheduling. NotFound.
func (s *Scheduler) GiveUp(ctx context.Context, inst croft.Instance) error {
	err := s.owns(inst, "destroy")
	if err == nil {
		err = s.forgo(ctx, inst)
	}
	if err != nil {
		return fmt.Errorf("give up the request for %s: %w", inst.Name, err)
	}
	s.Log.Info("a request that was left behind is given up", "instance", inst.ID)
	return nil
}

func (s *Scheduler) destroy(ctx context.Context, project croft.Project, idOrName string, force bool,
	wanted func(croft.Instance) bool) (d Destroyed, err error) {
	change := s.changeOwn
	if force {
		change = s.change
	}
	err = change(ctx, project, idOrName, "destroy", func(st croft.Status) (again bool, err error) {
		if !wanted(st.Instance) {
			return false, croft.Errorf(croft.NotFound, "it is gone, and another instance has its ID")
		}
		if err := CheckUnprotected(st.Instance); err != nil {
			return false, err
		}
		d = Destroyed{Instance: st.Instance}
		switch st.Instance.State {
		case croft.StateScheduling:
			d.Gone = true
			err := s.forgo(ctx, st.Instance)
			if err == nil && st.Instance.Lost != nil { // discarding made it lost again; the next try destroys it
				err = croft.Errorf(croft.Conflict, "it was just being recreated: try again")
			}
			return true, err
		case croft.StateHeld:
			d.Gone = true
			return true, s.giveBack(ctx, st.Instance)
		case croft.StateLost:
			d.Gone = true
			return true, s.bury(ctx, st.Instance)
		case croft.StateScheduled:
			d.Instance, err = s.writeOrder(ctx, st.Host, s.Records.Reorder, st.Instance,
				NewOrder(s.Partition, st.Instance, st.Instance.Host, croft.WantGone))
			if err != nil {
				return true, err
			}
		}
		if force && (st.Host == nil || !st.Host.Alive) {
			d.Gone = true
			return true, s.bury(ctx, d.Instance)
		}
		return false, nil
	})
	if err == nil {
		s.Log.Info("instance destroyed", "instance", d.Instance.ID, "host", d.Instance.Host)
	}
	return d, err
}

// forgo removes a record that is still scheduling, and its claim: the record first, so that no scheduler can write an
// order for it. After a crash in between, the audit finds a claim without a record.
func (s *Scheduler) forgo(ctx context.Context, inst croft.Instance) error {
	discarded := false
	err := s.Claims.Release(ctx, inst.ID, func(ctx context.Context) ([]croft.HostID, error) {
		err := s.Records.Discard(ctx, inst)
		discarded = err == nil
		return nil, err
	})
	if discarded && err != nil {
		return fmt.Errorf("give its claim back: %w", err)
	}
	return err
}

// bury removes an instance that is lost or on a silent host: its claim first, so that bury can be repeated while the
// record exists.
func (s *Scheduler) bury(ctx context.Context, inst croft.Instance) error {
	err := s.Claims.Release(ctx, inst.ID, func(ctx context.Context) ([]croft.HostID, error) {
		on, err := croft.IfSame(&inst, s.Records.Fence)(ctx)
		if inst.State == croft.StateLost { // a lost instance has no host
			on = nil
		}
		return on, err
	})
	if err != nil {
		return err
	}
	host := inst.Host
	if inst.State == croft.StateLost && inst.Lost != nil { // its owner gives up the disk that the host may still have
		host = inst.Lost.Host
	}
	return s.Records.Bury(ctx, inst, NewOrder(s.Partition, inst, host, croft.WantGone))
}
