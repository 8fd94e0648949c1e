package schedule

import (
	"context"
	"errors"
	"fmt"

	"croft"
)

// tries bounds how often a change is begun anew because the record changed meanwhile.
const tries = 8

// Stop orders an instance to be shut down; it keeps its claim and its disk.
// Conflict: it is being scheduled or destroyed.
func (s *Scheduler) Stop(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error) {
	return s.turn(ctx, project, idOrName, "stop", croft.WantStopped)
}

// Start orders a stopped instance to be booted, one that its restart policy has left
// off too, or one that failed to be built again. Conflict: as for Stop.
func (s *Scheduler) Start(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error) {
	return s.turn(ctx, project, idOrName, "start", croft.WantRunning)
}

// Reboot orders an instance to be shut down and booted again, or, where it is
// stopped, to be booted. Conflict: as for Stop.
func (s *Scheduler) Reboot(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error) {
	return s.anew(ctx, project, idOrName, "reboot", func(o *croft.Order) { o.Rebooted = o.Generation })
}

// Rebuild orders an instance to get a fresh disk, made of its image, and to be
// booted from it. It keeps its host, its claim and its addresses; what was on the
// disk is gone once the image is there. Conflict: as for Stop.
func (s *Scheduler) Rebuild(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error) {
	return s.anew(ctx, project, idOrName, "rebuild", func(o *croft.Order) { o.Rebuilt = o.Generation })
}

// anew orders an instance to run, with what change adds to the order.
func (s *Scheduler) anew(ctx context.Context, project croft.Project, idOrName, verb string,
	change func(*croft.Order)) (inst croft.Instance, err error) {
	err = s.change(ctx, project, idOrName, verb, func(st croft.Status) (again bool, err error) {
		inst = st.Instance
		if inst.State != croft.StateScheduled {
			return false, croft.Errorf(croft.Conflict, "it is %s", inst.State)
		}
		order := s.order(inst, inst.Host, croft.WantRunning)
		change(&order)
		inst, err = s.writeOrder(ctx, st.Host, s.Records.Reorder, inst, order)
		return true, err
	})
	return inst, err
}

// turn orders what is wanted from now on, and nothing where it is wanted already,
// unless that failed, or the guest has ended: a new order is a new attempt.
func (s *Scheduler) turn(ctx context.Context, project croft.Project, idOrName, verb string,
	want croft.Want) (inst croft.Instance, err error) {
	err = s.change(ctx, project, idOrName, verb, func(st croft.Status) (again bool, err error) {
		inst = st.Instance
		if inst.State != croft.StateScheduled {
			return false, croft.Errorf(croft.Conflict, "it is %s", inst.State)
		}
		if st.Order != nil && st.Order.Want == want && failed(&st) == nil && ended(&st) == "" {
			return false, nil
		}
		inst, err = s.writeOrder(ctx, st.Host, s.Records.Reorder, inst, s.order(inst, inst.Host, want))
		return true, err
	})
	return inst, err
}

// change does something to an instance. Where do says again, a Conflict means that
// others changed it meanwhile, and it is read anew.
func (s *Scheduler) change(ctx context.Context, project croft.Project, idOrName, verb string,
	do func(croft.Status) (again bool, err error)) error {
	var err error
	for again, try := true, 0; again && try < tries; try++ {
		st, found := s.View.Find(ctx, project, idOrName)
		if found != nil {
			return fmt.Errorf("%s %s: %w", verb, idOrName, found)
		}
		if again, err = do(st); err == nil {
			return nil
		}
		again = again && errors.Is(err, croft.Conflict)
	}
	return fmt.Errorf("%s %s: %w", verb, idOrName, err)
}

// Destroyed tells what Destroy has done.
type Destroyed struct {
	Instance croft.Instance
	Gone     bool // nothing is left to wait for; else the host's agent removes it
}

// Destroy orders an instance to be removed with its disks, addresses, claim and
// name; one that no host has been told of is gone at once. Destroying what is being
// destroyed is no error.
//
// With force, an instance whose host is silent loses claim and name at once, and a
// tombstone waits for the host's return. Where the host's agent runs, force changes
// nothing: the agent removes the instance, and freeing its claim before that would
// let two instances use the same memory.
func (s *Scheduler) Destroy(ctx context.Context, project croft.Project, idOrName string, force bool) (d Destroyed,
	err error) {
	err = s.change(ctx, project, idOrName, "destroy", func(st croft.Status) (again bool, err error) {
		d = Destroyed{Instance: st.Instance}
		switch st.Instance.State {
		case croft.StateScheduling:
			d.Gone = true
			return true, s.forgo(ctx, st.Instance)
		case croft.StateScheduled:
			d.Instance, err = s.writeOrder(ctx, st.Host, s.Records.Reorder, st.Instance,
				s.order(st.Instance, st.Instance.Host, croft.WantGone))
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

// forgo removes a record that is still scheduling: the record first, after which no
// scheduler can write an order for it, then what it had claimed. Were the process to
// die between the two, the agents' sweep finds a claim without a record.
func (s *Scheduler) forgo(ctx context.Context, inst croft.Instance) error {
	if err := s.Records.Discard(ctx, inst); err != nil {
		return err
	}
	if err := s.Claims.Release(ctx, inst.ID); err != nil {
		return fmt.Errorf("give its claim back: %w", err)
	}
	return nil
}

// bury ends an instance whose host is silent: the claim first, while there is a
// record to repeat this by.
func (s *Scheduler) bury(ctx context.Context, inst croft.Instance) error {
	if err := s.Claims.Release(ctx, inst.ID, inst.Places()...); err != nil {
		return err
	}
	tombstone := s.order(inst, inst.Host, croft.WantGone)
	return s.Records.Bury(ctx, inst, tombstone)
}
