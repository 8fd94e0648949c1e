package schedule

import (
	"context"
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
	err = s.changeOwn(ctx, project, idOrName, "keep", func(st croft.Status) (again bool, err error) {
		inst = st.Instance
		switch {
		case base != nil && inst.Revision != *base:
			return false, croft.Errorf(croft.Conflict,
				"another request changed it; read it again")
		case inst.State == croft.StateHeld && life == 0:
			return false, croft.Errorf(croft.Invalid, "what is held has an end: say for how long it is to be held")
		case inst.State != croft.StateScheduled && inst.State != croft.StateHeld && inst.State != croft.StateLost:
			return false, Unorderable(inst)
		}
		expires, err := expiry(time.Now(), life)
		if err != nil {
			return false, err
		}
		inst, err = s.Records.SetExpiry(ctx, inst, expires)
		return true, err
	})
	return inst, err
}
