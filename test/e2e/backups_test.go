package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"croft/compute/restic"
)

// TestAGuestIsRestoredFromABackup: what a guest wrote before its backup is on the disk of a new instance, and on its
// own disk after it was restored in place.
func TestAGuestIsRestoredFromABackup(t *testing.T) {
	t.Parallel()
	if missing := restic.Missing(); len(missing) > 0 {
		t.Skipf("%v are missing", missing)
	}
	gb := 10
	if testing.Short() { // restic reads all of it, several times
		gb = 1
	}
	// The process that serves the API carries out backups, and has the key that seals the password of the store.
	listen := freePorts(t, 1)[0]
	c := newCloud(t, "cloud_api: {listen: \""+listen+"\"}\noffer: {disk_ratio: 4}\n")
	r := c.run("croft", "token", "create", "--for", "api", "--user", "root", "--role", "partition-admin")
	if r.exit != 0 {
		t.Fatalf("croft token create: %v", r)
	}
	c.url, c.token = "http://"+listen, strings.TrimSpace(r.stdout)
	key := c.newKey()
	repository, password := t.TempDir(), filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("the password of the store\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	croft := func(args ...string) string {
		t.Helper()
		r := c.run("croft", args...)
		if r.exit != 0 {
			t.Fatalf("croft %s: %v", strings.Join(args, " "), r)
		}
		return r.stderr
	}
	croft("backup", "store", "add", "main", repository, "--password-file", password)
	id := c.id(c.must("--name", "kept", "--key", key+".pub", "--wait=ready",
		fmt.Sprintf("VCPU:1,MEMORY_MB:256,DISK_GB:%d", gb), guestImage))
	try := func(name, command, want string) error {
		r := c.schedule("ssh", "--user", "root", "--identity", key, name, command)
		if r.exit != 0 || strings.TrimSpace(r.stdout) != want {
			return fmt.Errorf("%s: %v, want %q", command, r, want)
		}
		return nil
	}
	// The guest's files are in memory: the text is beyond the image.
	at := fmt.Sprint(gb<<21 - 1<<20)
	write := func(text string) {
		t.Helper()
		eventually(t, "the guest writes", func(context.Context) error {
			return try("kept", "echo "+text+" | dd of=/dev/vda bs=512 seek="+at+" conv=notrunc; sync", "")
		})
	}
	reads := func(name, text string) {
		t.Helper()
		eventually(t, "the guest reads "+text, func(context.Context) error {
			return try(name, "dd if=/dev/vda bs=512 skip="+at+" count=1 | head -n 1", text)
		})
	}
	write("first")
	begun := time.Now()
	said := croft("backup", "create", "kept", "one")
	t.Logf("a backup of %d GB took %v: %s", gb, time.Since(begun), said)
	write("second")
	begun = time.Now()
	croft("backup", "create", "kept", "two")
	t.Logf("a second backup of %d GB took %v", gb, time.Since(begun))
	croft("backup", "restore", "one", "--as", "copied")
	reads("copied", "first")
	reads("kept", "second")
	c.must("stop", "--wait", "kept")
	croft("backup", "restore", "one", "--in-place")
	c.must("start", "--wait=ready", "kept")
	reads("kept", "first")
	croft("backup", "check", "two")
	croft("backup", "remove", "one", "two")
	c.must("destroy", "--wait", "kept", "copied")
	croft("backup", "store", "remove", "main")
	c.nothingLeft(id)
}
