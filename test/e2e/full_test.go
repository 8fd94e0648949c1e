package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// fullDisk is the file system of the disks of a cloud, and a file that leaves it nearly no space.
type fullDisk struct {
	t      *testing.T
	filler string
}

// smallDisk puts the disks of a cloud that has none yet on a small file system of their own.
func smallDisk(c *cloud) fullDisk {
	c.t.Helper()
	at, file := filepath.Join(c.dir, "instances"), filepath.Join(c.t.TempDir(), "disk")
	c.signal(syscall.SIGTERM)
	for _, args := range [][]string{{"truncate", "-s", "1200M", file}, {"mkfs.ext4", "-q", file},
		{"mount", "-o", "loop", file, at}} {
		if err := command(args[0], args[1:]...); err != nil {
			c.t.Fatalf("%s: %v", strings.Join(args, " "), err)
		}
	}
	c.t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) }) // its guests are removed later
	c.start()
	return fullDisk{c.t, filepath.Join(at, "filler")}
}

// fill leaves so many MiB.
func (d fullDisk) fill(left int64) {
	d.t.Helper()
	f, err := os.Create(d.filler)
	if err == nil {
		var st unix.Statfs_t
		err = unix.Fstatfs(int(f.Fd()), &st)
		if err == nil {
			err = unix.Fallocate(int(f.Fd()), 0, 0, int64(st.Bavail)*st.Bsize-left<<20)
		}
		f.Close()
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d fullDisk) empty() {
	d.t.Helper()
	if err := os.Remove(d.filler); err != nil {
		d.t.Fatal(err)
	}
}

// TestAFullHostDiskLosesNothing: while the disk of a host is full, its guest is paused as soon as it writes, no volume
// is made, no snapshot is taken, rolled back to or merged, and each of these says why. When there is space again, the
// guest goes on by itself, the volume is made, and the snapshot is merged.
func TestAFullHostDiskLosesNothing(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("its guest waits for the host several times: make test-guests")
	}
	c := newCloud(t, "")
	disk, key := smallDisk(c), c.newKey()
	c.volume("create", "data", "1G")
	id := c.id(c.must("--name", "full", "--key", key+".pub", "--volume", "data", "--wait=ready", small, guestImage))
	guest := func(command string) result {
		return c.schedule("ssh", "--user", "root", "--identity", key, "full",
			`for d in /sys/block/vd*; do [ "$(cat $d/serial)" = data ] && disk=/dev/${d##*/}; done; `+command)
	}
	reads := func(want string) {
		t.Helper()
		eventually(t, "the guest reads "+want, func(context.Context) error {
			if r := guest("head -n 1 $disk"); r.exit != 0 || strings.TrimSpace(r.stdout) != want {
				return fmt.Errorf("%v, want %q", r, want)
			}
			return nil
		})
	}
	says := func(want string, name string, args ...string) {
		t.Helper()
		eventually(t, strings.Join(args, " ")+" says: "+want, func(context.Context) error {
			if r := c.run(name, args...); r.exit != 0 || !strings.Contains(r.stdout, want) {
				return fmt.Errorf("%v", r)
			}
			return nil
		})
	}
	if r := guest("echo before > $disk && sync"); r.exit != 0 {
		t.Fatal(r)
	}

	// A guest that writes, a volume, and a snapshot.
	disk.fill(40)
	if r := guest("(yes | dd of=$disk bs=1M seek=10 count=100 iflag=fullblock; echo ended > /tmp/ended) " +
		"> /dev/null 2>&1 < /dev/null & echo begun"); r.exit != 0 {
		t.Fatal(r)
	}
	says("the guest is paused, because the disk of its host is full", "schedule", "show", "full", "-o", "table")
	if r := c.run("croft", "volume", "create", "more", "1G"); r.exit != 6 ||
		!strings.Contains(r.stderr, "free some space") {
		t.Errorf("a volume on a full disk: %v, want exit code 6 and the reason", r)
	}
	if r := c.run("croft", "snapshot", "create", "full", "none"); r.exit != 5 ||
		!strings.Contains(r.stderr, "it failed, so its disks may be incomplete") {
		t.Errorf("a snapshot of a guest that is paused: %v, want exit code 5 and the reason", r)
	}
	disk.empty()
	says("available", "croft", "volume", "show", "more")
	eventually(t, "the guest has written all", func(context.Context) error {
		if r := guest("cat /tmp/ended"); strings.TrimSpace(r.stdout) != "ended" {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	reads("before")

	// A merge, and a rollback.
	c.snapshot("create", "full", "kept")
	if r := guest("echo after > $disk && yes | dd of=$disk bs=1M seek=10 count=100 iflag=fullblock && sync"); r.exit != 0 {
		t.Fatal(r)
	}
	disk.fill(20)
	if r := c.run("croft", "snapshot", "rollback", "full", "kept", "--stop"); r.exit == 0 ||
		!strings.Contains(r.stderr, "nothing was lost") {
		t.Errorf("a rollback on a full disk: %v, want that nothing was lost", r)
	}
	reads("after")
	if r := c.run("croft", "snapshot", "remove", "full", "kept"); r.exit != 6 || !strings.Contains(r.stderr, "free") {
		t.Errorf("a merge on a full disk: %v, want exit code 6 and the reason", r)
	}
	reads("after")
	disk.empty()
	eventually(t, "the snapshot is merged", func(context.Context) error {
		if r := c.run("croft", "snapshot", "list", "full"); r.exit != 0 || strings.Contains(r.stdout, "kept") {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	reads("after")
	c.must("destroy", "--wait", "full")
	c.volume("remove", "data", "more")
	c.nothingLeft(id)
}
