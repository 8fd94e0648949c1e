package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"croft"
	"croft/internal/span"
)

// Unorderable returns the error for an order to an instance that is not scheduled.
func Unorderable(inst croft.Instance) error {
	switch inst.State {
	case croft.StateLost:
		return croft.Errorf(croft.Conflict,
			"it is lost: %s; `schedule show %s` names the ways to have it again, `schedule remove %s` gives it up",
			inst.Lost.Reason, inst.Name, inst.Name)
	case croft.StateHeld:
		return croft.Errorf(croft.Conflict,
			"it is held: `croft claim use %s` boots it, `croft claim remove %s` gives it back", inst.Name, inst.Name)
	}
	return croft.Errorf(croft.Conflict, "it is %s", inst.State)
}

// Recreate schedules a lost instance again, on a host with room, with its name, UUID, spec and user-data: with its disk
// if that is on shared storage, else with a new one made from its image or, if its restart policy says so, from its
// last backup. After an error it is lost as before, unless etcd or Placement stopped answering in between: then agents
// set it back to lost after this process has ended. Conflict: it is not lost, or it has expired. NoCapacity: as for
// Request.
func (s *Scheduler) Recreate(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, error) {
	return s.recreate(ctx, project, idOrName, func(inst croft.Instance) (*Copy, error) {
		if inst.Spec.Restart != croft.RestartElsewhereBackup || inst.Storage != "" { // its disk is there
			return nil, nil
		}
		if s.LastBackup == nil {
			return nil, ErrNoBackup
		}
		from, err := s.LastBackup(ctx, inst)
		if errors.Is(err, croft.NotFound) {
			err = ErrNoBackup
		}
		return &from, err
	})
}

// ErrNoBackup says that an instance cannot be recreated from its last backup.
var ErrNoBackup = croft.Errorf(croft.Conflict, "it is to be recreated from its last backup, and has none")

// Copy is a backup as far as a Scheduler needs it.
type Copy struct {
	croft.FromBackup
	Volumes []croft.VolumeID // that are made from it, if they are attached to the instance
}

// RecreateFrom is Recreate with disks made from a backup, and with the volumes that the backup has: these move to the
// instance's new host.
func (s *Scheduler) RecreateFrom(ctx context.Context, inst croft.Instance, from Copy) (croft.Instance, error) {
	return s.recreate(ctx, inst.Project, string(inst.ID), func(croft.Instance) (*Copy, error) {
		return &from, nil
	})
}

func (s *Scheduler) recreate(ctx context.Context, project croft.Project, idOrName string,
	source func(croft.Instance) (*Copy, error)) (inst croft.Instance, err error) {
	ctx, end := span.Start(ctx, "recreate", attribute.String("croft.instance", idOrName))
	defer func() { end(err) }()
	err = s.changeOwn(ctx, project, idOrName, "recreate", func(st croft.Status) (again bool, err error) {
		inst = st.Instance
		switch {
		case inst.State != croft.StateLost:
			return false, croft.Errorf(croft.Conflict,
				"it is not lost: `schedule list --state lost` shows the lost instances")
		case !inst.Expires.IsZero() && !time.Now().Before(inst.Expires):
			return false, croft.Errorf(croft.Conflict,
				"its time was over on %s: prolong it with `schedule keep %s`, or destroy it",
				inst.Expires.Format(time.RFC3339), inst.Name)
		}
		from, err := source(inst)
		if err != nil {
			return false, err
		}
		inst.Backup = nil
		if from != nil {
			from.Generation = inst.Generation + 1
			inst.Backup = &from.FromBackup
		}
		search, err := s.searchAgain(ctx, inst)
		if err == nil && from != nil {
			err = search.remake(from.Volumes)
		}
		if err != nil {
			return false, err
		}
		a := attempt{search: *search}
		if a.inst, err = s.Records.Recreate(ctx, search.inst); err != nil {
			return true, err
		}
		decision, err := a.run(ctx, func() (*snapshot, error) { return a.look(ctx, a.policy.Sample) })
		if err == nil {
			inst = decision.Instance
			return false, nil
		}
		if undo := a.undo(ctx); undo != nil {
			err = croft.Errorf(croft.Unavailable, "%v; and then, undoing it: %v", err, undo)
		}
		return false, err
	})
	if err == nil {
		s.Log.Info("lost instance recreated", "instance", inst.ID, "host", inst.Host)
	}
	return inst, err
}

// searchAgain prepares the search for a new host for an instance that had a host before.
func (s *Scheduler) searchAgain(ctx context.Context, inst croft.Instance) (_ *search, err error) {
	if inst.Volumes, err = s.Volumes.AttachedTo(ctx, inst.ID); err != nil {
		return nil, err
	}
	if inst.Spec.Policy != nil {
		policy, err := s.PolicyOf(ctx, inst)
		if err != nil {
			return nil, err
		}
		found, err := s.standing(inst, policy)
		if err == nil && inst.Storage != "" {
			found.query = found.query.Without(croft.DiskGB)
		}
		return found, err
	}
	query, err := ParseQuery(cmp.Or(inst.Spec.Query, inst.Spec.Resources.String()))
	if err != nil {
		return nil, fmt.Errorf("read the query of instance %s: %w", inst.Name, err)
	}
	if inst.Storage != "" { // it claims its disk already
		query = query.Without(croft.DiskGB)
	}
	found := s.search(Request{Query: query, InstanceSettings: inst.Spec.InstanceSettings}, inst)
	return &found, nil
}

// remake has the search choose a host that has room for the volumes that were lost with the former one: all of them are
// made from a backup. Conflict: the backup does not have one of them.
func (s *search) remake(backedUp []croft.VolumeID) error {
	var kept []croft.Volume
	for _, v := range s.inst.Volumes {
		switch {
		case v.Storage != "":
			kept = append(kept, v)
		case !slices.Contains(backedUp, v.ID):
			return croft.Errorf(croft.Conflict, "its volume %s is on the lost host, and is not restored from the backup: "+
				"`croft volume detach %s` keeps it there, and the instance is restored without it", v.Name, v.Name)
		default:
			s.disks = append(s.disks, v)
		}
	}
	s.inst.Volumes, s.query = kept, s.query.WithDisks(s.disks)
	return nil
}
