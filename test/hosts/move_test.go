package hosts

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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

// TestAGuestMovesWithItsDisk: what a guest has written on its disk is there after a move between hosts that reach each
// other only over TLS, and etcd and Placement not at all; then its old host has nothing of it.
func TestAGuestMovesWithItsDisk(t *testing.T) {
	libvirttest.Start(t)
	w := newGuardedCenter(t)
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
	w.must("resources=VCPU:1,MEMORY_MB:96,DISK_GB:1", guestImage, "--name", "web", "--key", key+".pub", "--wait=ready",
		"--timeout", patience.String())
	user("host", "enable", "f")
	const written = `for i in 1 2 3; do echo "kept $i"; done`
	command := `(` + written + `) | dd of=/dev/vda bs=1M seek=900 conv=notrunc 2>/dev/null && sync`
	eventually(t, "the guest writes on its disk", func(context.Context) error {
		out, err := e.guestDisk(key, w.must("web"), command)
		if err != nil {
			return fmt.Errorf("%s: %w", out, err)
		}
		return nil
	})
	id := w.show("web").ID
	w.must("move", "web", "f", "--wait", "--timeout", patience.String())
	if st := w.show("web"); st.HostID != f.id() || st.ID != id || f.domains()[id] == "" {
		t.Fatalf("it is %+v, and f has %v", st, f.domains())
	}
	eventually(t, "the disk has what was written", func(context.Context) error {
		out, err := f.guestDisk(key, w.must("web"), `dd if=/dev/vda bs=1M skip=900 count=1 2>/dev/null | head -n 3`)
		if err != nil || out != "kept 1\nkept 2\nkept 3" {
			return fmt.Errorf("%q: %w", out, err)
		}
		return nil
	})
	eventually(t, "the old host has nothing", func(context.Context) error {
		left, err := filepath.Glob(filepath.Join(e.dir, "state/instances/*-*"))
		if len(e.domains()) > 0 || len(left) > 0 || err != nil {
			return fmt.Errorf("domains %v, files %q, %w", e.domains(), left, err)
		}
		return nil
	})
	w.must("remove", "--wait", "web")
	eventually(t, "nothing is left", func(ctx context.Context) error { return w.nothingOf(ctx, id) })
	if r := w.user("croft", "audit"); r.exit != 0 || r.stdout != "" {
		t.Errorf("croft audit: %v", r)
	}
}
