package volumes_test

import (
	"testing"
	"time"

	"croft"
	"croft/etcdstore/etcdtest"
	"croft/tenant"
)

func TestASnapshotIsChargedAndAttachedUntilItsRecordIsGone(t *testing.T) {
	w := start(t)
	ctx := t.Context()
	v := w.volume("data", 2)
	inst, err := w.instance("web", v)
	w.must(err)
	v = w.find("data")
	wanted := func(name string) croft.Volume {
		return croft.Volume{ID: croft.NewVolumeID(), Project: "lab", Name: name, Host: w.host, Instance: inst.ID,
			SizeGB: 5, Snapshot: &croft.Snapshot{Instance: inst.ID, Volumes: []croft.VolumeID{v.ID}}}
	}
	before := w.used()
	s, err := w.s.Volumes.CreateSnapshot(ctx, wanted("first"), inst, []croft.Volume{v})
	w.must(err)
	used := w.used().Minus(before)
	if used[tenant.CountSnapshots] != 1 || used[tenant.CountVolumes] != 0 || used[tenant.Measure(croft.DiskGB)] != 5 {
		t.Errorf("the snapshot is charged as %s", used)
	}

	// It was based on the records of the instance and the volume, and changes of both that have not seen it fail.
	_, err = w.s.Volumes.CreateSnapshot(ctx, wanted("stale"), inst, []croft.Volume{w.find("data")})
	etcdtest.WantKind(t, err, croft.Conflict)
	_, err = w.s.Volumes.Detach(ctx, v)
	etcdtest.WantKind(t, err, croft.Conflict)
	inst, err = w.s.Instances.Instance(ctx, inst.ID)
	w.must(err)
	_, err = w.s.Volumes.CreateSnapshot(ctx, wanted("first"), inst, []croft.Volume{w.find("data")})
	etcdtest.WantKind(t, err, croft.Conflict)

	s, err = w.s.Volumes.Settle(ctx, s)
	w.must(err)
	taken := croft.Snapshot{Taken: time.Now().UTC().Truncate(time.Second), Method: croft.MethodOff}
	w.must(w.s.Volumes.TookSnapshot(ctx, w.host, s.ID, taken))
	s, err = w.s.Volumes.FindSnapshot(ctx, inst, "first")
	w.must(err)
	if s.State() != croft.SnapshotReady || !s.Snapshot.Taken.Equal(taken.Taken) ||
		s.Snapshot.Method != croft.MethodOff {
		t.Errorf("the snapshot is %+v, %+v", s, s.Snapshot)
	}
	s, err = w.s.Volumes.RollBack(ctx, s, croft.RollbackOff)
	w.must(err)
	w.must(w.s.Volumes.RolledBack(ctx, w.host, s.ID, time.Now(), "the reason"))
	all, err := w.s.Volumes.Snapshots(ctx, "lab")
	if w.must(err); len(all) != 1 || all[0].Error != "the reason" || all[0].State() != croft.SnapshotReady {
		t.Errorf("the snapshots are %+v", all)
	}
	if volumes, err := w.s.Volumes.List(ctx, "lab"); err != nil || len(volumes) != 1 {
		t.Errorf("the volumes are %+v, %v", volumes, err)
	}
	if attached, err := w.s.Volumes.AttachedTo(ctx, inst.ID); err != nil || len(attached) != 2 {
		t.Errorf("attached are %+v, %v", attached, err)
	}

	// The end of the instance's record orders the removal of the snapshot.
	w.must(w.s.Instances.Bury(ctx, inst, croft.Order{}))
	s, err = w.s.Volumes.Volume(ctx, w.host, s.ID)
	if w.must(err); s.Instance != "" || !s.Removing || s.Snapshot.Instance != inst.ID {
		t.Errorf("the snapshot of an instance that ended is %+v", s)
	}
	w.must(w.s.Volumes.ForgetVolume(ctx, w.host, s.ID))
	if _, err := w.s.Volumes.FindSnapshot(ctx, inst, "first"); croft.KindOf(err) != croft.NotFound {
		t.Errorf("the removed snapshot is found: %v", err)
	}
	w.wantUsed(1, 2)
}

func TestALostSnapshotKeepsItsRecordAndItsChargeUntilItIsGivenUp(t *testing.T) {
	w := start(t)
	ctx := t.Context()
	used := w.used()
	inst, err := w.instance("web")
	w.must(err)
	instance := w.used()
	take := func(name string) croft.Volume {
		s, err := w.s.Volumes.CreateSnapshot(ctx, croft.Volume{ID: croft.NewVolumeID(), Project: "lab", Name: name,
			Host: w.host, Instance: inst.ID, SizeGB: 5, Snapshot: &croft.Snapshot{Instance: inst.ID}}, inst, nil)
		w.must(err)
		inst, err = w.s.Instances.Instance(ctx, inst.ID)
		w.must(err)
		return s
	}
	settled, err := w.s.Volumes.Settle(ctx, take("settled"))
	w.must(err)
	_, err = w.s.Volumes.RollBack(ctx, settled, croft.RollbackStop)
	w.must(err)
	begun := take("begun")
	before := inst
	late := take("late")
	tombstone := croft.Order{Host: w.host, Instance: inst.ID, Generation: inst.Generation + 1, Want: croft.WantLeft}
	why := croft.Loss{Host: w.host, Reason: "its host was declared dead"}
	_, err = w.s.Instances.Lose(ctx, before, why, tombstone) // it has not seen the last snapshot
	etcdtest.WantKind(t, err, croft.Conflict)
	inst, err = w.s.Instances.Lose(ctx, inst, why, tombstone)
	w.must(err)

	// The instance has no snapshots any more, and the request that had not ended fails.
	if attached, err := w.s.Volumes.AttachedTo(ctx, inst.ID); err != nil || len(attached) > 0 {
		t.Errorf("attached are %+v, %v", attached, err)
	}
	_, err = w.s.Volumes.Settle(ctx, begun)
	etcdtest.WantKind(t, err, croft.Conflict)
	all, err := w.s.Volumes.Snapshots(ctx, "lab")
	w.must(err)
	for _, s := range all {
		if s.State() != croft.SnapshotLost || s.Removing || s.Snapshot.Rollback != "" || s.Instance != inst.ID {
			t.Errorf("a snapshot of the lost instance is %+v, %+v", s, s.Snapshot)
		}
	}
	if got := w.used().Minus(instance); len(all) != 3 || got[tenant.CountSnapshots] != 3 {
		t.Errorf("the snapshots are %+v, charged as %s", all, got)
	}

	// What is given up is free of charge at once, and its name is free; the host is to remove what it has of it.
	given, err := w.s.Volumes.FindSnapshot(ctx, inst, "settled")
	w.must(err)
	w.must(w.s.Volumes.GiveUpLost(ctx, given))
	etcdtest.WantKind(t, w.s.Volumes.GiveUpLost(ctx, given), croft.Conflict)
	if got := w.used().Minus(instance); got[tenant.CountSnapshots] != 2 || got[tenant.Measure(croft.DiskGB)] != 10 {
		t.Errorf("two snapshots are left, charged as %s", got)
	}
	again := take("settled")
	rest, err := w.s.Volumes.Volume(ctx, w.host, given.ID)
	if w.must(err); !rest.Removing || rest.Instance != "" {
		t.Errorf("what is left of the record is %+v", rest)
	}
	for _, project := range []croft.Project{"lab", ""} {
		if all, err := w.s.Volumes.Snapshots(ctx, project); err != nil || len(all) != 3 {
			t.Errorf("the snapshots of %q are %+v, %v", project, all, err)
		}
	}
	w.must(w.s.Volumes.ForgetVolume(ctx, w.host, given.ID))
	if now, err := w.s.Volumes.FindSnapshot(ctx, inst, "settled"); err != nil || now.ID != again.ID {
		t.Errorf("the later snapshot of the same name is %+v, %v", now, err)
	}

	// A lost snapshot ends with the record of its instance.
	w.must(w.s.Instances.Bury(ctx, inst, croft.Order{}))
	for _, s := range []croft.Volume{begun, late, again} {
		s, err := w.s.Volumes.Volume(ctx, w.host, s.ID)
		if w.must(err); s.Instance != "" || !s.Removing {
			t.Errorf("the snapshot of an instance that ended is %+v", s)
		}
		w.must(w.s.Volumes.ForgetVolume(ctx, w.host, s.ID))
	}
	if got := w.used(); got.String() != used.String() {
		t.Errorf("charged are %s, as before: %s", got, used)
	}
}
