// Package backups_test makes, verifies and restores backups over the API, with restic on real repositories and
// simulated guests.
package backups_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/client"
	"croft/cluster"
	"croft/compute/backup"
	"croft/compute/restic"
	"croft/control/api"
	"croft/control/controltest"
	"croft/etcdstore"
	"croft/hosts/audit"
	"croft/internal/testing/patient"
	"croft/schedule/volumes"
	"croft/test/simcloud"
)

type world struct {
	*testing.T
	url   string
	cloud *simcloud.Cloud
	repo  string
}

func start(t *testing.T) world {
	t.Helper()
	if missing := restic.Missing(); len(missing) > 0 {
		t.Skipf("%v are missing", missing)
	}
	url, cloud := controltest.Start(t)
	w := world{t, url, cloud, filepath.Join(t.TempDir(), "repository")}
	w.must(os.Mkdir(w.repo, 0o700))
	return w
}

func (w world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// as returns a client of a caller of controltest.Known.
func (w world) as(token string) *client.Client {
	w.Helper()
	c, err := client.Through(http.DefaultClient, client.Settings{URL: w.url, Token: token})
	w.must(err)
	return c
}

// until calls done until it returns true.
func (w world) until(what string, done func(context.Context) bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), patient.Longest)
	defer cancel()
	for !done(ctx) {
		select {
		case <-ctx.Done():
			w.Fatal("never: " + what)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func given(text string) api.Given { return api.Given{Secret: cluster.NewSecret(text)} }

// store adds a store and waits for its check.
func (w world) store(name, repository, password string) api.BackupStore {
	w.Helper()
	c := w.as("operator")
	s, err := c.CreateBackupStore(w.Context(), api.NewBackupStore{Name: name, Repository: repository,
		Password: given(password)})
	w.must(err)
	w.until("store "+name+" is checked", func(ctx context.Context) bool {
		s, err = c.GetBackupStore(ctx, api.BackupStoreInProject{BackupStoreNamed: api.BackupStoreNamed{Name: name}})
		w.must(err)
		return s.State != backup.Checking
	})
	return s
}

// instance creates an instance of a caller's project and waits until it runs.
func (w world) instance(token, name string) api.Instance {
	w.Helper()
	c := w.as(token)
	inst, err := c.CreateInstance(w.Context(), api.NewInstance{InstanceRequest: api.InstanceRequest{Name: name,
		Query: "VCPU:1,MEMORY_MB:256,DISK_GB:1", Image: "debian-12"}})
	w.must(err)
	return w.runs(token, inst.ID, croft.StateRunning)
}

func (w world) runs(token string, id croft.InstanceID, state croft.State) (inst api.Instance) {
	w.Helper()
	w.until("instance is "+string(state), func(ctx context.Context) (is bool) {
		var err error
		inst, err = w.as(token).GetInstance(ctx, api.InstanceShown{InstanceNamed: api.InstanceNamed{ID: string(id)}})
		w.must(err)
		return inst.State == string(state)
	})
	return inst
}

// backup backs an instance up and waits until nothing is done with it.
func (w world) backup(token, instance, name string) api.Backup {
	w.Helper()
	_, err := w.as(token).CreateBackup(w.Context(), api.NewBackup{InstanceNamed: api.InstanceNamed{ID: instance},
		Name: name})
	w.must(err)
	return w.settled(token, name)
}

func (w world) settled(token, name string) (b api.Backup) {
	w.Helper()
	w.until("backup "+name+" is settled", func(ctx context.Context) bool {
		var err error
		b, err = w.as(token).GetBackup(ctx, api.BackupNamed{Name: name})
		w.must(err)
		return b.State != backup.Creating && b.State != backup.Checking
	})
	w.Logf("backup %s is %s %s", name, b.State, b.Error)
	return b
}

// disk is the file of an instance's disk on the simulated host.
func (w world) disk(id croft.InstanceID) string {
	return filepath.Join(w.cloud.Dir, "host1", string(id), "disk.qcow2")
}

func (w world) noSnapshots() {
	w.Helper()
	w.until("no snapshot is left", func(ctx context.Context) bool {
		list, err := w.as("operator").ListSnapshots(ctx, api.InProject{})
		w.must(err)
		return len(list.Snapshots) == 0
	})
}

func TestABackupIsMadeVerifiedRestoredAndRemoved(t *testing.T) {
	t.Parallel()
	w := start(t)
	if s := w.store("main", w.repo, "secret of the store"); s.State != backup.Ready {
		t.Fatalf("store: %+v", s)
	}
	web := w.instance("berta", "web")
	first := "what the guest wrote first"
	w.must(os.WriteFile(w.disk(web.ID), append([]byte("\x00content\n"), first...), 0o600))
	b := w.backup("berta", "web", "b1")
	if b.State != backup.Ready || len(b.Disks) != 1 || b.Disks[0].SHA256 == "" || b.Method == "" || b.Taken == nil {
		t.Fatalf("backup: %+v", b)
	}
	w.noSnapshots()
	c := w.as("berta")
	if _, err := c.CheckBackup(t.Context(), api.BackupNamed{Name: "b1"}); err != nil {
		t.Fatal(err)
	}
	if b = w.settled("berta", "b1"); b.State != backup.Ready || b.Checked == nil || b.Error != "" {
		t.Errorf("checked: %+v", b)
	}

	t.Run("a refused restore leaves no note", func(t *testing.T) {
		for name, in := range map[string]api.BackupRestore{
			"the name is in use":     {As: "web"},
			"no name of an instance": {As: "a/b"},
			"the instance runs":      {InPlace: true},
			"no host has room":       {As: "web9", Host: "nowhere"},
		} {
			in.BackupNamed = api.BackupNamed{Name: "b1"}
			if _, err := c.RestoreBackup(t.Context(), in); err == nil {
				t.Errorf("%s: not refused", name)
			}
			if b, err := c.GetBackup(t.Context(), in.BackupNamed); err != nil || b.Restores != 0 {
				t.Errorf("%s: %+v, %v", name, b, err)
			}
		}
	})

	t.Run("as a new instance", func(t *testing.T) {
		inst, err := c.RestoreBackup(t.Context(), api.BackupRestore{BackupNamed: api.BackupNamed{Name: "b1"},
			As: "web2"})
		w.must(err)
		if inst = w.runs("berta", inst.ID, croft.StateRunning); inst.ID == web.ID || inst.Backup.State != api.Restored {
			t.Errorf("restored: %+v", inst.Backup)
		}
		text, err := os.ReadFile(w.disk(inst.ID))
		w.must(err)
		if !strings.HasSuffix(string(text), first) {
			t.Errorf("its disk has %q", text)
		}
	})

	t.Run("in place", func(t *testing.T) {
		w.must(os.WriteFile(w.disk(web.ID), []byte("\x00content\nchanged"), 0o600))
		in := api.BackupRestore{BackupNamed: api.BackupNamed{Name: "b1"}, InPlace: true}
		if _, err := c.RestoreBackup(t.Context(), in); croft.KindOf(err) != croft.Conflict {
			t.Errorf("of a running instance: %v", err)
		}
		_, err := c.StopInstance(t.Context(), api.InstanceStop{InstanceChange: api.InstanceChange{
			InstanceNamed: api.InstanceNamed{ID: "web"}}})
		w.must(err)
		w.runs("berta", web.ID, croft.StateStopped)
		inst, err := c.RestoreBackup(t.Context(), in)
		w.must(err)
		w.until("it is restored", func(ctx context.Context) bool {
			inst, err = c.GetInstance(ctx, api.InstanceShown{InstanceNamed: api.InstanceNamed{ID: string(web.ID)}})
			w.must(err)
			return inst.Backup != nil && inst.Backup.State != api.Restoring
		})
		text, err := os.ReadFile(w.disk(web.ID))
		w.must(err)
		if !strings.HasSuffix(string(text), first) || inst.Backup.State != api.Restored {
			t.Errorf("its disk has %q, %+v", text, inst.Backup)
		}
	})

	t.Run("damaged data", func(t *testing.T) {
		w.must(os.WriteFile(w.disk(web.ID), []byte("\x00content\nnewer"), 0o600))
		w.damage()
		_, err := c.RestoreBackup(t.Context(), api.BackupRestore{BackupNamed: api.BackupNamed{Name: "b1"},
			InPlace: true})
		w.must(err)
		var inst api.Instance
		w.until("it is refused", func(ctx context.Context) bool {
			inst, err = c.GetInstance(ctx, api.InstanceShown{InstanceNamed: api.InstanceNamed{ID: string(web.ID)}})
			w.must(err)
			return inst.Backup.State == api.Unrestored
		})
		text, err := os.ReadFile(w.disk(web.ID))
		w.must(err)
		if string(text) != "\x00content\nnewer" || !strings.Contains(inst.Backup.Error, "damaged") {
			t.Errorf("its disk has %q: %q", text, inst.Backup.Error)
		}
		if b := w.settled("berta", "b1"); b.State != backup.Damaged {
			t.Errorf("the backup is %s", b.State)
		}
		if _, err := w.as("operator").CheckBackupStore(t.Context(), api.BackupStoreNamed{Name: "main"}); err != nil {
			t.Fatal(err)
		}
		w.until("the store is damaged", func(ctx context.Context) bool {
			s, err := w.as("operator").GetBackupStore(ctx,
				api.BackupStoreInProject{BackupStoreNamed: api.BackupStoreNamed{
					Name: "main"}})
			w.must(err)
			if s.State == backup.Ready {
				t.Fatal("a damaged store was verified")
			}
			return s.State == backup.Damaged
		})
	})
}

// damage flips bytes of all packs of the repository.
func (w world) damage() {
	w.Helper()
	w.must(filepath.WalkDir(filepath.Join(w.repo, "data"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i := range min(len(text), 200) {
			text[i] ^= 0x55
		}
		return errors.Join(os.Chmod(path, 0o600), os.WriteFile(path, text, 0o600))
	}))
}

func TestABackupIsRemovedFromItsStoreAndTheStoreOnlyWithoutBackups(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.store("main", w.repo, "secret")
	w.instance("berta", "web")
	w.backup("berta", "web", "b1")
	op := w.as("operator")
	if err := op.RemoveBackupStore(t.Context(),
		storeRemoval("main", "")); croft.KindOf(err) != croft.Conflict {
		t.Errorf("a used store: %v", err)
	}
	for _, other := range []string{"anna", "bertil"} {
		if err := w.as(other).RemoveBackup(t.Context(), api.BackupNamed{Name: "b1"}); err == nil {
			t.Errorf("%s removed it", other)
		}
	}
	if _, err := w.as("anna").GetBackup(t.Context(), api.BackupNamed{Name: "b1"}); croft.KindOf(err) != croft.NotFound {
		t.Errorf("another project: %v", err)
	}
	w.must(w.as("berta").RemoveBackup(t.Context(), api.BackupNamed{Name: "b1"}))
	w.until("it is gone", func(ctx context.Context) bool {
		_, err := w.as("berta").GetBackup(ctx, api.BackupNamed{Name: "b1"})
		return errors.Is(err, croft.NotFound)
	})
	snapshots, err := os.ReadDir(filepath.Join(w.repo, "snapshots"))
	w.must(err)
	if len(snapshots) > 0 {
		t.Errorf("%d snapshots of restic are left", len(snapshots))
	}
	w.must(op.RemoveBackupStore(t.Context(), storeRemoval("main", "")))
}

func storeRemoval(name, forget string) api.BackupStoreRemoval {
	return api.BackupStoreRemoval{BackupStoreNamed: api.BackupStoreNamed{Name: name}, Forget: forget}
}

func TestAStoreThatIsGoneForGoodIsForgottenWithItsBackupsAndSchedules(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.store("main", w.repo, "secret")
	w.instance("berta", "web")
	w.backup("berta", "web", "b1")
	w.must(os.Mkdir(w.repo+".other", 0o700))
	w.store("other", w.repo+".other", "secret")
	c, op := w.as("berta"), w.as("operator")
	_, err := c.CreateBackupSchedule(t.Context(), api.NewBackupSchedule{Name: "daily", Instance: "web", Store: "main",
		Every: 3600})
	w.must(err)
	in := api.NewBackup{InstanceNamed: api.InstanceNamed{ID: "web"}, Name: "kept", Store: "other"}
	_, err = c.CreateBackup(t.Context(), in)
	w.must(err)
	w.settled("berta", "kept")
	w.must(os.Rename(w.repo, w.repo+".gone"))
	w.must(c.RemoveBackup(t.Context(), api.BackupNamed{Name: "b1"})) // it waits for the store

	if err := op.RemoveBackupStore(t.Context(), storeRemoval("main", "mani")); croft.KindOf(err) != croft.Invalid {
		t.Errorf("another name: %v", err)
	}
	if err := c.RemoveBackupStore(t.Context(), storeRemoval("main", "main")); err == nil {
		t.Error("a user forgot a store")
	}
	w.must(op.RemoveBackupStore(t.Context(), storeRemoval("main", "main")))

	all, err := c.ListBackups(t.Context(), api.InProject{})
	w.must(err)
	if len(all.Backups) != 1 || all.Backups[0].Name != "kept" {
		t.Errorf("backups: %+v", all.Backups)
	}
	plans, err := w.cloud.Store.Backups.Plans(t.Context(), "")
	w.must(err)
	stores, err := w.cloud.Store.Backups.Stores(t.Context())
	w.must(err)
	if len(plans) > 0 || len(stores) != 1 || stores[0].Name != "other" {
		t.Errorf("schedules: %v, stores: %v", plans, stores)
	}
	w.must(c.RemoveBackup(t.Context(), api.BackupNamed{Name: "kept"}))
	w.gone("berta", "kept")
}

func TestAStoreThatCannotBeUsedSaysWhy(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.store("main", w.repo, "secret")
	for _, c := range []struct{ name, repository, password, want string }{
		{"other-password", w.repo, "xyzzy", "the repository has another password"},
		{"no-directory", w.repo + "-none", "secret", "there is no directory"},
		{"other-files", filepath.Dir(w.repo), "secret", "has other files and is no repository"},
		{"silent", "rest:http://127.0.0.1:1/", "secret", "reached"},
	} {
		s := w.store(c.name, c.repository, c.password)
		if s.State != backup.Failed || !strings.Contains(s.Error, c.want) || strings.Contains(s.Error, "\n") {
			t.Errorf("%s: %s, %q", c.name, s.State, s.Error)
		}
	}
	for _, repository := range []string{"relative", "rclone:x:y", "rest:http://user:word@host/", "/"} {
		_, err := w.as("operator").CreateBackupStore(t.Context(), api.NewBackupStore{Name: "bad",
			Repository: repository,
			Password:   given("x")})
		if croft.KindOf(err) != croft.Invalid {
			t.Errorf("%s: %v", repository, err)
		}
	}
}

func TestAScheduleMakesBackupsAndRemovesOldOnes(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.store("main", w.repo, "secret")
	w.instance("berta", "web")
	c := w.as("berta")
	s, err := c.CreateBackupSchedule(t.Context(), api.NewBackupSchedule{Name: "often", Instance: "web", Every: 300,
		Keep: backup.Keep{Last: 1}})
	w.must(err)
	if s.Store != "main" {
		t.Errorf("its store is %q", s.Store)
	}
	list := func(ctx context.Context) []api.Backup {
		all, err := c.ListBackups(ctx, api.InProject{})
		w.must(err)
		return all.Backups
	}
	w.until("the first is made", func(ctx context.Context) bool {
		all := list(ctx)
		return len(all) == 1 && all[0].State == backup.Ready && all[0].Schedule == "often"
	})
	first := list(t.Context())[0].Name
	plan, err := w.cloud.Store.Backups.Plan(t.Context(), "berta", "often")
	w.must(err)
	plan.Last = plan.Last.Add(-time.Hour)
	_, err = w.cloud.Store.Backups.PutPlan(t.Context(), plan)
	w.must(err)
	w.until("only the second is kept", func(ctx context.Context) bool {
		all := list(ctx)
		return len(all) == 1 && all[0].State == backup.Ready && all[0].Name != first
	})
	overdue, err := c.ListUnprotected(t.Context(), api.OverdueFilter{})
	w.must(err)
	if len(overdue.Instances) != 0 {
		t.Errorf("overdue: %+v", overdue)
	}
	w.noSnapshots()
}

func TestAnInstanceOfADeadHostIsRecreatedFromItsLastBackup(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.store("main", w.repo, "secret")
	c, op := w.as("berta"), w.as("operator")
	var made []api.Instance
	for _, name := range []string{"kept", "never", "chosen"} {
		restart := croft.RestartElsewhereBackup
		if name == "chosen" {
			restart = croft.RestartOnFailure
		}
		inst, err := c.CreateInstance(t.Context(), api.NewInstance{InstanceRequest: api.InstanceRequest{Name: name,
			Query: "VCPU:1,MEMORY_MB:256,DISK_GB:1", Image: "debian-12",
			GuestSettings: croft.GuestSettings{Restart: restart}}})
		w.must(err)
		made = append(made, w.runs("berta", inst.ID, croft.StateRunning))
		w.must(os.WriteFile(w.disk(inst.ID), []byte("\x00content\nof "+name), 0o600))
	}
	w.backup("berta", "kept", "b1")
	w.backup("berta", "chosen", "b2")
	w.noSnapshots()
	w.must(w.cloud.AddHost(t.Context(), "host2", 8))
	w.must(w.cloud.StopHost(t.Context(), "host1"))
	fenced, err := op.FenceHost(t.Context(), api.HostFence{HostNamed: api.HostNamed{ID: "host1"},
		How: croft.ConfirmedOff, Confirm: "host1"})
	w.must(err)
	for _, l := range fenced.Lost {
		want := map[string]string{"kept": "b1", "never": "", "chosen": "b2"}[l.Name]
		if l.Backup != want || (l.To != "") != (l.Name == "kept") {
			t.Errorf("%s: recreated on %q, backup %q", l.Name, l.ToName, l.Backup)
		}
	}
	inst := w.runs("berta", made[0].ID, croft.StateRunning)
	disk := func(id croft.InstanceID) string {
		text, err := os.ReadFile(filepath.Join(w.cloud.Dir, "host2", string(id), "disk.qcow2"))
		w.must(err)
		return string(text)
	}
	if text := disk(inst.ID); !strings.HasSuffix(text, "of kept") {
		t.Errorf("its disk has %q", text)
	}
	w.runs("berta", made[1].ID, croft.StateLost)
	w.runs("berta", made[2].ID, croft.StateLost)
	_, err = c.RestoreBackup(t.Context(), api.BackupRestore{BackupNamed: api.BackupNamed{Name: "b2"}, InPlace: true})
	w.must(err)
	w.runs("berta", made[2].ID, croft.StateRunning)
	if text := disk(made[2].ID); !strings.HasSuffix(text, "of chosen") {
		t.Errorf("its disk has %q", text)
	}
	b, err := c.GetBackup(t.Context(), api.BackupNamed{Name: "b1"})
	w.must(err)
	if b.State != backup.Ready {
		t.Errorf("the backup is %s", b.State)
	}
}

func TestABackupWhoseStoreIsGoneFailsWithTheReasonAndLeavesNoSnapshot(t *testing.T) {
	t.Parallel()
	w := start(t)
	w.store("main", w.repo, "secret")
	w.instance("berta", "web")
	w.must(os.RemoveAll(filepath.Join(w.repo, "config"))) // the store is lost meanwhile
	b := w.backup("berta", "web", "b1")
	if b.State != backup.Failed || b.Error == "" || strings.Contains(b.Error, "\n") {
		t.Fatalf("backup: %s, %q", b.State, b.Error)
	}
	w.noSnapshots()
	overdue, err := w.as("berta").ListUnprotected(t.Context(), api.OverdueFilter{})
	w.must(err)
	if len(overdue.Instances) != 1 || overdue.Instances[0].Last != nil || overdue.Instances[0].Failed == "" {
		t.Errorf("overdue: %+v", overdue)
	}
}

// volume is the file of a volume on a simulated host.
func (w world) volume(host string, id croft.VolumeID) string {
	return filepath.Join(w.cloud.Dir, host, "volumes", string(id), "disk.qcow2")
}

// withBig starts a cloud with a store and the host big, which alone takes instances.
func withBig(t *testing.T) world {
	w := start(t)
	w.store("main", w.repo, "secret")
	w.must(w.cloud.AddHost(t.Context(), "big", 16))
	_, err := w.as("operator").DrainHost(t.Context(), api.HostNamed{ID: "host1"})
	w.must(err)
	return w
}

// withVolume creates an instance with a volume, and gives both disks contents.
func (w world) withVolume(name, volume string) (api.Instance, croft.VolumeID) {
	w.Helper()
	inst, err := w.as("berta").CreateInstance(w.Context(), api.NewInstance{InstanceRequest: api.InstanceRequest{
		Name: name, Query: "VCPU:1,MEMORY_MB:256,DISK_GB:1", Image: "debian-12",
		Disks: []croft.NewDisk{{Name: volume, SizeGB: 1}}}})
	w.must(err)
	inst = w.runs("berta", inst.ID, croft.StateRunning)
	v, err := w.cloud.Store.Volumes.Find(w.Context(), "berta", volume)
	w.must(err)
	w.must(os.WriteFile(w.on("big", inst.ID), []byte("\x00content\nof "+name), 0o600))
	w.must(os.WriteFile(w.volume("big", v.ID), []byte("\x00content\nof "+volume), 0o600))
	return inst, v.ID
}

// kill declares the host big dead, and adds host2.
func (w world) kill() {
	w.Helper()
	w.must(w.cloud.AddHost(w.Context(), "host2", 16))
	w.must(w.cloud.StopHost(w.Context(), "big"))
	_, err := w.as("operator").FenceHost(w.Context(), api.HostFence{HostNamed: api.HostNamed{ID: "big"},
		How: croft.ConfirmedOff, Confirm: "big"})
	w.must(err)
}

// reads compares what a file ends with.
func (w world) reads(file, want string) {
	w.Helper()
	text, err := os.ReadFile(file)
	if err != nil || !strings.HasSuffix(string(text), want) {
		w.Errorf("%s has %q, %v, want %q", file, text, err, want)
	}
}

// diesAfterClaim begins to recreate a lost instance with its volume on host2, as a process that dies between the claim
// of the volume and the order, and waits until a caretaker has taken that back.
func (w world) diesAfterClaim(id croft.InstanceID, volume croft.VolumeID) {
	w.Helper()
	ctx, to := w.Context(), w.cloud.Hosts["host2"].ID
	dying, err := etcdstore.Open(ctx, etcdstore.Config{Endpoints: []string{w.cloud.Etcd.Endpoint()},
		DialTimeout: patient.Longest})
	w.must(err)
	requests := func(s *etcdstore.Store) *volumes.Manager {
		return &volumes.Manager{Partition: s.Partition(), Store: s.Volumes, Claims: w.cloud.Claims, Hosts: s.Registry,
			Instances: s.Instances, Log: slog.New(slog.DiscardHandler)}
	}
	claims := func() bool {
		claim, err := w.cloud.Claims.ClaimOf(ctx, volume.Consumer())
		w.must(err)
		return len(claim.Allocations[to]) > 0
	}
	inst, err := dying.Instances.Instance(ctx, id)
	w.must(err)
	_, err = dying.Instances.Recreate(ctx, inst)
	w.must(err)
	v, err := dying.Volumes.Find(ctx, inst.Project, "data")
	w.must(err)
	_, err = requests(dying).Begin(ctx, to, []croft.Volume{v})
	w.must(err)
	if !claims() {
		w.Fatal("the volume does not claim on the new host")
	}
	w.must(dying.Close()) // and with it its session
	caretaker := &audit.Caretaker{Records: w.cloud.Store.Records, Shared: w.cloud.Store.Turn,
		Inventory: w.cloud.Claims, Volumes: requests(w.cloud.Store), Every: 100 * time.Millisecond,
		Log: slog.New(slog.DiscardHandler)}
	w.until("the claim is taken back", func(ctx context.Context) bool {
		w.must(caretaker.Sweep(ctx))
		now, err := w.cloud.Store.Instances.Instance(ctx, id)
		w.must(err)
		return now.State == croft.StateLost && !claims()
	})
}

func TestAnInstanceThatIsLostWithItsVolumesIsRestoredWithThemOnAnotherHost(t *testing.T) {
	t.Parallel()
	w := withBig(t)
	c := w.as("berta")
	both, data := w.withVolume("both", "data")
	alone, more := w.withVolume("alone", "more")
	for _, b := range []string{"both", "alone"} {
		if made := w.backup("berta", b, "of-"+b); made.State != backup.Ready || len(made.Disks) != 2 {
			t.Fatalf("backup: %+v", made)
		}
	}
	w.noSnapshots()
	w.kill()
	lost, err := c.GetInstance(t.Context(), api.InstanceShown{InstanceNamed: api.InstanceNamed{ID: "both"}})
	w.must(err)
	if lost.State != string(croft.StateLost) || lost.LastBackup != "of-both" {
		t.Errorf("it is %s, with the last backup %q", lost.State, lost.LastBackup)
	}
	restore := func(in api.BackupRestore, of string) (api.Instance, error) {
		in.Name = of
		return c.RestoreBackup(t.Context(), in)
	}

	t.Run("after a request that died once it had claimed the volume", func(t *testing.T) {
		w.diesAfterClaim(both.ID, data)
	})

	t.Run("in place", func(t *testing.T) {
		inst, err := restore(api.BackupRestore{InPlace: true}, "of-both")
		w.must(err)
		if inst.ID != both.ID {
			t.Fatalf("restored as %s", inst.ID)
		}
		w.runs("berta", both.ID, croft.StateRunning)
		w.reads(w.on("host2", both.ID), "of both")
		w.reads(w.volume("host2", data), "of data")
		v, err := w.cloud.Store.Volumes.Find(t.Context(), "berta", "data")
		w.must(err)
		if v.Host != w.cloud.Hosts["host2"].ID || v.Instance != both.ID || v.ID != data {
			t.Errorf("the volume is %+v", v)
		}
	})

	t.Run("without its volume", func(t *testing.T) {
		_, err := restore(api.BackupRestore{InPlace: true, WithoutVolumes: true}, "of-alone")
		if croft.KindOf(err) != croft.Conflict || !strings.Contains(err.Error(), "croft volume detach more") {
			t.Errorf("with a volume that is not restored: %v", err)
		}
		_, err = c.DetachVolume(t.Context(), api.VolumeNamed{Name: "more"})
		w.must(err)
		_, err = restore(api.BackupRestore{InPlace: true}, "of-alone")
		if croft.KindOf(err) != croft.Conflict || !strings.Contains(err.Error(), "--without-volumes") {
			t.Errorf("without a volume that is restored: %v", err)
		}
		_, err = restore(api.BackupRestore{InPlace: true, WithoutVolumes: true}, "of-alone")
		w.must(err)
		w.runs("berta", alone.ID, croft.StateRunning)
		w.reads(w.on("host2", alone.ID), "of alone")
	})

	t.Run("as a new instance", func(t *testing.T) {
		inst, err := restore(api.BackupRestore{As: "copy"}, "of-alone")
		w.must(err)
		w.runs("berta", inst.ID, croft.StateRunning)
		w.reads(w.on("host2", inst.ID), "of alone")
		v, err := w.cloud.Store.Volumes.Find(t.Context(), "berta", "copy-more") // the name more is taken
		w.must(err)
		if v.ID == more || v.Instance != inst.ID {
			t.Errorf("the volume is %+v", v)
		}
		w.reads(w.volume("host2", v.ID), "of more")
	})
	w.nothingRestores()
}

func TestALostInstanceThatIsNotRestoredSaysWhyAndIsRestoredFromAnotherBackup(t *testing.T) {
	t.Parallel()
	w := withBig(t)
	c := w.as("berta")
	web, data := w.withVolume("web", "data")
	w.backup("berta", "web", "b1")
	w.must(os.Mkdir(w.repo+".other", 0o700))
	w.store("other", w.repo+".other", "secret")
	_, err := c.CreateBackup(t.Context(), api.NewBackup{InstanceNamed: api.InstanceNamed{ID: "web"}, Name: "b2",
		Store: "other"})
	w.must(err)
	w.settled("berta", "b2")
	w.noSnapshots()
	w.kill()
	w.damage()
	in := api.BackupRestore{BackupNamed: api.BackupNamed{Name: "b1"}, InPlace: true}
	_, err = c.RestoreBackup(t.Context(), in)
	w.must(err)
	if inst := w.restored(web.ID); inst.State != string(croft.StateFailed) || inst.Backup.State != api.Unrestored ||
		inst.Backup.Error == "" {
		t.Fatalf("it is %s, %+v", inst.State, inst.Backup)
	}
	in.Name = "b2" // in the other store
	_, err = c.RestoreBackup(t.Context(), in)
	w.must(err)
	w.runs("berta", web.ID, croft.StateRunning)
	w.reads(w.on("host2", web.ID), "of web")
	w.reads(w.volume("host2", data), "of data")
}
