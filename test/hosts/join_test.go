package hosts

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"croft"
	"croft/internal/testing/libvirttest"
)

// TestAHostJoinsAndLeavesWithOneCommandEach: an unknown machine runs a guest after one command, and another command
// removes all records of it.
func TestAHostJoinsAndLeavesWithOneCommandEach(t *testing.T) {
	libvirttest.Start(t)
	w := newCenter(t)
	r := w.user("croft", "token", "create", "--note", "for d")
	if r.exit != 0 {
		w.t.Fatalf("croft token create: %v", r)
	}
	d := w.newHost("d", 14)
	d.token = strings.TrimSpace(r.stdout)
	begun := time.Now()
	d.start()
	d.waitUntilReady()
	ready := time.Since(begun)
	w.accepts("joined", d)
	w.t.Logf("from croft up --join to the host being ready: %.1fs; to its first guest's address: %.1fs",
		ready.Seconds(), time.Since(begun).Seconds())

	id := d.id()
	guest := w.show("joined-d").ID
	if r := w.user("croft", "host", "forget", "--force", "d"); r.exit != 0 {
		w.t.Fatalf("croft host forget: %v", r)
	}
	eventually(w.t, "the guest goes with its host", func(context.Context) error {
		if all := d.domains(); len(all) > 0 {
			return fmt.Errorf("it still runs %v", all)
		}
		return nil
	})
	if st := w.show("joined-d"); st.State != string(croft.StateLost) {
		w.t.Errorf("the record of the instance says %s, want that it is lost", st.State)
	}
	if r := w.user("croft", "schedule", "destroy", "joined-d"); r.exit != 0 {
		w.t.Errorf("schedule destroy of what was lost: %v", r)
	}
	eventually(w.t, "the last order is done", func(ctx context.Context) error { return w.nothingOf(ctx, guest) })
	d.process.end(syscall.SIGTERM)
	eventually(w.t, "nothing of the host is left", func(ctx context.Context) error { return w.nothingOf(ctx, id) })
	if left, _ := filepath.Glob(filepath.Join(d.dir, "state/instances/*")); len(left) > 0 {
		w.t.Errorf("on the host: %q", left)
	}
	r = w.user("croft", "token", "list")
	if !strings.Contains(r.stdout, "for d") {
		w.t.Errorf("croft token list: %v", r)
	}
	name := strings.Fields(strings.Split(r.stdout, "\n")[1])[0]
	if r := w.user("croft", "token", "revoke", name); r.exit != 0 {
		w.t.Errorf("croft token revoke: %v", r)
	}
	if r := w.user("croft", "audit"); r.exit != 0 || r.stdout != "" {
		w.t.Errorf("croft audit: %v", r)
	}
}

// nothingOf searches all of etcd for an ID, including Placement's state.
func (w *world) nothingOf(ctx context.Context, id string) error {
	config := clientv3.Config{Endpoints: strings.Split(w.etcd, ","), Logger: zap.NewNop()}
	if w.operator != "" {
		info := transport.TLSInfo{TrustedCAFile: filepath.Join(w.operator, "etcd-ca.pem"),
			CertFile: filepath.Join(w.operator, "etcd.pem"), KeyFile: filepath.Join(w.operator, "etcd.pem")}
		var err error
		if config.TLS, err = info.ClientConfig(); err != nil {
			return err
		}
	}
	client, err := clientv3.New(config)
	if err != nil {
		return err
	}
	defer client.Close()
	all, err := client.Get(ctx, "/", clientv3.WithPrefix())
	if err != nil {
		return err
	}
	for _, kv := range all.Kvs {
		if strings.Contains(string(kv.Key), "/quota/unsettled/") {
			continue // counted by the next request, or by a server of the API
		}
		if strings.Contains(string(kv.Key), "/actions/") {
			continue // the action log is kept for a while
		}
		if strings.Contains(string(kv.Key), id) || strings.Contains(string(kv.Value), id) {
			return fmt.Errorf("there is %s: %.200s", kv.Key, kv.Value)
		}
	}
	return nil
}
