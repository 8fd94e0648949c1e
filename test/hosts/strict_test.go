package hosts

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"croft/internal/testing/freeport"
	"croft/internal/testing/libvirttest"
)

// newGuardedCenter starts a cloud whose hosts can reach only the gate: etcd and Placement listen for this machine
// only, which is not a host.
func newGuardedCenter(t *testing.T, settings ...string) *world {
	t.Helper()
	w := newSwitch(t)
	etcd, placement := freeport.For(t, "127.0.0.1"), freeport.For(t, "127.0.0.1")
	w.find("https://"+etcd, placement)
	w.access = []string{"CROFT_STATE_DIR=" + filepath.Join(w.dir, "control")}
	w.operator = filepath.Join(w.dir, "control", "tls", "operator")
	file := filepath.Join(w.dir, "control.yaml")
	text := fmt.Sprintf(
		"state_dir: %s/control\nhypervisor: none\ntrust: strict\netcd: {listen: %q}\nplacement: {listen: %q, token: %s}\njoin: {listen: %q}\n",
		w.dir, etcd, placement, token, w.address(1, 8777))
	if err := os.WriteFile(file, []byte(text+strings.Join(settings, "")), 0o600); err != nil {
		t.Fatal(err)
	}
	w.begin("control", w.croft("up", "--settings", file))
	return w
}

// invite waits until the cloud issues a token.
func (w *world) invite(args ...string) (token string) {
	w.t.Helper()
	eventually(w.t, "there is a token", func(context.Context) error {
		r := w.user("croft", append([]string{"token", "create"}, args...)...)
		if token = strings.TrimSpace(r.stdout); r.exit != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	return token
}

// TestAHostBehindTheGateCarriesAGuest: a host that reaches neither etcd nor Placement joins, runs a guest that has its
// metadata, and leaves no records behind.
func TestAHostBehindTheGateCarriesAGuest(t *testing.T) {
	libvirttest.Start(t)
	w := newGuardedCenter(t)
	e := w.newHost("e", 15)
	e.token, e.certified = w.invite(), true
	e.start()
	e.waitUntilReady()
	w.accepts("guarded", e)
	e.answers("guarded-e")
	id, guest := e.id(), w.show("guarded-e").ID
	w.must("destroy", "--wait", "guarded-e")
	if left := e.domains(); len(left) > 0 {
		t.Errorf("domains are left: %v", left)
	}
	e.process.end(syscall.SIGTERM)
	if r := w.user("croft", "host", "forget", "e"); r.exit != 0 {
		t.Errorf("croft host forget: %v", r)
	}
	for _, gone := range []string{id, guest} {
		eventually(t, "nothing is left", func(ctx context.Context) error { return w.nothingOf(ctx, gone) })
	}
	if r := w.user("croft", "audit"); r.exit != 0 || r.stdout != "" {
		t.Errorf("croft audit: %v", r)
	}
}
