package edit

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"croft"
	"croft/grid/state"
)

func begun(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "c")
	if err := Init(dir, "git", "podman"); err != nil {
		t.Fatal(err)
	}
	return dir
}

func loaded(t *testing.T, dir string) *state.State {
	t.Helper()
	s, err := state.Load(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func fine() error { return nil }

func TestANewClusterHasNoMistakes(t *testing.T) {
	dir := begun(t)
	s := loaded(t, dir)
	if len(s.Cluster.ID) != 32 || s.Cluster.Runtime != "podman" || len(s.Warnings) > 0 || s.IDs.NextBucket != -2 {
		t.Errorf("got %+v", s)
	}
	if err := Init(dir, "git", "podman"); !errors.Is(err, croft.Conflict) {
		t.Errorf("a second time: %v", err)
	}
}

// TestNoIDIsGivenTwice also covers ids of nodes and directories that were deleted.
func TestNoIDIsGivenTwice(t *testing.T) {
	dir := begun(t)
	for _, name := range []string{"a/b/one", "a/two", "three"} {
		if _, err := Add(loaded(t, dir), Node{Path: name}, fine); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "nodes/a")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "nodes/three.yaml")); err != nil {
		t.Fatal(err)
	}
	if _, err := Add(loaded(t, dir), Node{Path: "c/four"}, fine); err != nil {
		t.Fatal(err)
	}
	s := loaded(t, dir)
	if n := s.Node("four"); n.ID != 3 || n.Parent.ID != -4 {
		t.Errorf("got %d in %d", n.ID, n.Parent.ID)
	}
}

func TestWhatCannotBeAddedIsTakenBack(t *testing.T) {
	dir := begun(t)
	ids := read(t, filepath.Join(dir, state.IDsFile))
	_, err := Add(loaded(t, dir), Node{Path: "a/b/one"}, func() error { return errors.New("no") })
	if err == nil || err.Error() != "no" {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "nodes/a")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory is there: %v", err)
	}
	if got := read(t, filepath.Join(dir, state.IDsFile)); got != ids {
		t.Errorf("the ids are %s", got)
	}
}

func TestAStateIsALine(t *testing.T) {
	for _, c := range []struct{ name, before, after string }{
		{"none is there", "id: 0\n# words\naddress: a", "id: 0\n# words\naddress: a\nstate: drain  # why\n"},
		{"one is there", "id: 0\nstate: up # so far\n# words\n", "id: 0\nstate: drain # why; so far\n# words\n"},
		{"the keys are in braces", "{id: 0}\n", "{state: drain, id: 0}  # why\n"},
		{"another key contains it", "id: 0\nvar:\n  state: x\n", "id: 0\nvar:\n  state: x\nstate: drain  # why\n"},
	} {
		dir := begun(t)
		file := filepath.Join(dir, "nodes/n.yaml")
		if err := os.WriteFile(file, []byte(c.before), 0o600); err != nil {
			t.Fatal(err)
		}
		s := loaded(t, dir)
		if err := SetState(s, s.Node("n"), state.Drain, "why\n"); err != nil {
			t.Fatal(err)
		}
		if got := read(t, file); got != c.after {
			t.Errorf("%s: %q, want %q", c.name, got, c.after)
		}
		if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", c.name, info.Mode(), err)
		}
		if got := loaded(t, dir).Node("n").State; got != state.Drain {
			t.Errorf("%s: %s", c.name, got)
		}
	}
	dir := begun(t)
	text := "id: 0\nstate: &s up\nx: *s\n"
	if err := os.WriteFile(filepath.Join(dir, "nodes/n.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := loaded(t, dir)
	err := SetState(s, s.Node("n"), state.Drain, "")
	if !errors.Is(err, croft.Invalid) || !strings.Contains(err.Error(), "nodes/n.yaml") {
		t.Errorf("got %v", err)
	}
}

func TestRenumber(t *testing.T) {
	dir := begun(t)
	for name, text := range map[string]string{"nodes/a/_.yaml": "id: -2\n", "nodes/b/_.yaml": "# two\nid: -2\n",
		"nodes/c/_.yaml": "type: site\n", "nodes/a/x.yaml": "id: 5\n", "nodes/b/y.yaml": "address: a # b\nid: 5 # c\n",
		"nodes/b/z.yaml": "", "nodes/d/w.yaml": "id: 2\n",
		"ids.yaml": "next_node: 6\nnext_bucket: -9\nfilters:\n  require a: {-1: -2, -2: -8}\n"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := state.Load(t.Context(), dir); !errors.Is(err, croft.Invalid) {
		t.Fatalf("it was right before: %v", err)
	}
	s, _, err := state.LoadForIDs(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Renumber(s); err != nil {
		t.Fatal(err)
	}
	s = loaded(t, dir)
	want := map[string]int{"x": 5, "y": 6, "z": 7, "w": 2}
	for _, n := range s.Leaves {
		if n.ID != want[n.Name] {
			t.Errorf("%s has the id %d", n.Name, n.ID)
		}
	}
	if got := read(t, filepath.Join(dir, "nodes/b/y.yaml")); got != "address: a # b\nid: 6\n" {
		t.Errorf("the file is %q", got)
	}
	if again, err := Renumber(s); err != nil || len(again) > 0 {
		t.Errorf("again: %v, %v", again, err)
	}
}

func TestOneCommandAtATime(t *testing.T) {
	dir := begun(t)
	first, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if _, err := Lock(dir); !errors.Is(err, croft.Conflict) {
		t.Errorf("a second one: %v", err)
	}
}
