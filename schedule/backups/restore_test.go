package backups

import (
	"context"
	"slices"
	"testing"
	"time"

	"croft"
	"croft/compute/backup"
	"croft/schedule"
)

// others are the methods that no test here calls.
type others interface{ Store }

// records has the record of one backup; other is what another process does between a read and a write.
type records struct {
	others
	b     backup.Backup
	other func()
}

func (r *records) Backup(context.Context, croft.Project, string) (backup.Backup, error) {
	return r.b, nil
}

func (r *records) PutBackup(_ context.Context, b backup.Backup) (backup.Backup, error) {
	if other := r.other; other != nil {
		r.other = nil
		other()
	}
	if b.Revision != r.b.Revision {
		return b, croft.Errorf(croft.Conflict, "another request changed it")
	}
	b.Revision++
	r.b = b
	return b, nil
}

func (r *records) RemoveJob(context.Context, croft.HostID, string) error { return nil }

// view has one instance.
type view struct {
	schedule.View
	st croft.Status
}

func (v view) FindByID(context.Context, croft.InstanceID) (croft.Status, error) { return v.st, nil }

func TestTheEndOfARestoreKeepsTheNoteOfTheNextOne(t *testing.T) {
	t.Parallel()
	const id = croft.InstanceID("web")
	earlier := croft.Status{Instance: croft.Instance{ID: id, State: croft.StateScheduled, Generation: 5,
		Backup: &croft.FromBackup{ID: "b", Generation: 5, InPlace: true}},
		Observation: &croft.Observation{Generation: 5, State: croft.StateStopped}}
	done := backup.Job{ID: backup.RestoreJob(id, 5), Kind: backup.Restore, Backup: "b", Instance: id,
		Report: backup.Report{Done: true}}
	jobs := map[string]backup.Job{done.ID: done}
	store := &records{b: backup.Backup{ID: "b", Revision: 1, Restoring: []croft.InstanceID{id}}}
	m := &Manager{Store: store, Scheduler: &schedule.Scheduler{Config: schedule.Config{View: view{st: earlier}}}}
	look := func() error { return m.restoring(t.Context(), store.b, id, jobs, map[string]bool{}) }

	if _, err := m.begin(t.Context(), store.b, id, 5); err != nil {
		t.Fatal(err)
	}
	if err := look(); err != nil || !slices.Contains(store.b.Restoring, id) {
		t.Errorf("before the next order: %v, %v", store.b.Restoring, err)
	}
	store.b.Asked = time.Now().Add(-forgetAfter)
	if err := look(); err != nil || len(store.b.Restoring) > 0 || len(store.b.Before) > 0 {
		t.Errorf("when no order followed: %v, %v, %v", store.b.Restoring, store.b.Before, err)
	}
}

func TestARequestIsRepeatedWhenItsRecordWasChangedMeanwhile(t *testing.T) {
	t.Parallel()
	store := &records{b: backup.Backup{ID: "b", Revision: 1, Restoring: []croft.InstanceID{"web"}}}
	store.other = func() { store.b.Revision++ }
	m := &Manager{Store: store}
	if err := m.withdraw(t.Context(), store.b, "web"); err != nil || len(store.b.Restoring) > 0 {
		t.Errorf("%v, %v", store.b.Restoring, err)
	}
}

// otherCaptures are the methods that no test here calls.
type otherCaptures interface{ Snapshots }

// oneHost is a cloud with one host.
type oneHost struct{ schedule.Registry }

func (oneHost) Hosts(context.Context, ...croft.HostID) (map[croft.HostID]croft.Host, error) {
	return map[croft.HostID]croft.Host{"": {}}, nil
}

// captures has the temporary snapshot of one backup.
type captures struct {
	otherCaptures
	v *croft.Volume // nil: there is none
}

func (c *captures) FindSnapshot(context.Context, croft.Instance, string) (croft.Volume, error) {
	if c.v == nil {
		return croft.Volume{}, croft.Errorf(croft.NotFound, "there is no such snapshot")
	}
	return *c.v, nil
}

func (c *captures) AttachedTo(context.Context, croft.InstanceID) ([]croft.Volume, error) {
	return nil, nil
}

func (c *captures) CaptureFor(_ context.Context, _ croft.Status, name, of string) (croft.Volume, error) {
	c.v = &croft.Volume{ID: "second", Name: name, Snapshot: &croft.Snapshot{Backup: of}}
	return *c.v, nil
}

// The server that was asked for the backup claims the space, and another manager looks at it meanwhile.
func TestASnapshotThatClaimsNothingYetAndGoesIsTakenAgain(t *testing.T) {
	t.Parallel()
	store := &records{b: backup.Backup{ID: "0123456789", Name: "b", State: backup.Creating, Revision: 1}}
	pending := &captures{v: &croft.Volume{ID: "first", Session: "of the server",
		Snapshot: &croft.Snapshot{Backup: "b"}}}
	m := &Manager{Store: store, Snapshots: pending, Hosts: oneHost{},
		Scheduler: &schedule.Scheduler{Config: schedule.Config{View: view{}}}}
	if err := m.advance(t.Context(), store.b, backup.Job{}); err != nil || store.b.Snapshot != "" {
		t.Errorf("before the claim is made, the backup has the snapshot %q, %v", store.b.Snapshot, err)
	}
	pending.v = nil // nothing fits
	if err := m.advance(t.Context(), store.b, backup.Job{}); err != nil || store.b.Snapshot != "second" ||
		store.b.State != backup.Creating {
		t.Errorf("the backup is %s (%q), with the snapshot %q, %v", store.b.State, store.b.Error, store.b.Snapshot, err)
	}
}

// rooms has the record of one store.
type rooms struct {
	others
	s     backup.Store
	other func() // what another process does between a read and a write
}

func (r *rooms) Store(_ context.Context, name string) (backup.Store, error) {
	if name != r.s.Name {
		return backup.Store{}, croft.Errorf(croft.NotFound, "there is no such store")
	}
	return r.s, nil
}

func (r *rooms) PutStore(_ context.Context, s backup.Store) (backup.Store, error) {
	if other := r.other; other != nil {
		other()
	}
	if s.Revision != r.s.Revision {
		return s, croft.Errorf(croft.Conflict, "another request changed it")
	}
	s.Revision++
	r.s = s
	return s, nil
}

func TestAStoreKeepsTheNewestRoomThatAHostHasRead(t *testing.T) {
	t.Parallel()
	store := &rooms{s: backup.Store{Name: "main"}}
	m := &Manager{Store: store}
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	note := func(name string, free int64, at time.Time) {
		t.Helper()
		if err := m.noteRoom(t.Context(), name, &backup.Room{Free: free, Size: 100, At: at}); err != nil {
			t.Error(err)
		}
	}
	note("main", 50, at)
	note("main", 60, at.Add(-time.Minute))
	note("gone", 70, at.Add(time.Minute))
	if err := m.noteRoom(t.Context(), "main", nil); err != nil || store.s.Room == nil || store.s.Room.Free != 50 ||
		store.s.Revision != 1 {
		t.Errorf("%v: %+v, written %d times", err, store.s.Room, store.s.Revision)
	}
	store.other = func() { store.s.Revision++ }
	note("main", 40, at.Add(time.Hour)) // the report about the next job counts
	if store.s.Room.Free != 50 {
		t.Errorf("the record that another process wrote became %+v", store.s)
	}
}
