package hosts

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"croft/internal/testing/libvirttest"
)

// TestServingHostsAreCutOff: three hosts serve etcd, Placement and a gate for all, and a fourth can reach only the
// gates. First one host is disconnected, then the first host, through which the fourth joined. Guests keep running, and
// the remaining majority decides.
func TestServingHostsAreCutOff(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes three minutes: make test-guests runs it")
	}
	libvirttest.Start(t)
	w := newSwitch(t)
	for i, name := range []string{"a", "b", "c", "d"} {
		h := w.newHost(name, 11+i)
		h.certified, h.begins, h.serves = true, i == 0, i == 1 || i == 2
		w.hosts = append(w.hosts, h)
	}
	a, b, c, d := w.hosts[0], w.hosts[1], w.hosts[2], w.hosts[3]
	a.start()
	a.waitUntilReady()
	w.typeAt(a)
	b.token = w.invite("--etcd-member")
	c.token, d.token = b.token, w.invite()
	b.start()
	c.start()
	w.awaitEtcd(map[string]string{"a": "member", "b": "member", "c": "member"})
	w.typeAt(b)
	d.start()
	d.waitUntilReady()
	w.accepts("one", c, d)
	c.answers("one-c")
	before := w.running()
	eventually(t, "the fourth knows all gates", func(context.Context) error {
		text, err := os.ReadFile(filepath.Join(d.dir, "state/gates"))
		if err == nil && len(strings.Fields(string(text))) != 3 {
			err = fmt.Errorf("it knows %q", text)
		}
		return err
	})

	c.cut()
	w.silent(c, "one-c")
	w.awaitEtcd(map[string]string{"a": "member", "b": "member", "c": "silent", "d": ""})
	w.accepts("two", d)
	w.must("destroy", "--wait", "two-d")
	w.untouched(before)
	c.plug()
	w.awaitEtcd(map[string]string{"a": "member", "b": "member", "c": "member", "d": ""})
	w.accepts("three", c)
	w.must("destroy", "--wait", "three-c")
	w.untouched(before)

	a.cut()
	w.awaitEtcd(map[string]string{"a": "silent", "b": "member", "c": "member", "d": ""})
	d.answers("one-d")
	w.accepts("four", d) // which continues at another gate
	w.must("destroy", "--wait", "four-d")
	delete(before, w.show("one-c").ID)
	w.must("destroy", "--wait", "one-c")
	w.untouched(before)
	a.plug()
	w.awaitEtcd(map[string]string{"a": "member", "b": "member", "c": "member", "d": ""})
	w.must("destroy", "--wait", "one-d")
	eventually(t, "the audit finds nothing", func(context.Context) error {
		if r := w.user("croft", "audit"); r.exit != 0 || r.stdout != "" || r.stderr != "" {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
}

// typeAt makes users' commands run on that host, as root.
func (w *world) typeAt(h *host) {
	w.access = []string{"CROFT_STATE_DIR=" + filepath.Join(h.dir, "state")}
}

// awaitEtcd waits until the hosts have the wanted roles in etcd; the leader is listed as a member.
func (w *world) awaitEtcd(want map[string]string) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("etcd is served by %v", want), func(context.Context) error {
		r := w.user("croft", "host", "list", "-o", "json")
		var all []struct{ Name, Etcd, State string }
		if err := json.Unmarshal([]byte(r.stdout), &all); err != nil {
			return fmt.Errorf("%w: %v", err, r)
		}
		for _, h := range all {
			if h.Etcd == "leader" {
				h.Etcd = "member"
			}
			if h.Etcd != want[h.Name] || (h.State == "ready") != (h.Etcd != "silent") {
				return fmt.Errorf("there are %+v", all)
			}
		}
		if len(all) != len(want) {
			return fmt.Errorf("there are %+v", all)
		}
		return nil
	})
}
