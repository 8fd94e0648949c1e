package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"croft"
	"croft/node"
)

// fillTo fills a disk up to some remaining MiB, and returns a function that frees it.
func fillTo(t *testing.T, dir string, left int64) (empty func()) {
	t.Helper()
	var s unix.Statfs_t
	check(t, unix.Statfs(dir, &s))
	f, err := os.Create(filepath.Join(dir, "filler"))
	check(t, err)
	defer f.Close()
	check(t, unix.Fallocate(int(f.Fd()), 0, 0, int64(s.Bavail)*s.Bsize-left<<20))
	return func() { check(t, os.Remove(f.Name())) }
}

// Of three hosts that serve, the one with a full disk continues with the etcd of the others, and serves again
// once there is space; its process does not end.
func TestAHostWhoseDiskIsFullServesNoEtcdUntilThereIsRoom(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounts a disk: run as root")
	}
	address := reachable(t)
	first := serverSettings(t, "first", address)
	startHost(t, first)
	t.Setenv("CROFT_STATE_DIR", first.StateDir)
	token, _ := command(t, croft.ExitOK, "token", "create")
	second, third := serverSettings(t, "second", address), serverSettings(t, "third", address)
	disk := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=1500m", "tmpfs",
		disk).CombinedOutput(); err != nil {
		t.Skipf("mount a tmpfs: %v: %s", err, out)
	}
	t.Cleanup(func() { check(t, unix.Unmount(disk, unix.MNT_DETACH)) })
	third.StateDir = filepath.Join(disk, "third")
	check(t, node.Join(t.Context(), second, token, true, &bytes.Buffer{}))
	check(t, node.Join(t.Context(), third, token, true, &bytes.Buffer{}))
	startHost(t, second)
	stop := startHost(t, third)
	awaitRoles(t, "first ready member", "second ready member", "third ready member")

	empty := fillTo(t, disk, 50)
	awaitRoles(t, "first ready member", "second ready member", "third ready silent")
	command(t, croft.ExitOK, "schedule", "VCPU:1,MEMORY_MB:64,DISK_GB:1", "--name", "web", "--wait")
	empty()
	awaitRoles(t, "first ready member", "second ready member", "third ready member")
	if code, said := stop(); code != croft.ExitOK {
		t.Errorf("the third ended with %d: %s", code, said)
	}
}
