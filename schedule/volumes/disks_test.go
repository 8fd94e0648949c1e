package volumes_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"croft"
	"croft/etcdstore/etcdtest"
	"croft/schedule"
)

func (c *claims) Claim(ctx context.Context, id croft.InstanceID, o croft.Owner, to croft.Candidate) error {
	had, err := c.ClaimOf(ctx, id)
	if err != nil {
		return err
	}
	return c.Reclaim(ctx, had, o, to)
}

func (c *claims) Providers(context.Context) ([]croft.Provider, error) { return nil, nil }

// roomy is a Placement whose candidates have room for whole requests.
type roomy struct {
	*claims
	wanted croft.Resources // of the last claim of an instance
}

func (r *roomy) Candidates(_ context.Context, query string, _ int) ([]croft.Candidate, error) {
	q, err := schedule.ParseQuery(query)
	if err != nil {
		return nil, err
	}
	return []croft.Candidate{{Allocations: map[croft.HostID]croft.Resources{r.host: q.Total()},
		Summaries: map[croft.HostID]croft.Summary{r.host: {Capacity: croft.Resources{croft.DiskGB: 10, croft.VCPU: 8,
			croft.MemoryMB: 1 << 20}}}}}, nil
}

func (r *roomy) Claim(ctx context.Context, id croft.InstanceID, o croft.Owner, to croft.Candidate) error {
	r.wanted = to.Allocations[r.host]
	return r.claims.Claim(ctx, id, o, to)
}

// records is a store of instances whose process dies together with its claims.
type records struct {
	*claims
	schedule.Records
}

func (r records) Create(ctx context.Context, inst croft.Instance) (next croft.Instance, err error) {
	err = r.call(func() error { next, err = r.Records.Create(ctx, inst); return err })
	return next, err
}

func (r records) Assign(ctx context.Context, inst croft.Instance, o croft.Order) (next croft.Instance,
	err error) {
	err = r.call(func() error { next, err = r.Records.Assign(ctx, inst, o); return err })
	return next, err
}

func (r records) Fence(ctx context.Context, inst croft.Instance) (next croft.Instance, err error) {
	err = r.call(func() error { next, err = r.Records.Fence(ctx, inst); return err })
	return next, err
}

func (r records) Discard(ctx context.Context, inst croft.Instance) error {
	return r.call(func() error { return r.Records.Discard(ctx, inst) })
}

// scheduler returns a scheduler whose process dies with the claims.
func (w *world) scheduler() (*schedule.Scheduler, *roomy) {
	w.Helper()
	room := &roomy{claims: w.claims}
	s, err := schedule.New(schedule.Config{Partition: w.store.Partition(),
		Records: records{w.claims, w.store.Instances}, Holds: w.store.Instances, View: w.store.Instances,
		Registry: w.store.Registry, Groups: w.store.Groups, Claims: room, Volumes: w.Manager})
	w.must(err)
	return s, room
}

func wanted(t *testing.T, disks ...croft.NewDisk) schedule.Request {
	q, err := schedule.ParseQuery("VCPU:1,MEMORY_MB:256,DISK_GB:1")
	if err != nil {
		t.Fatal(err)
	}
	return schedule.Request{ID: croft.NewInstanceID(), Project: "lab", Name: "web", Query: q, Image: "test",
		Disks: disks}
}

// recover undoes an instance's request whose process died, as a caretaker does, and returns whether the instance
// stayed.
func (w *world) recover(id croft.InstanceID) bool {
	w.Helper()
	w.left = -1
	inst, err := w.store.Instances.Instance(w.Context(), id)
	if err == nil && inst.State == croft.StateScheduling {
		inst, err = w.store.Instances.Fence(w.Context(), inst)
		w.must(err)
		delete(w.all, id)
		w.must(w.store.Instances.Discard(w.Context(), inst))
		err = croft.Errorf(croft.NotFound, "discarded")
	}
	if err != nil && croft.KindOf(err) != croft.NotFound {
		w.Error(err)
	}
	w.undo()
	return err == nil
}

// The answer to the first write of the request was lost, and its process lives on.
func TestTheEndOfABackupEndsTheRequestForItsSnapshot(t *testing.T) {
	w := start(t)
	s, _ := w.scheduler()
	d, err := s.Request(t.Context(), wanted(t))
	w.must(err)
	snapshot := croft.Volume{ID: croft.NewVolumeID(), Project: "lab", Name: "backup-1", Host: w.host, SizeGB: 1,
		Instance: d.Instance.ID, Snapshot: &croft.Snapshot{Instance: d.Instance.ID, Backup: "nightly"}}
	_, err = w.store.Volumes.CreateSnapshot(t.Context(), snapshot, d.Instance, nil)
	w.must(err)
	w.must(w.EndCapture(t.Context(), d.Instance, "backup-1"))
	_, err = w.FindSnapshot(t.Context(), d.Instance, "backup-1")
	etcdtest.WantKind(t, err, croft.NotFound)
	w.must(w.EndCapture(t.Context(), d.Instance, "backup-1"))
}

// The host of the snapshot, which was declared dead, is back: it keeps the layers of the snapshot until that is given
// up, and cannot enlarge the volume before.
func TestTheEndOfABackupGivesUpItsLostSnapshot(t *testing.T) {
	w := start(t)
	ctx := t.Context()
	s, _ := w.scheduler()
	d, err := s.Request(ctx, wanted(t, croft.NewDisk{SizeGB: 1, Name: "data"}))
	w.must(err)
	v, err := w.Find(ctx, "lab", "data")
	w.must(err)
	w.must(w.store.Volumes.MadeVolume(ctx, w.host, v.ID, 1))
	v, err = w.Find(ctx, "lab", "data")
	w.must(err)
	snapshot := croft.Volume{ID: croft.NewVolumeID(), Project: "lab", Name: "backup-1", Host: w.host, SizeGB: 2,
		Instance: d.Instance.ID, Snapshot: &croft.Snapshot{Instance: d.Instance.ID, Backup: "nightly",
			Volumes: []croft.VolumeID{v.ID}}}
	snapshot, err = w.store.Volumes.CreateSnapshot(ctx, snapshot, d.Instance, []croft.Volume{v})
	w.must(err)
	_, err = w.store.Volumes.Settle(ctx, snapshot)
	w.must(err)
	st, err := w.store.Instances.FindByID(ctx, d.Instance.ID)
	w.must(err)
	_, err = w.store.Instances.Lose(ctx, st.Instance, croft.Loss{Reason: "its host died"}, croft.Order{
		Partition: w.store.Partition(), Host: w.host, Instance: d.Instance.ID, Generation: 2, Want: croft.WantLeft})
	w.must(err)
	for range 2 { // attached, and detached
		_, err = w.Grow(ctx, "lab", "data", 2)
		etcdtest.WantKind(t, err, croft.Conflict)
		etcdtest.WantSays(t, err.Error(), "snapshot backup-1 of instance web, lost with its host, has it: remove the snapshot first")
		_, err = w.Detach(ctx, "lab", "data")
		w.must(err)
	}
	w.must(w.EndCapture(ctx, d.Instance, "backup-1"))
	_, err = w.FindSnapshot(ctx, d.Instance, "backup-1")
	etcdtest.WantKind(t, err, croft.NotFound)
	order, err := w.store.Volumes.Volume(ctx, w.host, snapshot.ID)
	if err != nil || !order.Removing {
		t.Errorf("its host has no order to remove the snapshot: %+v, %v", order, err)
	}
	_, err = w.Grow(ctx, "lab", "data", 2)
	w.must(err)
}

func TestARequestWithNewVolumesThatDiesAnywhereIsUndoneOrDone(t *testing.T) {
	for n := range 12 {
		for _, after := range []bool{false, true} {
			t.Run(fmt.Sprintf("call %d, after it %v", n, after), func(t *testing.T) {
				t.Parallel()
				w := start(t)
				s, room := w.scheduler()
				r := wanted(t, croft.NewDisk{SizeGB: 2, Name: "data"}, croft.NewDisk{SizeGB: 3})
				w.left, w.after = n, after
				_, err := s.Request(t.Context(), r)
				done, stays := err == nil, w.recover(r.ID)
				if done && !stays {
					t.Error("the request was done, and its instance is gone")
				}
				all, err := w.List(t.Context(), "lab")
				w.must(err)
				if stays != (len(all) == 2) {
					t.Fatalf("the instance exists: %v, its volumes: %+v", stays, all)
				}
				if !stays {
					w.consistent()
					return
				}
				if all[0].Name != "data" || all[1].Name != "web-disk2" || all[0].Instance != r.ID ||
					all[1].Instance != r.ID || all[0].Session != "" {
					t.Errorf("its volumes: %+v", all)
				}
				if got := room.wanted[croft.DiskGB]; got != 1 {
					t.Errorf("the instance claimed %d GB besides its volumes", got)
				}
				order, err := w.store.Orders.Order(t.Context(), w.host, r.ID)
				w.must(err)
				if len(order.Volumes) != 2 {
					t.Errorf("its order: %+v", order)
				}
			})
		}
	}
}

func TestARequestWhoseVolumeCannotBeCreatedLeavesNothing(t *testing.T) {
	w := start(t)
	ctx := t.Context()
	_, err := w.Create(ctx, "lab", "data", 2, "")
	w.must(err)
	s, _ := w.scheduler()
	for what, c := range map[string]struct {
		kind  croft.Kind
		disks []croft.NewDisk
	}{
		"a name that is taken": {croft.Conflict, []croft.NewDisk{{SizeGB: 1, Name: "new"}, {SizeGB: 1, Name: "data"}}},
		"a name twice":         {croft.Invalid, []croft.NewDisk{{SizeGB: 1, Name: "x"}, {SizeGB: 1, Name: "x"}}},
		"no size":              {croft.Invalid, []croft.NewDisk{{Name: "x"}}},
		"no name":              {croft.Invalid, []croft.NewDisk{{SizeGB: 1, Name: "A b"}}},
		"too many":             {croft.Invalid, make([]croft.NewDisk, croft.MaxAttached+1)},
		"no room":              {croft.NoCapacity, []croft.NewDisk{{SizeGB: 1, Name: "new"}, {SizeGB: 11, Name: "x"}}},
	} {
		r := wanted(t, c.disks...)
		if _, err := s.Request(ctx, r); croft.KindOf(err) != c.kind {
			t.Errorf("%s: %v, want %s", what, err, c.kind)
		}
		if _, err := w.store.Instances.Instance(ctx, r.ID); !errors.Is(err, croft.NotFound) {
			t.Errorf("%s: the instance: %v", what, err)
		}
		w.consistent()
	}
}

// The caretaker may undo a request while its process is suspended just before the order.
func TestASuspendedRequestWritesNoOrderAfterItsVolumesWereUndone(t *testing.T) {
	w := start(t)
	ctx := t.Context()
	r := wanted(t, croft.NewDisk{SizeGB: 2, Name: "data"})
	inst, err := w.store.Instances.Create(ctx, croft.Instance{ID: r.ID, Project: "lab", Name: "web",
		State: croft.StateScheduling, Spec: croft.Spec{Image: "test", Resources: r.Query.Total()}})
	w.must(err)
	begun, err := w.Begin(ctx, w.host, []croft.Volume{{Project: "lab", Name: "data", SizeGB: 2}})
	w.must(err)
	w.undo()
	inst.Volumes = begun
	order := schedule.NewOrder(w.store.Partition(), inst, w.host, croft.WantRunning)
	_, err = w.store.Instances.Assign(ctx, inst, order)
	etcdtest.WantKind(t, err, croft.Conflict)
	w.must(w.store.Instances.Discard(ctx, inst))
	w.consistent()
}
