package upstream

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"croft"
	"croft/grid/watch"
)

// git runs git as an operator does, and returns its output.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", dir, "-c", "user.name=op", "-c",
		"user.email=op@x"}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// repository creates a bare upstream and an operator's clone of it, with the cluster in a subdirectory.
func repository(t *testing.T) (bare, dir string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed: apt-get install git")
	}
	t.Setenv("GIT_CONFIG_GLOBAL", "/dev/null")
	t.Setenv("GIT_CONFIG_SYSTEM", "/dev/null")
	top := t.TempDir()
	bare, dir = filepath.Join(top, "up.git"), filepath.Join(top, "op", "cluster")
	git(t, top, "init", "-q", "--bare", "-b", "main", bare)
	git(t, top, "clone", "-q", bare, "op")
	if err := os.MkdirAll(filepath.Join(dir, "alloc"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "node.yaml", "id: 1\n")
	if err := os.Symlink("../node.yaml", filepath.Join(dir, "alloc", "0")); err != nil {
		t.Fatal(err)
	}
	commit(t, dir, "first")
	git(t, dir, "push", "-q", "-u", "origin", "HEAD:main")
	return bare, dir
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func commit(t *testing.T, dir, message string) {
	t.Helper()
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-qm", message)
}

func open(t *testing.T, dir, name string) *Git {
	t.Helper()
	g, err := Open(t.Context(), dir, filepath.Join(t.TempDir(), "clone"), name)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func term(name string, count int64) watch.Term {
	return watch.Term{Leader: name, Key: "key of " + name, Count: count, Seconds: 60}
}

func swapped(t *testing.T, g *Git, old watch.LeaderRecord, next watch.Term) watch.LeaderRecord {
	t.Helper()
	m, err := g.Swap(t.Context(), old, next)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// changed checks out, changes a file and commits.
func changed(t *testing.T, g *Git, text string) (base, revision string) {
	t.Helper()
	dir, base, err := g.Checkout(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, "node.yaml", text)
	if revision, err = g.Commit(t.Context(), "watch\n\nWatch-State: a out\n"); err != nil {
		t.Fatal(err)
	}
	return base, revision
}

func TestTheMarkIsComparedAndSwapped(t *testing.T) {
	bare, dir := repository(t)
	a, b := open(t, dir, "a"), open(t, dir, "b")
	if m, err := a.Leader(t.Context()); err != nil || m.Value != "" {
		t.Fatalf("before anybody leads: %+v, %v", m, err)
	}
	first := swapped(t, a, watch.LeaderRecord{}, term("a", 1))
	if m, err := b.Leader(t.Context()); err != nil || m.Value != first.Value || m.Leader != "a" || m.Key != "key of a" {
		t.Errorf("the other one sees %+v, %v, want %+v", m, err, first)
	}
	if _, err := b.Swap(t.Context(), watch.LeaderRecord{}, term("b", 1)); !errors.Is(err, croft.Conflict) {
		t.Errorf("a record that is there is taken for none: %v", err)
	}
	second := swapped(t, b, first, term("b", 2))
	if _, err := a.Swap(t.Context(), first, term("a", 2)); !errors.Is(err, croft.Conflict) {
		t.Errorf("an old record is replaced: %v", err)
	}
	if m, err := a.Leader(t.Context()); err != nil || m.Value != second.Value || m.Leader != "b" {
		t.Errorf("the first one sees %+v, %v, want %+v", m, err, second)
	}
	git(t, bare, "gc", "--prune=now", "-q")
	swapped(t, b, second, term("b", 3))
}

func TestACommitIsPushedByTheLeaderAlone(t *testing.T) {
	bare, dir := repository(t)
	a, b := open(t, dir, "a"), open(t, dir, "b")
	record := swapped(t, a, watch.LeaderRecord{}, term("a", 1))
	before := git(t, bare, "rev-parse", "main")

	base, revision := changed(t, a, "state: out\n")
	taken := swapped(t, b, record, term("b", 2)) // a is frozen here, and b takes over
	if _, err := a.Push(t.Context(), base, revision, record, term("a", 2)); !errors.Is(err, croft.Conflict) {
		t.Errorf("a pushes after b took over: %v", err)
	}
	if now := git(t, bare, "rev-parse", "main"); now != before {
		t.Errorf("main is %s, want %s", now, before)
	}

	base, revision = changed(t, b, "state: out\n")
	write(t, dir, "other", "x")
	commit(t, dir, "an operator's")
	git(t, dir, "push", "-q")
	operators := git(t, bare, "rev-parse", "main")
	if _, err := b.Push(t.Context(), base, revision, taken, term("b", 3)); !errors.Is(err, croft.Conflict) {
		t.Errorf("the branch has moved: %v", err)
	}
	if m, err := b.Leader(t.Context()); err != nil || m.Value != taken.Value {
		t.Errorf("the push was refused, and the record is %+v, %v", m, err)
	}
	base, revision = changed(t, b, "state: out\n")
	if base != "git:"+operators {
		t.Errorf("made anew on %s, want %s", base, operators)
	}
	made, err := b.Push(t.Context(), base, revision, taken, term("b", 3))
	if err != nil {
		t.Fatal(err)
	}
	if now := git(t, bare, "rev-parse", "main", "refs/fission/leader"); now != revision[4:]+"\n"+made.Value {
		t.Errorf("upstream has %q, want %s and %s", now, revision, made.Value)
	}
	if got := git(t, bare, "log", "-1", "--format=%(trailers)%an", "main"); got != "Watch-State: a out\nb" {
		t.Errorf("the commit says %q", got)
	}
}

// TestTheUpstreamItselfCompares: the references that git compares before it sends data may have changed when the data
// arrives.
func TestTheUpstreamItselfCompares(t *testing.T) {
	bare, dir := repository(t)
	a, b := open(t, dir, "a"), open(t, dir, "b")
	record := swapped(t, a, watch.LeaderRecord{}, term("a", 1))
	base, revision := changed(t, a, "state: out\n")
	before := git(t, bare, "rev-parse", "main")
	// b takes over after a's push has learned the upstream's references, and before it changes anything.
	other, err := b.make(t.Context(), term("b", 2))
	if err != nil {
		t.Fatal(err)
	}
	git(t, b.work, "push", "-q", bare, other+":refs/heads/side")
	hook := "#!/bin/sh\nenv -u GIT_QUARANTINE_PATH git update-ref refs/fission/leader " + other + " " + record.Value + "\n"
	if err := os.WriteFile(filepath.Join(bare, "hooks", "pre-receive"), []byte(hook), 0o755); err != nil {
		t.Fatal(err)
	}
	_, err = a.Push(t.Context(), base, revision, record, term("a", 2))
	if !errors.Is(err, croft.Conflict) {
		t.Errorf("got %v", err)
	}
	if now := git(t, bare, "rev-parse", "main", "refs/fission/leader"); now != before+"\n"+other {
		t.Errorf("upstream has %q, want %s and %s: both or none", now, before, other)
	}
}

func TestARefusalThatIsNoConflictIsSaid(t *testing.T) {
	bare, dir := repository(t)
	a := open(t, dir, "a")
	hook := "#!/bin/sh\necho no watches here >&2\nexit 1\n"
	if err := os.WriteFile(filepath.Join(bare, "hooks", "pre-receive"), []byte(hook), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Swap(t.Context(), watch.LeaderRecord{}, term("a", 1)); !errors.Is(err, croft.Denied) ||
		!strings.Contains(err.Error(), "no watches here") {
		t.Errorf("got %v", err)
	}
	if err := os.Rename(bare, bare+".gone"); err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"swap":   second(a.Swap(t.Context(), watch.LeaderRecord{}, term("a", 1))),
		"record": second(a.Leader(t.Context())),
	} {
		if !errors.Is(err, croft.Unavailable) {
			t.Errorf("%s without an upstream: %v", what, err)
		}
	}
}

func second(_ watch.LeaderRecord, err error) error { return err }

func TestTheClonesDirectoryIsWhatTheUpstreamHas(t *testing.T) {
	_, dir := repository(t)
	g := open(t, dir, "a")
	write(t, dir, "mine", "an operator's, not committed")
	there, _, err := g.Checkout(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if to, err := os.Readlink(filepath.Join(there, "alloc", "0")); err != nil || to != "../node.yaml" {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	write(t, there, "node.yaml", "left by a crash")
	write(t, there, "stray", "too")
	write(t, g.work, ".git/index.lock", "")
	if _, _, err = g.Checkout(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(filepath.Join(there, "node.yaml")); string(text) != "id: 1\n" {
		t.Errorf("the file is %q", text)
	}
	if _, err := os.Stat(filepath.Join(there, "stray")); err == nil {
		t.Error("the stray file is still there")
	}
	if text, _ := os.ReadFile(filepath.Join(dir, "mine")); len(text) == 0 {
		t.Error("the operator's file is gone")
	}
}

func TestWhatGitIgnoresIsNotCommitted(t *testing.T) {
	_, dir := repository(t)
	write(t, dir, ".gitignore", "alloc\n")
	commit(t, dir, "a mistake")
	git(t, dir, "push", "-q")
	g := open(t, dir, "a")
	there, _, err := g.Checkout(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../node.yaml", filepath.Join(there, "alloc", "1")); err != nil {
		t.Fatal(err)
	}
	write(t, there, "node.yaml", "id: 2\n")
	if _, err := g.Commit(t.Context(), "x"); !errors.Is(err, croft.Invalid) || !strings.Contains(err.Error(),
		".gitignore") {
		t.Errorf("got %v", err)
	}
}

func TestADirectoryThatCannotBeWatched(t *testing.T) {
	_, dir := repository(t)
	work := filepath.Join(t.TempDir(), "clone")
	for _, c := range []struct {
		name, says string
		prepare    func() string
	}{
		{"no repository", "in no repository of git", t.TempDir},
		{"no branch", "no branch is checked out", func() string {
			git(t, dir, "checkout", "-q",
				"--detach")
			return dir
		}},
		{"no upstream", "no upstream to push to; give it one, such as git push -u origin side", func() string {
			git(t, dir, "checkout", "-q", "-b", "side")
			return dir
		}},
	} {
		if _, err := Open(t.Context(), c.prepare(), work, "a"); !errors.Is(err, croft.Invalid) ||
			!strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestAMarkOfSomebodyElseIsNone(t *testing.T) {
	bare, dir := repository(t)
	git(t, bare, "update-ref", "refs/fission/leader", "main")
	if _, err := open(t, dir, "a").Leader(t.Context()); !errors.Is(err, croft.Invalid) || !strings.Contains(err.Error(),
		"no record of a watch") {
		t.Errorf("got %v", err)
	}
}
