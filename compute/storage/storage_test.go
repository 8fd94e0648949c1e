package storage_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"croft"
	"croft/compute/storage"
)

const (
	partition croft.PartitionID = "c0000000-0000-4000-8000-000000000000"
	web       croft.InstanceID  = "11111111-1111-4111-8111-111111111111"
	hostA     croft.HostID      = "a0000000-0000-4000-8000-000000000000"
	hostB     croft.HostID      = "b0000000-0000-4000-8000-000000000000"
	hostC     croft.HostID      = "cc000000-0000-4000-8000-000000000000"
	nfs1      croft.StorageID   = "50000000-0000-4000-8000-000000000000"
)

// mount returns the access of a host to a directory.
func mount(path string, host croft.HostID) *storage.Dir {
	return storage.New(storage.Config{Name: "nfs1", Path: path, Host: host, Partition: partition,
		RenewEvery: 20 * time.Millisecond})
}

// founded returns the access of a host to a directory with an identity.
func founded(t *testing.T, path string, host croft.HostID) *storage.Dir {
	t.Helper()
	d := mount(path, host)
	if err := d.Found(t.Context(), nfs1); err != nil {
		t.Fatal(err)
	}
	d.Expect(nfs1)
	return d
}

func TestADirectoryThatIsNotMountedIsRefusedAndStaysEmpty(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	d := mount(path, hostA)
	d.Expect(nfs1)
	_, err := d.Identity(t.Context())
	wantKind(t, err, croft.NotFound, "is not mounted there")
	wantKind(t, d.Acquire(t.Context(), web), croft.NotFound, "is not mounted there")
	wantKind(t, d.Prepare(t.Context(), web), croft.NotFound, "is not mounted there")
	if _, err := d.Renew(t.Context()); err == nil {
		t.Error("the lease was renewed in a directory that is not the storage")
	}
	if entries, _ := os.ReadDir(path); len(entries) > 0 {
		t.Errorf("the directory has %v, want nothing", entries)
	}
	_, err = mount(filepath.Join(path, "missing"), hostA).Identity(t.Context())
	wantKind(t, err, croft.Invalid, "is no directory")
}

func TestAnotherDirectoryAtThePathIsRefused(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	d := founded(t, path, hostA)
	d.Expect("60000000-0000-4000-8000-000000000000")
	wantKind(t, d.Acquire(t.Context(), web), croft.Unavailable, "has the storage "+string(nfs1)+" now")
	for text, want := range map[string]string{
		`{"id":"50000000-0000-4000-8000-000000000000","name":"nfs1","partition":"other"}`:                     "belongs to another cloud",
		`{"id":"50000000-0000-4000-8000-000000000000","name":"nfs2","partition":"` + string(partition) + `"}`: "is the storage",
		`{"id":"x"}`: "is damaged", ``: "is damaged",
	} {
		if err := os.WriteFile(filepath.Join(path, "croft-storage.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Identity(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("identity %s: got %v, want %q", text, err, want)
		}
	}
}

func TestOfManyFoundersOneGivesTheIdentity(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	var work sync.WaitGroup
	for range 8 {
		work.Go(func() {
			if err := mount(path, hostA).Found(t.Context(), croft.NewStorageID()); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	first, err := mount(path, hostA).Identity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := mount(path, hostB).Found(t.Context(), nfs1); err != nil {
		t.Fatal(err)
	}
	if again, err := mount(path, hostB).Identity(t.Context()); err != nil || again != first {
		t.Errorf("the identity is %v (%v) after another host founded it, want %v", again, err, first)
	}
}

func TestADiskHasOneHost(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	a, b := founded(t, path, hostA), founded(t, path, hostB)
	ctx := t.Context()
	must(t, a.Acquire(ctx, web))
	must(t, a.Acquire(ctx, web))
	wantKind(t, b.Acquire(ctx, web), croft.Conflict, "belongs to host "+string(hostA))
	wantKind(t, b.Acquire(ctx, web, hostC), croft.Conflict, "belongs to host "+string(hostA))
	must(t, b.Remove(ctx, web)) // not its own: nothing happens
	must(t, b.Release(ctx, web))
	wantKind(t, b.Acquire(ctx, web), croft.Conflict, "belongs to host "+string(hostA))
	must(t, a.Release(ctx, web))
	must(t, b.Acquire(ctx, web))
	wantKind(t, a.Acquire(ctx, web), croft.Conflict, "belongs to host "+string(hostB))
	made := func() bool {
		was, err := a.WasMade(ctx, web)
		must(t, err)
		return was
	}
	must(t, b.Prepare(ctx, web))
	if made() {
		t.Error("the disk was made before a host noted it")
	}
	must(t, b.NoteMade(ctx, web))
	must(t, b.NoteMade(ctx, web))
	must(t, a.Remove(ctx, web))
	if !made() {
		t.Error("the disk was never made after its host noted it")
	}
	if _, err := os.Stat(b.Disks(web)); err != nil {
		t.Errorf("a host removed the disk of another one: %v", err)
	}
	must(t, b.Remove(ctx, web))
	must(t, b.Remove(ctx, web))
	if _, err := os.Stat(b.Disks(web)); err == nil || made() {
		t.Error("the disk is there after its host removed it")
	}
	must(t, a.Acquire(ctx, web))
}

func TestOfManyHostsAtOnceOneGetsTheDisk(t *testing.T) {
	t.Parallel()
	for range 20 {
		path := t.TempDir()
		founded(t, path, hostA)
		var mu sync.Mutex
		var got []croft.HostID
		var work sync.WaitGroup
		for range 6 {
			host := croft.NewHostID()
			d := mount(path, host)
			d.Expect(nfs1)
			work.Go(func() {
				if err := d.Acquire(t.Context(), web); err == nil {
					mu.Lock()
					defer mu.Unlock()
					got = append(got, host)
				} else if !errors.Is(err, croft.Conflict) {
					t.Error(err)
				}
			})
		}
		work.Wait()
		if len(got) != 1 {
			t.Fatalf("%d hosts got the disk, want one", len(got))
		}
	}
}

func TestADiskIsTakenFromADeadHostThatIsSilent(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	a, b := founded(t, path, hostA), founded(t, path, hostB)
	ctx := t.Context()
	must(t, a.Acquire(ctx, web))
	ctx, cancel := context.WithCancel(ctx)
	var renewing sync.WaitGroup
	renewing.Go(func() {
		for ctx.Err() == nil {
			_, _ = a.Renew(ctx)
			time.Sleep(5 * time.Millisecond)
		}
	})
	time.Sleep(20 * time.Millisecond)
	wantKind(t, b.Acquire(ctx, web, hostA), croft.Conflict, "was declared dead and still uses the storage")
	cancel()
	renewing.Wait()
	time.Sleep(100 * time.Millisecond) // a renewal that was abandoned may still be under way
	must(t, b.Acquire(t.Context(), web, hostA))

	// the host was only frozen: when it thaws, it finds that it has lost the disk
	lost, err := a.Renew(t.Context())
	if err != nil || !slices.Equal(lost, []croft.InstanceID{web}) {
		t.Errorf("after it thawed, the host lost %v (%v), want %s", lost, err, web)
	}
	wantKind(t, a.Acquire(t.Context(), web), croft.Conflict, "belongs to host "+string(hostB))
	must(t, a.Remove(t.Context(), web))
	if lost, err := b.Renew(t.Context()); err != nil || len(lost) > 0 {
		t.Errorf("the new host lost %v (%v)", lost, err)
	}
}

// TestALateTakerChangesNothing has a host take a lock that it read before two others had it.
func TestALateTakerChangesNothing(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	a, b, c := founded(t, path, hostA), founded(t, path, hostB), founded(t, path, hostC)
	must(t, a.Acquire(t.Context(), web))
	late := make(chan error)
	go func() { late <- b.Acquire(t.Context(), web, hostA) }() // it observes the lease of A for 50 ms
	time.Sleep(10 * time.Millisecond)
	must(t, a.Release(t.Context(), web))
	must(t, c.Acquire(t.Context(), web))
	wantKind(t, <-late, croft.Conflict, "belongs to host "+string(hostC))
	if holder, err := a.Holder(t.Context(), web); err != nil || holder != hostC {
		t.Errorf("the disk belongs to %s (%v), want %s", holder, err, hostC)
	}
}

// TestAHungServerBlocksNobody replaces a file of the storage by a pipe without a writer: reads of it never return.
func TestAHungServerBlocksNobody(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	d := founded(t, path, hostA)
	d.Patience = 300 * time.Millisecond
	must(t, d.Acquire(t.Context(), web))
	identity := filepath.Join(path, "croft-storage.json")
	text, err := os.ReadFile(identity)
	must(t, err)
	must(t, os.Remove(identity))
	must(t, syscall.Mkfifo(identity, 0o644))
	begun := time.Now()
	_, err = d.Renew(t.Context())
	wantKind(t, err, croft.Unavailable, "does not respond")
	_, again := d.Renew(t.Context())
	_, other := d.Identity(t.Context())
	for _, later := range []error{again, other} {
		if later == nil || later.Error() != err.Error() {
			t.Errorf("a later access says %v, want %v, so that it is logged once", later, err)
		}
	}
	for i := range 20 {
		id := croft.InstanceID(fmt.Sprintf("%08d-1111-4111-8111-111111111111", i))
		wantKind(t, d.Acquire(t.Context(), id), croft.Unavailable, "does not respond")
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("accesses to a hung storage took %s", took)
	}
	// the server is back: what waited for it returns, and the storage works again
	writer, err := os.OpenFile(identity, os.O_WRONLY, 0)
	must(t, err)
	must(t, os.Remove(identity))
	must(t, os.WriteFile(identity, text, 0o644))
	must(t, writer.Close())
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		_, err = d.Renew(t.Context())
		if err == nil {
			err = d.Acquire(t.Context(), web)
		}
		if err == nil || time.Now().After(deadline) {
			break
		}
	}
	must(t, err)
}

func TestTheSpaceOfDisksIsNotForeign(t *testing.T) {
	t.Parallel()
	d := founded(t, t.TempDir(), hostA)
	u, err := d.Usage(t.Context())
	if err != nil || u.TotalGB < 0 || u.ForeignGB < 0 {
		t.Errorf("usage is %+v (%v)", u, err)
	}
	must(t, d.Acquire(t.Context(), web))
	must(t, d.Prepare(t.Context(), web))
	if all, err := d.Instances(t.Context()); err != nil || !slices.Equal(all, []croft.InstanceID{web}) {
		t.Errorf("the storage has disks of %v (%v), want %s", all, err, web)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantKind(t *testing.T, err error, kind croft.Kind, words string) {
	t.Helper()
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), words) {
		t.Errorf("got %v, want %v with %q", err, kind, words)
	}
}

func TestTheFileOfAVolumeIsOfTheHostWithItsLock(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	a, b := founded(t, path, hostA), founded(t, path, hostB)
	ctx, data := t.Context(), croft.VolumeID(web)
	must(t, a.AcquireVolume(ctx, data))
	must(t, a.PrepareVolume(ctx, data))
	must(t, a.PrepareVolume(ctx, data))
	must(t, os.WriteFile(filepath.Join(a.Volume(data), "disk.qcow2"), []byte("data"), 0o600))
	for d, want := range map[*storage.Dir][]croft.VolumeID{a: {data}, b: nil} {
		if locked, err := d.Locked(ctx); err != nil || !slices.Equal(locked.Volumes, want) {
			t.Errorf("host %s has the locks of %v (%v), want %v", d.Host, locked, err, want)
		}
	}
	must(t, b.RemoveVolume(ctx, data))
	must(t, a.Release(ctx, data.Consumer()))
	must(t, a.RemoveVolume(ctx, data))
	if _, err := os.Stat(filepath.Join(b.Volume(data), "disk.qcow2")); err != nil {
		t.Errorf("the file was removed by a host without its lock: %v", err)
	}
	must(t, b.AcquireVolume(ctx, data))
	must(t, b.RemoveVolume(ctx, data))
	must(t, b.RemoveVolume(ctx, data))
	if _, err := os.Stat(b.Volume(data)); err == nil {
		t.Error("the file is there after its host removed it")
	}
}

func TestAHostFindsTheLockOfAVolumeWithoutAFile(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	a, b := founded(t, path, hostA), founded(t, path, hostB)
	ctx, data := t.Context(), croft.VolumeID(web)
	must(t, a.AcquireVolume(ctx, data)) // and it died before it made the file, or after it removed it
	bare, disk := croft.InstanceID(hostC), croft.InstanceID(hostB)
	must(t, a.Acquire(ctx, bare))
	must(t, a.Acquire(ctx, disk))
	must(t, a.Prepare(ctx, disk))
	if locked, err := founded(t, path, hostA).Locked(ctx); err != nil || !slices.Equal(locked.Volumes,
		[]croft.VolumeID{data}) || !slices.Equal(locked.Bare, []croft.InstanceID{bare}) {
		t.Errorf("host A has the locks of %v (%v), want %v and %v", locked, err, data, bare)
	}
	for _, id := range []croft.InstanceID{bare, disk} {
		must(t, b.RemoveBare(ctx, id)) // it has none of them
		must(t, a.RemoveBare(ctx, id))
	}
	for id, want := range map[croft.InstanceID]croft.HostID{bare: "", disk: hostA} {
		if holder, err := b.Holder(ctx, id); err != nil || holder != want {
			t.Errorf("host %q has the lock of %s (%v), want %q", holder, id, err, want)
		}
	}
	must(t, a.Release(ctx, data.Consumer()))
	must(t, b.AcquireVolume(ctx, data))
	must(t, b.RemoveVolume(ctx, data))
	if locked, err := b.Locked(ctx); err != nil || len(locked.Volumes) > 0 {
		t.Errorf("host B has the locks of %v (%v), want none", locked, err)
	}
}

// TestManyDisksAreTakenFromADeadHostInTheTimeOfOne has a host observe the lease of a dead one once.
func TestManyDisksAreTakenFromADeadHostInTheTimeOfOne(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	a, b := founded(t, path, hostA), founded(t, path, hostB)
	b.RenewEvery = 2 * time.Second
	const disks = 16
	id := func(i int) croft.InstanceID {
		return croft.InstanceID(fmt.Sprintf("%08d-1111-4111-8111-111111111111", i))
	}
	for i := range disks {
		must(t, a.Acquire(t.Context(), id(i)))
	}
	_, err := a.Renew(t.Context())
	must(t, err)
	begun := time.Now()
	for i := range disks {
		must(t, b.Acquire(t.Context(), id(i), hostA))
	}
	if took := time.Since(begun); took < 5*time.Second || took > 30*time.Second {
		t.Errorf("%d disks were taken in %s, want 5 s and a little more", disks, took)
	}
}
