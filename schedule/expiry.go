package schedule

import (
	"cmp"
	"context"
	"strings"
	"time"

	"croft"
	"croft/internal/wording"
)

// longestLife bounds the life of an instance that expires.
const longestLife = 10 * 365 * 24 * time.Hour

// CheckLife refuses a life, or a time for which a claim is held, that is too short or too long. Invalid.
func CheckLife(life time.Duration) error {
	if life < time.Second || life > longestLife {
		return croft.Errorf(croft.Invalid, "%s is no time for which an instance is kept or held: use 1s to %s",
			wording.Duration(life), wording.Duration(longestLife))
	}
	return nil
}

// expiry returns the time at which a life that starts now ends; zero: it does not end. Invalid.
func expiry(now time.Time, life time.Duration) (time.Time, error) {
	if life == 0 {
		return time.Time{}, nil
	}
	if err := CheckLife(life); err != nil {
		return time.Time{}, err
	}
	return now.Add(life).UTC().Truncate(time.Second), nil
}

// Keep sets the expiry of an instance to life from now. A life of 0 removes the expiry, except for a held instance. A
// lost instance may be kept in order to recreate it. Conflict: it is being scheduled or destroyed, or is part of a
// cluster, or the revision of its record is not base, unless that is nil. Invalid: the life is too short or too long.
func (s *Scheduler) Keep(ctx context.Context, project croft.Project, idOrName string, life time.Duration,
	base *int64) (inst croft.Instance, err error) {
	return s.Amend(ctx, project, idOrName, "keep", Amendment{Life: &life}, base)
}

// Amendment changes fields of the record of an instance in one write; nil: the field stays.
type Amendment struct {
	Life      *time.Duration // from now on; 0: it does not expire
	Protected *bool
}

// Amend changes the record of an instance, and not its order. Errors are those of Keep. Conflict, too: the instance
// would be protected and expire, or is to be protected and belongs to a cluster or a pool.
func (s *Scheduler) Amend(ctx context.Context, project croft.Project, idOrName, verb string, to Amendment,
	base *int64) (inst croft.Instance, err error) {
	err = s.changeOwn(ctx, project, idOrName, verb, func(st croft.Status) (again bool, err error) {
		inst = st.Instance
		next, err := to.of(inst)
		switch {
		case base != nil && inst.Revision != *base:
			return false, croft.Errorf(croft.Conflict,
				"another request changed it; read it again")
		case err != nil:
			return false, err
		}
		inst, err = s.Records.Amend(ctx, inst, next)
		return true, err
	})
	return inst, err
}

// Check refuses changes that Amend would refuse.
func (a Amendment) Check(inst croft.Instance) error {
	_, err := a.of(inst)
	return err
}

// of returns the record with the changes.
func (a Amendment) of(inst croft.Instance) (next croft.Instance, err error) {
	next = inst
	next.Protected = *cmp.Or(a.Protected, &inst.Protected)
	if a.Life != nil {
		if next.Expires, err = expiry(time.Now(), *a.Life); err != nil {
			return inst, err
		}
	}
	switch {
	case inst.State == croft.StateHeld && next.Protected:
		return inst, croft.Errorf(croft.Conflict, "it is held, and what is held has an end: use it first")
	case inst.State == croft.StateHeld && next.Expires.IsZero():
		return inst, croft.Errorf(croft.Invalid, "what is held has an end: say for how long it is to be held")
	case inst.State != croft.StateScheduled && inst.State != croft.StateHeld && inst.State != croft.StateLost:
		return inst, Unorderable(inst)
	case next.Protected && inst.MadeFor != "":
		return inst, croft.Errorf(croft.Conflict, "it belongs to a pool, which decides about its end")
	case next.Protected && !next.Expires.IsZero() && a.Life != nil && *a.Life != 0:
		return inst, croft.Errorf(croft.Conflict, "it is protected, so it cannot expire: end the protection first, with "+
			"`schedule protect --off %s`", inst.Name)
	case next.Protected && !next.Expires.IsZero():
		return inst, croft.Errorf(croft.Conflict, "it expires, so it cannot be protected: end that first, with `schedule "+
			"keep %s`", inst.Name)
	}
	return next, nil
}

// CheckSnapshotless refuses what would destroy the named snapshots of an instance, whose data would be lost with its
// disks. Conflict.
func CheckSnapshotless(instance string, snapshots []string, remedy string) error {
	if len(snapshots) == 0 {
		return nil
	}
	return croft.Errorf(croft.Conflict, "instance %s has %s, which would be lost: %s; %s", instance,
		wording.Count(len(snapshots), "snapshot"), strings.Join(snapshots, ", "), remedy)
}

// CheckUnprotected refuses what would destroy an instance, or replace its disk, if it is protected. Conflict.
func CheckUnprotected(inst croft.Instance) error {
	if inst.Protected {
		return croft.Errorf(croft.Conflict, "it is protected: end the protection first, with `schedule protect --off %s`",
			inst.Name)
	}
	return nil
}
