package place

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"croft/grid/state"
)

// TestTheSamplesOfK3sAreJobs loads, places and expands the templates of docs/samples in a cluster of six nodes.
func TestTheSamplesOfK3sAreJobs(t *testing.T) {
	dir, f := t.TempDir(), cluster(2, 2, 2)
	for i := range 6 {
		fact := "k3s-server, k3s-agent"
		if i%2 == 1 {
			fact = "k3s-agent"
		}
		f[fmt.Sprintf("nodes/s/r%d/n%d.yaml", i/2, i)] = fmt.Sprintf("id: %d\nfacts: [%s]\n", i, fact)
	}
	for _, name := range []string{"k3s-server@", "k3s-agent@"} {
		text, err := os.ReadFile("../docs/samples/jobs/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		f["jobs/"+name+".yaml"] = strings.NewReplacer("first: n1", "first: n2", `token: ""`, "token: secret").
			Replace(string(text))
	}
	f.write(t, dir)
	for _, name := range []string{"k3s-server@", "k3s-agent@"} {
		if err := os.Symlink(name+".yaml", filepath.Join(dir, "jobs", name+"shop.yaml")); err != nil {
			t.Fatal(err)
		}
	}
	s := loadAt(t, dir)
	if len(s.Warnings) > 0 {
		t.Errorf("they are warned of: %v", s.Warnings)
	}
	if r := placed(t, dir, Options{}); len(r.Warnings) > 0 {
		t.Errorf("placed with %v", r.Warnings)
	}
	s = loadAt(t, dir)
	begun := 0
	for name, want := range map[string][]string{"k3s-server@shop": {"n0", "n2", "n4"},
		"k3s-agent@shop": {"n1", "n3", "n5"}} {
		var nodes []string
		for _, slot := range s.Job(name).Slots {
			nodes = append(nodes, slot.Node.Name)
			begun += unitOfK3s(t, s, s.Job(name), slot)
		}
		if slices.Sort(nodes); !slices.Equal(nodes, want) {
			t.Errorf("%s is on %v, want %v", name, nodes, want)
		}
	}
	if begun != 1 {
		t.Errorf("%d servers begin the cluster", begun)
	}
}

// unitOfK3s runs a slot's command with echo in place of k3s, and returns 1 if the command starts a new cluster.
func unitOfK3s(t *testing.T, s *state.State, j *state.Job, slot state.Slot) int {
	t.Helper()
	u, err := s.Unit(t.Context(), j, slot.Number, slot.Node)
	if err != nil {
		t.Fatal(err)
	}
	if len(u.Files) != 1 || !u.Files[0].Secret || u.Env["K3S_TOKEN_FILE"] != u.Files[0].Path {
		t.Errorf("%s on %s has the files %+v", j.Name, slot.Node.Name, u.Files)
	}
	var command []string
	for _, word := range u.Command {
		command = append(command, strings.ReplaceAll(word, "/usr/local/bin/k3s", "echo"))
	}
	out, err := exec.Command(command[0], command[1:]...).Output()
	if err != nil {
		t.Fatal(err)
	}
	const url = "https://n1.example.org:6443\n"
	want := "server --server " + url
	switch {
	case strings.HasPrefix(j.Name, "k3s-agent"):
		want = "agent --server " + url
	case slot.Node.Name == "n2":
		want = "server --cluster-init\n"
	}
	if string(out) != want {
		t.Errorf("%s on %s runs k3s %q, want %q", j.Name, slot.Node.Name, out, want)
	}
	return strings.Count(string(out), "--cluster-init")
}
