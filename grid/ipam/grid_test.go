package ipam

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"croft"
)

// TestTwoBranchesThatGiveOneAddressConflict merges the two branches with git.
func TestTwoBranchesThatGiveOneAddressConflict(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed: scripts/install-deps test")
	}
	for name, c := range map[string]struct {
		pool     string
		conflict bool
	}{
		"the first address":                      {"prefix: 10.0.0.0/24", true},
		"by hash they seldom choose the same":    {"{prefix: 10.0.0.0/24, strategy: hash}", false},
		"and where there is one address, always": {"{prefix: 10.0.0.0/32, strategy: hash}", true},
	} {
		d := tree(t, map[string]string{"net/pools/web.yaml": c.pool})
		git := func(args ...string) (string, error) {
			cmd := exec.Command("git", append([]string{"-C", d.root.Name(), "-c", "user.name=a", "-c",
				"user.email=a@example", "-c", "commit.gpgsign=false"}, args...)...)
			cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null")
			out, err := cmd.CombinedOutput()
			return string(out), err
		}
		do := func(args ...string) {
			t.Helper()
			if out, err := git(args...); err != nil {
				t.Fatalf("git %s: %v: %s", args, err, out)
			}
		}
		do("init", "-q", "-b", "main")
		do("add", "-A")
		do("commit", "-q", "-m", "a pool")
		for _, branch := range []string{"one", "two"} {
			do("checkout", "-q", "-b", branch, "main")
			if _, err := get(d, "web", Owner{branch, 0}, netip.Addr{}); err != nil {
				t.Fatal(err)
			}
			do("add", "-A")
			do("commit", "-q", "-m", "a lease")
		}
		out, err := git("merge", "-q", "-m", "both", "one")
		if (err != nil) != c.conflict ||
			c.conflict && !strings.Contains(out, "CONFLICT (add/add): Merge conflict in net/lease/v4/10.0.0.") {
			t.Errorf("%s: merging says %v: %s", name, err, out)
		}
		if got := read(t, d).Leases; len(got) != 1 && c.conflict || len(got) != 2 && !c.conflict {
			t.Errorf("%s: then there are leases %v", name, got)
		}
	}
}

func TestADirectoryThatLeadsElsewhereIsRefused(t *testing.T) {
	elsewhere := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(elsewhere, "pools"), 0o755))
	must(t, os.WriteFile(filepath.Join(elsewhere, "pools/web.yaml"), []byte("prefix: 10.0.0.0/24"), 0o600))
	d := tree(t, map[string]string{"net": "-> " + elsewhere})
	if _, err := d.Read(); croft.KindOf(err) != croft.Invalid {
		t.Errorf("reading says %v", err)
	}
	if _, err := get(d, "web", Owner{"a", 0}, netip.Addr{}); err == nil {
		t.Error("it gives an address")
	}
	if left, err := filepath.Glob(filepath.Join(elsewhere, "lease/*")); err != nil || len(left) > 0 {
		t.Errorf("it wrote %s, %v", left, err)
	}
	d = tree(t, map[string]string{"net": "a file"})
	if _, err := get(d, "web", Owner{"a", 0}, netip.Addr{}); err == nil ||
		!strings.Contains(err.Error(), "make the directory net: ") {
		t.Errorf("where net is a file: %v", err)
	}
}

// TestWhatCannotBeWrittenIsTold puts a directory at the path of the lease, so that the rename fails.
func TestWhatCannotBeWrittenIsTold(t *testing.T) {
	d := tree(t, map[string]string{"net/pools/web.yaml": "prefix: 10.0.0.0/24"})
	step = func(what, name string) {
		if what == "rename" {
			must(t, os.MkdirAll(filepath.Join(d.root.Name(), name, "in"), 0o755))
		}
	}
	t.Cleanup(func() { step = func(string, string) {} })
	_, err := get(d, "web", Owner{"a", 0}, netip.Addr{})
	if croft.KindOf(err) != croft.Unavailable || !strings.Contains(err.Error(), "write net/lease/v4/10.0.0.1: ") {
		t.Errorf("it says %v", err)
	}
	if text := listing(t, d); strings.Contains(text, fresh) {
		t.Errorf("something is left: %s", text)
	}
}

// TestManyQuestionsToOneNet checks that the shared cache is cleared when leases change.
func TestManyQuestionsToOneNet(t *testing.T) {
	files := map[string]string{"net/pools/web.yaml": "prefix: 10.0.0.0/24",
		"net/access/a.yaml": "{from: all4, to: 'job:**'}"}
	for i := range 3 {
		files[fmt.Sprintf("nodes/n%d.yaml", i)] = fmt.Sprintf("address: 192.0.2.%d", i)
		files[fmt.Sprintf("alloc/a/%d", i)] = fmt.Sprintf("-> ../../nodes/n%d.yaml", i)
		files[fmt.Sprintf("net/lease/v4/10.0.0.%d", i+1)] = fmt.Sprintf("-> ../../../alloc/a/%d", i)
	}
	n := read(t, tree(t, files))
	managed := func(node string) string {
		at, err := n.FindNode(node)
		must(t, err)
		table, err := n.Firewall(t.Context(), at)
		must(t, err)
		return prefixes(table.Managed)
	}
	if l, ok := n.LeaseOf("web", Owner{"a", 1}); !ok || l.Addr != addr("10.0.0.2") || managed("n1") != "10.0.0.2/32" {
		t.Errorf("slot 1 has %v, %v; managed are %s", l, ok, managed("n1"))
	}
	if _, ok := n.LeaseOf("other", Owner{"a", 1}); ok {
		t.Error("a pool that is not there has a lease")
	}
	if freed := n.Free(func(l Lease) bool { return l.Owner.Slot == 1 }, true); len(freed) != 1 {
		t.Fatalf("freed are %v", freed)
	}
	if l, ok := n.LeaseOf("web", Owner{"a", 1}); ok || managed("n1") != "" {
		t.Errorf("after it was freed: %v, %s", l, managed("n1"))
	}
	l, err := n.Get("web", Owner{"a", 1}, netip.Addr{}) // the address that it freed
	if err != nil || l.Addr != addr("10.0.0.2") || managed("n1") != "10.0.0.2/32" {
		t.Errorf("then: %v, %v, %s", l, err, managed("n1"))
	}
}

// BenchmarkFirewalls computes the rules of 100 nodes with 10,000 leases.
func BenchmarkFirewalls(b *testing.B) {
	files := map[string]string{"net/pools/web.yaml": "prefix: 10.0.0.0/16",
		"net/access/a.yaml": "{from: 'job:j1*', to: 'pool:web', proto: tcp, ports: 80}"}
	for i := range 10_000 {
		files[fmt.Sprintf("nodes/n%d.yaml", i%100)] = fmt.Sprintf("address: 192.0.2.%d", i%100)
		files[fmt.Sprintf("alloc/j%d/%d", i%300, i/300)] = fmt.Sprintf("-> ../../nodes/n%d.yaml", i%100)
		files[leasePath(netip.AddrFrom4([4]byte{10, 0, byte((i + 1) >> 8), byte(i + 1)}))] =
			fmt.Sprintf("-> ../../../alloc/j%d/%d", i%300, i/300)
	}
	d := tree(b, files)
	for b.Loop() {
		n := read(b, d)
		for i := range 100 {
			node, err := n.FindNode(fmt.Sprint("n", i))
			must(b, err)
			table, err := n.Firewall(b.Context(), node)
			must(b, err)
			_, err = table.Script()
			must(b, err)
		}
	}
}
