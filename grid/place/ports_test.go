package place

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"croft"
)

func TestPortsOfANodeAreGivenOnce(t *testing.T) {
	const lacks = "whose port 80/tcp another job has"
	for _, c := range []struct {
		name string
		jobs files
		want string // part of Decide's error; empty: it places all
	}{
		{"two jobs fit beside each other", files{"a": "ports: ['80:80']\n", "b": "ports: ['80:80']\n"}, ""},
		{"more jobs than nodes do not", files{"a": "ports: ['80:80']\nreplicas: 3\n", "b": "ports: ['80:80']\n",
			"c": "ports: ['80:80']\n"}, lacks},
		{"an address of all of them overlaps each", files{"a": "ports: ['80:80']\nreplicas: 4\n",
			"b": "ports: ['10.0.0.1:80:80']\n"}, "whose port 10.0.0.1:80/tcp another job has"},
		{"other addresses and protocols do not overlap", files{
			"a": "ports: ['10.0.0.2:80:80', '80:80/udp']\nreplicas: 4\n", "b": "ports: ['10.0.0.1:80:80']\n"}, ""},
		{"a unit without a network takes none", files{"a": "ports: ['80:80']\nreplicas: 4\n",
			"b": "network: none\nports: ['80:80']\n"}, ""},
		{"a port of the slot is one of them", files{"a": "ports: ['8${slot}:1']\nreplicas: 4\n",
			"b": "ports: ['9${slot}:1']\nreplicas: 4\n"}, ""},
		{"any slot of a job may come to a node", files{"a": "ports: ['81:1']\nreplicas: 4\n",
			"b": "ports: ['8${slot}:1']\nreplicas: 2\n"}, "whose port 81/tcp another job has"},
		{"a port of the node", files{"a": "ports: ['8${node.id}:1']\nreplicas: 4\n",
			"b": "ports: ['82:1']\nreplicas: 3\n"}, ""},
		{"the pinned one", files{"a": "policy: pin(n0)\nports: ['80:80']\npriority: 1\n",
			"b": "policy: pin(n0)\nports: ['80:80']\n"}, lacks},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir, f := t.TempDir(), cluster(2, 2)
			for name, text := range c.jobs {
				f["jobs/"+name+".yaml"] = text
			}
			f.write(t, dir)
			r, err := Decide(loadAt(t, dir), Options{})
			if c.want != "" {
				if !errors.Is(err, croft.NoCapacity) || !strings.Contains(err.Error(), c.want) {
					t.Fatalf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Write(dir); err != nil {
				t.Fatal(err)
			}
			if err := loadAt(t, dir).Check(t.Context()); err != nil {
				t.Error(err)
			}
			if again := placed(t, dir, Options{}); len(again.Changes) != 0 {
				t.Errorf("again, %+v", again.Changes)
			}
		})
	}
}

// TestASlotLeavesAPortThatIsTaken: if two slots on one node have the same port, for example after a merge, the job that
// is placed first keeps its node.
func TestASlotLeavesAPortThatIsTaken(t *testing.T) {
	dir, f := t.TempDir(), cluster(1, 1)
	f["jobs/a.yaml"], f["jobs/b.yaml"] = "ports: ['80:80']\n", "ports: ['80:80']\npriority: 1\n"
	f.write(t, dir)
	for _, job := range []string{"a", "b"} {
		if err := os.MkdirAll(filepath.Join(dir, "alloc", job), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../../nodes/s/r0/n0.yaml", filepath.Join(dir, "alloc", job, "0")); err != nil {
			t.Fatal(err)
		}
	}
	if err := loadAt(t, dir).Check(t.Context()); err == nil {
		t.Error("lint says nothing")
	}
	r := placed(t, dir, Options{})
	if len(r.Changes) != 1 || r.Changes[0].Job != "a" || r.Changes[0].To != "n1" ||
		r.Changes[0].Reason != "another job has the port 80/tcp of n0" {
		t.Errorf("got %+v", r.Changes)
	}
}
