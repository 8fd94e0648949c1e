package audit

import (
	"context"
	"fmt"

	"croft"
)

// Mend corrects one mendable difference. It removes no guest, and no disk that is on record. Conflict: the difference
// is not mendable, or the records that it is based on have changed.
func (a *Auditor) Mend(ctx context.Context, d Difference) error {
	if !d.Mendable {
		return croft.Errorf(croft.Conflict, "mending it might harm a guest or its disk")
	}
	switch d.Kind {
	case LostName, LostUserData, LostMember, LostSeat, LostAddress, LostOrder, LostObservation:
		return a.Records.Drop(ctx, d)
	case LeakedClaim:
		return a.releaseLeaked(ctx, d)
	case StrayFiles:
		hosts, err := a.Registry.Hosts(ctx, d.Host)
		if err != nil {
			return err
		}
		return a.Agents.RemoveFiles(ctx, hosts[d.Host], d.Instance)
	}
	if d.Kind == AbandonedVolume || d.Kind == UnclaimedVolume {
		return a.mendVolume(ctx, d)
	}
	st, err := a.instance(ctx, d)
	if err != nil {
		return err
	}
	return a.mendInstance(ctx, d, st)
}

func (a *Auditor) mendVolume(ctx context.Context, d Difference) error {
	if a.Volumes == nil {
		return croft.Errorf(croft.Conflict, "the volume has changed meanwhile; audit again")
	}
	e, err := a.Records.Evidence(ctx)
	if err != nil {
		return err
	}
	v, err := e.volumeOf(d)
	switch {
	case err != nil:
		return err
	case d.Kind == AbandonedVolume:
		return a.Volumes.Undo(ctx, v)
	}
	return a.Volumes.Reclaim(ctx, v)
}

// volumeOf returns the record of the volume that a difference is about. Conflict: it has changed since.
func (e Evidence) volumeOf(d Difference) (croft.Volume, error) {
	v := e.Volumes[croft.VolumeID(d.Instance)]
	if v.Revision != d.Revision {
		return v, croft.Errorf(croft.Conflict, "the volume has changed meanwhile; audit again")
	}
	return v, nil
}

// instance reads the current record of an instance. Conflict: it has changed since the difference was found.
func (a *Auditor) instance(ctx context.Context, d Difference) (croft.Status, error) {
	all, err := a.Instances.List(ctx, "")
	if err != nil {
		return croft.Status{}, err
	}
	for _, st := range all {
		if st.Instance.ID == d.Instance && st.Instance.Revision == d.Revision {
			return st, nil
		}
	}
	return croft.Status{}, croft.Errorf(croft.Conflict, "the instance has changed meanwhile; audit again")
}

func (a *Auditor) mendInstance(ctx context.Context, d Difference, st croft.Status) error {
	inst := st.Instance
	switch d.Kind {
	case AbandonedRequest:
		return a.undo(ctx, inst)
	case AbandonedResize:
		if a.Resizes == nil {
			return croft.Errorf(croft.Conflict, "a caretaker ends it within a minute")
		}
		return a.Resizes.EndResize(ctx, inst)
	case UnfinishedMove:
		return a.Fleet.EndMove(ctx, st)
	case MissingName:
		return a.Records.PutName(ctx, inst)
	case MissingMember:
		return a.Records.PutMember(ctx, inst)
	case MissingAddress:
		return a.Records.PutAddress(ctx, inst)
	case MissingOrder:
		return a.Fleet.Reorder(ctx, inst, wanted(st))
	case MissingClaim, StrayClaim:
		return a.Fleet.Reclaim(ctx, inst)
	}
	return fmt.Errorf("there is no repair for %q", d.Kind)
}

// undo ends a request whose scheduler died. The fence comes first, since a suspended scheduler may resume;
// then the claim, while the record still allows a retry.
func (a *Auditor) undo(ctx context.Context, inst croft.Instance) error {
	now, err := releaseAbandoned(ctx, a.Claims, a.Instances, inst)
	if err == nil && now.Lost != nil && a.Volumes != nil {
		err = a.Volumes.Return(ctx, now.ID)
	}
	if err != nil {
		return err
	}
	return a.Instances.Discard(ctx, now)
}

// releaseAbandoned fences a request whose scheduler died, releases its claim and returns the record, which can then be
// discarded. The claim goes before the record: while the record exists, the claim can be found and no other instance
// can get the UUID. NotFound: the record is gone. errInTime.
func releaseAbandoned(ctx context.Context, claims Releaser, records interface {
	Fence(ctx context.Context, inst croft.Instance) (croft.Instance, error)
}, inst croft.Instance) (croft.Instance, error) {
	var now croft.Instance
	err := claims.Release(ctx, inst.ID, func(ctx context.Context) (_ []croft.HostID, err error) {
		now, err = records.Fence(ctx, inst)
		if err == nil && (now.State != croft.StateScheduling || now.Session != inst.Session) {
			err = errInTime
		}
		return nil, err
	})
	if err != nil { // an abandoned call may still write the record
		return croft.Instance{}, err
	}
	return now, nil
}

// Reasons for not releasing a claim.
var (
	errInTime = croft.Errorf(croft.Conflict, "its scheduler was in time")
	errReused = croft.Errorf(croft.Conflict, "an instance with this UUID exists again")
)

// wanted returns the wanted state that matches the last known state of an instance without an order.
func wanted(st croft.Status) croft.Want {
	switch {
	case st.Instance.State == croft.StateDestroying:
		return croft.WantGone
	case st.Observation != nil && st.Observation.State == croft.StateStopped:
		return croft.WantStopped
	}
	return croft.WantRunning
}

// releaseLeaked releases a claim unless its UUID is in use again, by an instance that is not lost.
func (a *Auditor) releaseLeaked(ctx context.Context, d Difference) error {
	return a.Claims.Release(ctx, d.Instance, func(ctx context.Context) ([]croft.HostID, error) {
		e, err := a.Records.Evidence(ctx)
		if err != nil {
			return nil, err
		}
		inst, exists := e.Instances[d.Instance]
		if _, is := e.Volumes[croft.VolumeID(d.Instance)]; is || exists && inst.State != croft.StateLost {
			return nil, errReused
		}
		return []croft.HostID{d.Host}, nil
	})
}
