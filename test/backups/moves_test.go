package backups_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"croft"
	"croft/compute/backup"
	"croft/control/api"
)

// on is the disk of an instance on a host.
func (w world) on(host string, id croft.InstanceID) string {
	return filepath.Join(w.cloud.Dir, host, string(id), "disk.qcow2")
}

// move moves an instance and waits until it is there, in a state.
func (w world) move(id croft.InstanceID, host string, state croft.State) {
	w.Helper()
	_, err := w.as("operator").MoveInstance(w.Context(), api.InstanceMove{
		InstanceChange: api.InstanceChange{InstanceNamed: api.InstanceNamed{ID: string(id)}}, Host: host})
	w.must(err)
	w.until("it is on "+host, func(ctx context.Context) bool {
		inst, err := w.as("operator").GetInstance(ctx, api.InstanceShown{
			InstanceNamed: api.InstanceNamed{ID: string(id)}})
		w.must(err)
		if inst.Unmoved != "" {
			w.Fatal(inst.Unmoved)
		}
		return inst.HostID == w.cloud.Hosts[host].ID && inst.State == string(state)
	})
}

// restored waits until an instance is not being restored any more.
func (w world) restored(id croft.InstanceID) (inst api.Instance) {
	w.Helper()
	w.until("it is restored or not", func(ctx context.Context) (is bool) {
		var err error
		inst, err = w.as("operator").GetInstance(ctx, api.InstanceShown{
			InstanceNamed: api.InstanceNamed{ID: string(id)}})
		w.must(err)
		return inst.Backup != nil && inst.Backup.State != api.Restoring
	})
	return inst
}

// nothingRestores waits until no backup has an instance that is being restored, and no host has a job.
func (w world) nothingRestores() {
	w.Helper()
	w.until("no restore is left", func(ctx context.Context) bool {
		all, err := w.cloud.Store.Backups.Backups(ctx, "")
		w.must(err)
		jobs, err := w.cloud.Store.Backups.Jobs(ctx)
		w.must(err)
		for _, b := range all {
			if len(b.Restoring) > 0 {
				return false
			}
		}
		return len(jobs) == 0
	})
}

func TestARestoredInstanceMovesAndKeepsItsDiskWhateverFails(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.store("main", w.repo, "secret")
	w.must(w.cloud.AddHost(t.Context(), "host2", 8))
	c := w.as("berta")
	web := w.instance("berta", "web")
	at := "host1"
	if w.runs("operator", web.ID, croft.StateRunning).HostID == w.cloud.Hosts["host2"].ID {
		at = "host2"
	}
	other := map[string]string{"host1": "host2", "host2": "host1"}[at]
	w.must(os.WriteFile(w.on(at, web.ID), []byte("\x00content\nfirst"), 0o600))
	w.backup("berta", "web", "b1")
	w.noSnapshots()
	w.must(os.WriteFile(w.on(at, web.ID), []byte("\x00content\nsecond"), 0o600))
	_, err := c.StopInstance(t.Context(), api.InstanceStop{InstanceChange: api.InstanceChange{
		InstanceNamed: api.InstanceNamed{ID: "web"}}})
	w.must(err)
	w.runs("berta", web.ID, croft.StateStopped)
	reads := func(host, want string) {
		t.Helper()
		text, err := os.ReadFile(w.on(host, web.ID))
		if err != nil || !strings.HasSuffix(string(text), want) {
			t.Errorf("its disk on %s has %q, %v, want %q", host, text, err, want)
		}
	}

	in := api.BackupRestore{BackupNamed: api.BackupNamed{Name: "b1"}, InPlace: true}
	_, err = c.RestoreBackup(t.Context(), in)
	w.must(err)
	if inst := w.restored(web.ID); inst.Backup.State != api.Restored {
		t.Fatalf("restored: %+v", inst.Backup)
	}
	// A start right after it needs no job.
	_, err = c.StartInstance(t.Context(), api.InstanceChange{InstanceNamed: api.InstanceNamed{ID: "web"}})
	w.must(err)
	w.runs("berta", web.ID, croft.StateRunning)
	w.nothingRestores()
	w.move(web.ID, other, croft.StateRunning)
	reads(other, "first")
	w.until("its former host has nothing", func(context.Context) bool {
		_, err := os.Stat(w.on(at, web.ID))
		return errors.Is(err, fs.ErrNotExist)
	})
	w.must(w.cloud.StopHost(t.Context(), other))
	w.must(w.cloud.Hosts[other].Hypervisor.Remove(t.Context(), web.ID)) // its definition is lost
	w.must(w.cloud.StartHost(t.Context(), other))
	w.runs("berta", web.ID, croft.StateRunning)
	reads(other, "first")

	// It has not run on the host where the restore fails.
	_, err = c.StopInstance(t.Context(), api.InstanceStop{InstanceChange: api.InstanceChange{
		InstanceNamed: api.InstanceNamed{ID: "web"}}})
	w.must(err)
	w.runs("berta", web.ID, croft.StateStopped)
	w.must(os.WriteFile(w.on(other, web.ID), []byte("\x00content\nthird"), 0o600))
	w.move(web.ID, at, croft.StateStopped)
	reads(at, "third")
	w.damage()
	_, err = c.RestoreBackup(t.Context(), in)
	w.must(err)
	if inst := w.restored(web.ID); inst.Backup.State != api.Unrestored {
		t.Errorf("restored from damaged data: %+v", inst.Backup)
	}
	w.runs("berta", web.ID, croft.StateStopped)
	reads(at, "third")
	w.nothingRestores()
	if b := w.settled("berta", "b1"); b.State != backup.Damaged {
		t.Errorf("the backup is %s", b.State)
	}
}
