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
