package schedule

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"croft"
	"croft/internal/hostkey"
)

// Use is the specification of the instance that takes over a held claim. Empty fields keep the values of the hold's
// request, except UserData, ClusterKey and Expires, which always replace them.
type Use struct {
	Image  string
	Named  string // name under which a user asked for Image; empty: its address
	Public bool   // of Image; see croft.Spec.ImagePublic
	// of the machines that start from Image; empty: not stated
	Arch croft.Arch
	croft.GuestSettings
	Expires time.Duration // life from now on; 0: unlimited

	ClusterKey string // shared by the members of its cluster
}

// on returns the held record with the fields of the use applied. Invalid.
func (u Use) on(inst croft.Instance) (_ croft.Instance, err error) {
	spec := &inst.Spec
	if u.Arch != "" && u.Arch != spec.Machine.Arch.Known() {
		return inst, croft.Errorf(croft.Invalid, "its image is for %s machines, and the claim holds an %s machine: use "+
			"another image, or hold another claim", u.Arch, spec.Machine.Arch.Known())
	}
	if u.Image != "" {
		spec.Image, spec.ImageName, spec.ImagePublic = u.Image, u.Named, u.Public
	}
	spec.Metadata, spec.IMDS = cmp.Or(u.Metadata, spec.Metadata), cmp.Or(u.IMDS, spec.IMDS)
	spec.Restart, spec.UserData = cmp.Or(u.Restart, spec.Restart), u.UserData
	spec.ClusterKey = u.ClusterKey
	if len(u.Keys) > 0 {
		spec.Keys = u.Keys
	}
	if len(u.Tags) > 0 {
		spec.Tags = u.Tags
	}
	if spec.Image == "" && spec.Machine.NeedsImage() {
		return inst, croft.Errorf(croft.Invalid, "no image is named, and none was when the claim was asked for")
	}
	if err := CheckGuest(spec.GuestSettings); err != nil {
		return inst, err
	}
	if inst.Expires, err = expiry(time.Now(), u.Expires); err != nil {
		return inst, err
	}
	// Each try creates a new key, so the key also identifies the order that was written.
	if spec.HostKey, err = hostkey.New(); err != nil {
		return inst, fmt.Errorf("make the host key of %s: %w", inst.Name, err)
	}
	return inst, nil
}

// Use orders the instance for which a claim is held, on the host of the claim. Of several concurrent uses, releases and
// the end of the hold, exactly one takes effect: the record decides, not this machine's clock. Conflict: it is not held
// any more. Unavailable: the host is silent or drained. Invalid.
func (s *Scheduler) Use(ctx context.Context, project croft.Project, idOrName string, u Use) (inst croft.Instance,
	err error) {
	err = s.changeOwn(ctx, project, idOrName, "use", func(st croft.Status) (again bool, err error) {
		inst = st.Instance
		if err := held(inst); err != nil {
			return false, err
		}
		next, err := u.on(inst)
		if err != nil {
			return false, err
		}
		used, err := s.writeOrder(ctx, st.Host, s.Holds.Use, next,
			NewOrder(s.Partition, next, next.Host, croft.WantRunning))
		if err != nil && !errors.Is(err, croft.Conflict) {
			used, err = s.settleUse(ctx, next, err)
		}
		if err == nil {
			inst = used
		}
		return true, err
	})
	if err == nil {
		s.Log.Info("held claim used", "instance", inst.ID, "host", inst.Host)
	}
	return inst, err
}

// settleUse settles a Use that failed: its transaction may have been applied although the answer was lost.
func (s *Scheduler) settleUse(ctx context.Context, wanted croft.Instance, cause error) (croft.Instance, error) {
	after, cancel := s.afterwards(ctx)
	defer cancel()
	now, err := s.Records.Fence(after, wanted)
	if err == nil && now.State == croft.StateScheduled && now.Spec.HostKey == wanted.Spec.HostKey {
		return now, nil
	}
	return wanted, cause
}

// held refuses an instance that is not held. Conflict.
func held(inst croft.Instance) error {
	if inst.State == croft.StateHeld {
		return nil
	}
	return croft.Errorf(croft.Conflict, "it is not held: `croft claim list` shows the held claims")
}

// ReleaseHold releases the claim that is held for an instance. Conflict: it is not held any more.
func (s *Scheduler) ReleaseHold(ctx context.Context, project croft.Project, idOrName string) (inst croft.Instance,
	err error) {
	err = s.changeOwn(ctx, project, idOrName, "release", func(st croft.Status) (again bool, err error) {
		inst = st.Instance
		if err := held(inst); err != nil {
			return false, err
		}
		return true, s.giveBack(ctx, inst)
	})
	return inst, err
}

// giveBack ends a hold. The record leads to the claim until the claim is released; after a crash in between, the
// caretaker finishes the work.
func (s *Scheduler) giveBack(ctx context.Context, inst croft.Instance) error {
	inst, err := s.Holds.Abandon(ctx, inst)
	if err != nil {
		return err
	}
	err = s.Claims.Release(ctx, inst.ID, func(ctx context.Context) ([]croft.HostID, error) {
		now, err := s.Records.Fence(ctx, inst)
		if err == nil && !now.Same(inst) {
			err = errOthers
		}
		inst = now
		return []croft.HostID{inst.Host}, err
	})
	switch {
	case errors.Is(err, croft.NotFound), errors.Is(err, errOthers):
		return nil // the caretaker released it first
	case err != nil:
		return fmt.Errorf("give its claim back: %w", err)
	}
	if err := s.Records.Discard(ctx, inst); err != nil && !errors.Is(err, croft.Conflict) {
		return err
	}
	s.Log.Info("held claim released", "instance", inst.ID, "host", inst.Host)
	return nil
}
