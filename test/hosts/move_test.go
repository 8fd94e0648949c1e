package hosts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"croft/compute/restic"
	"croft/internal/testing/freeport"
	"croft/internal/testing/libvirttest"
)

// guestDisk runs a command in a guest of the host, in the host's network, and returns its output.
func (h *host) guestDisk(key, address, command string) (string, error) {
	out, err := exec.CommandContext(h.w.t.Context(), "nsenter", "--net",
		"--target", fmt.Sprint(h.process.cmd.Process.Pid), "ssh", "-i", key, "-o", "BatchMode=yes",
		"-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
		"-o", "LogLevel=ERROR", "-o", "ConnectTimeout=10", "root@"+address, command).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// TestAGuestMovesWithItsDisk: what a guest has written on its disk and on its volume is there after a move between
// hosts that reach each other only over TLS, and etcd and Placement not at all; then its old host has nothing of it. A
// snapshot prevents the move. Disk and volume grow on the new host, and another guest there gets the volume. What was
// written is also on the disk of another instance, restored on the first host from a backup, and moves with it.
func TestAGuestMovesWithItsDisk(t *testing.T) {
	libvirttest.Start(t)
	listen := freeport.For(t, "127.0.0.1")
	w := newGuardedCenter(t, "cloud_api: {listen: \""+listen+"\"}\n")
	e, f := w.newHost("e", 15), w.newHost("f", 16)
	for _, h := range []*host{e, f} {
		h.token, h.certified = w.invite(), true
		h.start()
		h.waitUntilReady()
	}
	key := filepath.Join(w.dir, "id")
	must(t, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
	user := func(args ...string) {
		t.Helper()
		if r := w.user("croft", args...); r.exit != 0 {
			t.Fatalf("croft %s: %v", strings.Join(args, " "), r)
		}
	}
	user("host", "drain", "f")
	request := func(name string, more ...string) {
		t.Helper()
		w.must(append(more, "resources=VCPU:1,MEMORY_MB:96,DISK_GB:1", guestImage, "--name", name, "--key", key+".pub",
			"--wait=ready", "--timeout", patience.String())...)
	}
	user("volume", "create", "data", "1G")
	request("web", "--volume", "data")
	user("host", "enable", "f")
	const written = `for i in 1 2 3; do echo "kept $i"; done`
	const volume = `for d in /sys/block/vd*; do [ "$(cat $d/serial)" = data ] && disk=/dev/${d##*/}; done; `
	command := volume + `(` + written + `) | dd of=/dev/vda bs=1M seek=900 conv=notrunc 2>/dev/null && ` +
		`echo volume > $disk && sync`
	eventually(t, "the guest writes on its disk", func(context.Context) error {
		out, err := e.guestDisk(key, w.must("web"), command)
		if err != nil {
			return fmt.Errorf("%s: %w", out, err)
		}
		return nil
	})
	id := w.show("web").ID
	user("snapshot", "create", "web", "before")
	const remedy = "croft snapshot remove web before"
	if r := w.schedule("move", "web", "f"); r.exit != 5 || !strings.Contains(r.stderr, remedy) {
		t.Errorf("a move with a snapshot: %v, want exit code 5 and the remedy", r)
	}
	user("snapshot", "remove", "web", "before")
	eventually(t, "the snapshot is removed", func(context.Context) error {
		if r := w.user("croft", "snapshot", "list", "web"); r.exit != 0 || strings.Contains(r.stdout, "before") {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	w.must("move", "web", "f", "--wait", "--timeout", patience.String())
	if st := w.show("web"); st.HostID != f.id() || st.ID != id || f.domains()[id] == "" {
		t.Fatalf("it is %+v, and f has %v", st, f.domains())
	}
	reads := func(on *host, name, command, want string) {
		t.Helper()
		eventually(t, "guest "+name+" has what was written", func(context.Context) error {
			out, err := on.guestDisk(key, w.must(name), volume+command)
			if err != nil || out != want {
				return fmt.Errorf("%q, want %q: %w", out, want, err)
			}
			return nil
		})
	}
	reads(f, "web", `dd if=/dev/vda bs=1M skip=900 count=1 2>/dev/null | head -n 3; head -n 1 $disk`,
		"kept 1\nkept 2\nkept 3\nvolume")
	eventually(t, "the old host has nothing", func(context.Context) error {
		left, err := filepath.Glob(filepath.Join(e.dir, "state/instances/*-*"))
		if len(e.domains()) > 0 || len(left) > 0 || err != nil {
			return fmt.Errorf("domains %v, files %q, %w", e.domains(), left, err)
		}
		return nil
	})
	user("volume", "grow", "data", "2G")
	w.must("resize", "--wait", "web", "DISK_GB:2")
	reads(f, "web", `dd if=/dev/vda bs=1M skip=900 count=1 2>/dev/null | head -n 1; cat /sys/block/vda/size; `+
		`head -n 1 $disk`,
		"kept 1\n4194304\nvolume")
	user("volume", "detach", "data")
	if missing := restic.Missing(); testing.Short() {
		t.Log("no backups: make test-guests")
	} else if len(missing) == 0 {
		const read = `dd if=/dev/vda bs=1M skip=900 count=1 2>/dev/null | head -n 3`
		w.restoreElsewhere(listen, e)
		reads(e, "web2", read, "kept 1\nkept 2\nkept 3")
		w.must("move", "web2", "f", "--wait", "--timeout", patience.String())
		reads(f, "web2", read, "kept 1\nkept 2\nkept 3")
		w.must("remove", "--wait", "web2")
	} else {
		t.Logf("no backups: %v are missing", missing)
	}
	w.must("remove", "--wait", "web")
	request("heir", "--volume", "data")
	reads(f, "heir", `head -n 1 $disk; cat /sys/block/${disk#/dev/}/size`, "volume\n4194304")
	w.must("remove", "--wait", "heir")
	user("volume", "remove", "data")
	eventually(t, "nothing is left", func(ctx context.Context) error { return w.nothingOf(ctx, id) })
	if r := w.user("croft", "audit"); r.exit != 0 || r.stdout != "" {
		t.Errorf("croft audit: %v", r)
	}
}

// restoreElsewhere backs the instance web up, over the API at an address, restores it as web2 on another host, and
// removes the backup.
func (w *world) restoreElsewhere(listen string, to *host) {
	t := w.t
	t.Helper()
	direct := w.access
	croft := func(args ...string) string {
		t.Helper()
		r := w.user("croft", args...)
		if r.exit != 0 {
			t.Fatalf("croft %s: %v", strings.Join(args, " "), r)
		}
		return strings.TrimSpace(r.stdout)
	}
	repository, password := filepath.Join(w.dir, "repository"), filepath.Join(w.dir, "password")
	if err := errors.Join(os.Mkdir(repository, 0o700), os.WriteFile(password, []byte("secret"), 0o600)); err != nil {
		t.Fatal(err)
	}
	token := croft("token", "create", "--for", "api", "--user", "root", "--role", "partition-admin")
	w.access = []string{"CROFT_URL=http://" + listen, "CROFT_TOKEN=" + token}
	defer func() { w.access = direct }()
	croft("backup", "store", "add", "main", repository, "--password-file", password)
	croft("backup", "create", "web", "b1")
	croft("host", "drain", "f")
	croft("backup", "restore", "b1", "--as", "web2")
	croft("host", "enable", "f")
	if st := w.show("web2"); st.HostID != to.id() {
		t.Errorf("it was restored on %s", st.HostID)
	}
	w.must("web2", "--wait", "--timeout", patience.String())
	croft("backup", "check", "b1")
	croft("backup", "remove", "b1")
	croft("backup", "store", "remove", "main")
}
