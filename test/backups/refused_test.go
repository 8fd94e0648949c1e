package backups_test

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"croft"
	"croft/compute/backup"
	"croft/control/api"
)

// lock locks a repository by another process of restic until the returned function is called.
func (w world) lock(repo, password string) (unlock func()) {
	w.Helper()
	cmd := exec.CommandContext(w.Context(), "restic", "backup", "--quiet", "--stdin")
	cmd.Env = append(os.Environ(), "RESTIC_REPOSITORY="+repo, "RESTIC_PASSWORD="+password,
		"RESTIC_CACHE_DIR="+w.TempDir())
	in, err := cmd.StdinPipe()
	w.must(err)
	w.must(cmd.Start())
	w.until("the repository is locked", func(context.Context) bool {
		locks, err := os.ReadDir(filepath.Join(repo, "locks"))
		w.must(err)
		return len(locks) > 0
	})
	return func() {
		w.Helper()
		_, err := io.WriteString(in, "data of another program")
		w.must(errors.Join(err, in.Close(), cmd.Wait()))
	}
}

// gone waits until a backup is removed.
func (w world) gone(token, name string) {
	w.Helper()
	w.until("backup "+name+" is gone", func(ctx context.Context) bool {
		_, err := w.as(token).GetBackup(ctx, api.BackupNamed{Name: name})
		return errors.Is(err, croft.NotFound)
	})
}

func TestJobsThatWaitForALockedRepositoryKeepNoOthersWaiting(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.store("main", w.repo, "secret")
	other := filepath.Join(t.TempDir(), "other")
	w.must(os.Mkdir(other, 0o700))
	w.instance("berta", "web")
	c := w.as("berta")
	names := []string{"b1", "b2", "b3"}
	for _, name := range names {
		w.backup("berta", "web", name)
	}
	w.store("other", other, "secret")
	unlock := w.lock(w.repo, "secret")
	for _, name := range names {
		w.must(c.RemoveBackup(t.Context(), api.BackupNamed{Name: name}))
	}
	w.until("a removal waits", func(ctx context.Context) bool {
		jobs, err := w.cloud.Store.Backups.Jobs(ctx)
		w.must(err)
		for _, j := range jobs {
			if !j.Report.Locked.IsZero() {
				return true
			}
		}
		return false
	})
	for _, store := range []string{"other", "main"} { // a lock of a backup admits other backups
		_, err := c.CreateBackup(t.Context(), api.NewBackup{InstanceNamed: api.InstanceNamed{ID: "web"}, Name: store,
			Store: store})
		w.must(err)
		if b := w.settled("berta", store); b.State != backup.Ready {
			t.Errorf("backup in store %s: %s, %s", store, b.State, b.Error)
		}
	}
	for _, name := range names {
		if b, err := c.GetBackup(t.Context(), api.BackupNamed{Name: name}); err != nil || b.State != backup.Removing {
			t.Errorf("backup %s: %s, %v", name, b.State, err)
		}
	}
	unlock()
	for _, name := range names {
		w.gone("berta", name)
	}
}

func TestAnInstanceIsRestoredInPlaceRightAfterItsBackupIsMade(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.store("main", w.repo, "secret")
	web := w.instance("berta", "web")
	c := w.as("berta")
	_, err := c.StopInstance(t.Context(), api.InstanceStop{InstanceChange: api.InstanceChange{
		InstanceNamed: api.InstanceNamed{ID: "web"}}})
	w.must(err)
	w.runs("berta", web.ID, croft.StateStopped)
	w.must(os.WriteFile(w.disk(web.ID), []byte("\x00content\nfirst"), 0o600))
	w.backup("berta", "web", "b1")
	_, err = c.RestoreBackup(t.Context(), api.BackupRestore{BackupNamed: api.BackupNamed{Name: "b1"}, InPlace: true})
	w.must(err) // though its host may still remove the temporary snapshot
	if inst := w.restored(web.ID); inst.Backup.State != api.Restored {
		t.Errorf("restored: %+v", inst.Backup)
	}
}

func TestAFailedBackupThatStoredNothingIsNotChargedAndRemovedWithoutItsStore(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.store("main", w.repo, "secret")
	web := w.instance("berta", "web")
	w.must(os.Remove(w.disk(web.ID)))
	b := w.backup("berta", "web", "b1")
	if b.State != backup.Failed {
		t.Fatalf("backup without a disk: %+v", b)
	}
	r, err := w.cloud.Store.Backups.Backup(t.Context(), "berta", "b1")
	if err != nil || r.SizeGB == 0 || r.ChargedGB() != 0 {
		t.Errorf("%d of %d GiB are charged, %v", r.ChargedGB(), r.SizeGB, err)
	}
	w.must(os.Rename(w.repo, w.repo+".gone"))
	w.must(w.as("berta").RemoveBackup(t.Context(), api.BackupNamed{Name: "b1"}))
	w.gone("berta", "b1")
}
