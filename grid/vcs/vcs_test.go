package vcs

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"croft"
	"croft/grid/revlock"
	"croft/internal/testing/patient"
)

func TestMain(m *testing.M) {
	// Run the programs as a user without settings.
	home, err := os.MkdirTemp("", "croft-vcs-")
	if err != nil {
		panic(err)
	}
	for name, value := range map[string]string{"HOME": home, "USER": "tester", "GIT_CONFIG_NOSYSTEM": "1",
		"HGUSER":          "tester",
		"GIT_AUTHOR_NAME": "tester", "GIT_AUTHOR_EMAIL": "t@example.org", "GIT_COMMITTER_NAME": "tester",
		"GIT_COMMITTER_EMAIL": "t@example.org", "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "init.defaultBranch",
		"GIT_CONFIG_VALUE_0": "main"} {
		os.Setenv(name, value)
	}
	os.Unsetenv("XDG_CONFIG_HOME")
	patient.SideBySide(4)
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) { _ = os.RemoveAll(home); os.Exit(code) }))
}

// A system is a version control system as tests call it directly.
type system struct {
	name, program string
	init          func(t *testing.T, dir string)
	clone         func(t *testing.T, from, to string) // with from as its upstream
	commit        func(t *testing.T, dir string)      // commits everything
	checkout      func(t *testing.T, dir, revision string)
	ignore        func(t *testing.T, dir, name string) // ignores the name in every directory, and commits that
}

func run(t *testing.T, dir string, argv ...string) string {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q in %s: %v\n%s", argv, dir, err, out)
	}
	return string(out)
}

var systems = []system{
	{
		name: "git", program: "git",
		init:  func(t *testing.T, dir string) { run(t, dir, "git", "init", "-q") },
		clone: func(t *testing.T, from, to string) { run(t, from, "git", "clone", "-q", from, to) },
		commit: func(t *testing.T, dir string) {
			run(t, dir, "git", "add", "-A")
			run(t, dir, "git", "commit", "-q", "-m", "x")
		},
		checkout: func(t *testing.T, dir, hash string) { run(t, dir, "git", "checkout", "-q", hash) },
		ignore:   func(t *testing.T, dir, name string) { write(t, dir, ".gitignore", name+"\n") },
	},
	{
		name: "hg", program: "hg",
		init:  func(t *testing.T, dir string) { run(t, dir, "hg", "init") },
		clone: func(t *testing.T, from, to string) { run(t, from, "hg", "clone", "-q", from, to) },
		commit: func(t *testing.T, dir string) {
			run(t, dir, "hg", "addremove", "-q")
			run(t, dir, "hg", "commit", "-m", "x")
		},
		checkout: func(t *testing.T, dir, hash string) { run(t, dir, "hg", "update", "-q", hash) },
		ignore:   func(t *testing.T, dir, name string) { write(t, dir, ".hgignore", "syntax: glob\n"+name+"\n") },
	},
	{
		name: "fossil", program: "fossil",
		init: func(t *testing.T, dir string) {
			run(t, dir, "fossil", "init", dir+".repository")
			run(t, dir, "fossil", "open", "--force", dir+".repository")
			run(t, dir, "fossil", "settings", "allow-symlinks", "on")
		},
		clone: func(t *testing.T, from, to string) {
			run(t, from, "fossil", "clone", from+".repository", to+".repository")
			if err := os.MkdirAll(to, 0o755); err != nil {
				t.Fatal(err)
			}
			run(t, to, "fossil", "open", "--force", to+".repository")
			run(t, to, "fossil", "settings", "autosync", "off")
			run(t, to, "fossil", "settings", "allow-symlinks", "on")
		},
		commit: func(t *testing.T, dir string) {
			run(t, dir, "fossil", "addremove", "--dotfiles")
			run(t, dir, "fossil", "commit", "--hash", "--no-warnings", "-m", "x")
		},
		checkout: func(t *testing.T, dir, hash string) { run(t, dir, "fossil", "checkout", hash) },
		ignore:   func(t *testing.T, dir, name string) { write(t, dir, ".fossil-settings/ignore-glob", name+"\n") },
	},
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// each runs a test with every version control system, in a repository with one revision.
func each(t *testing.T, f func(t *testing.T, s system, dir string, r *Repository)) {
	for _, s := range systems {
		t.Run(s.name, func(t *testing.T) {
			if _, err := exec.LookPath(s.program); err != nil {
				t.Skipf("%s is not installed (scripts/install-deps test)", s.program)
			}
			dir := filepath.Join(t.TempDir(), "cluster")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			s.init(t, dir)
			write(t, dir, "nodes/a.yaml", "id: 1\n")
			write(t, dir, "jobs/web.yaml", "runtime: podman\n")
			f(t, s, dir, open(t, dir))
		})
	}
}

func open(t *testing.T, dir string) *Repository {
	t.Helper()
	r, err := Open(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func revision(t *testing.T, r *Repository) string {
	t.Helper()
	revision, err := r.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return revision
}

func wantAnswer(t *testing.T, what string, r *Repository, old, new string, want revlock.Answer) {
	t.Helper()
	if got, err := r.Ancestor(t.Context(), old, new); got != want || err != nil {
		t.Errorf("%s: %s, %v; want %s", what, got, err, want)
	}
}

func TestAncestry(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s system, dir string, r *Repository) {
		if s.name != "fossil" { // a Fossil repository always has a first revision
			if _, err := r.Revision(t.Context()); croft.KindOf(err) != croft.NotFound {
				t.Errorf("nothing committed: %v", err)
			}
		}
		s.commit(t, dir)
		first := revision(t, r)
		write(t, dir, "jobs/web.yaml", "runtime: docker\n")
		s.commit(t, dir)
		second := revision(t, r)
		s.checkout(t, dir, strings.TrimPrefix(first, s.name+":"))
		write(t, dir, "jobs/other.yaml", "runtime: docker\n")
		if s.name == "fossil" {
			run(t, dir, "fossil", "addremove")
			run(t, dir, "fossil", "commit", "--branch", "other", "--no-warnings", "-m", "x")
		} else {
			s.commit(t, dir)
		}
		sibling := revision(t, r)
		wantAnswer(t, "the parent", r, first, second, revlock.Yes)
		wantAnswer(t, "the child", r, second, first, revlock.No)
		wantAnswer(t, "itself", r, second, second, revlock.Yes)
		wantAnswer(t, "a sibling", r, second, sibling, revlock.No)
		missing := s.name + ":" + strings.Repeat("1234567890", 4)
		wantAnswer(t, "one that is not here", r, missing, second, revlock.Unknown)
		wantAnswer(t, "of one that is not here", r, second, missing, revlock.Unknown)
		for _, bad := range []string{"", "x:" + strings.Repeat("a", 40), s.name + ":HEAD", s.name + ":--help",
			strings.TrimPrefix(first, s.name+":")} {
			if _, err := r.Ancestor(t.Context(), bad, second); croft.KindOf(err) != croft.Invalid {
				t.Errorf("%q: %v", bad, err)
			}
		}
	})
}

func TestWhatIsNotCommitted(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s system, dir string, r *Repository) {
		s.ignore(t, dir, "*.tmp")
		s.commit(t, dir)
		want := func(what string, paths ...string) {
			t.Helper()
			got, err := r.Uncommitted(t.Context())
			if err != nil || strings.Join(got, " ") != strings.Join(paths, " ") {
				t.Errorf("%s: %q, %v; want %q", what, got, err, paths)
			}
		}
		want("all is committed")
		if got, err := r.Clean(t.Context()); err != nil || !strings.HasPrefix(got, s.name+":") {
			t.Errorf("clean: %s, %v", got, err)
		}
		write(t, dir, "notes.tmp", "an ignored file elsewhere")
		want("ignored, and no state")
		write(t, dir, "nodes/b.tmp", "x")
		want("ignored, and read as state", "nodes/b.tmp")
		write(t, dir, "jobs/new one.yaml", "x")
		want("untracked", "jobs/new one.yaml", "nodes/b.tmp")
		write(t, dir, "nodes/a.yaml", "id: 2\n")
		if err := os.Remove(filepath.Join(dir, "jobs/web.yaml")); err != nil {
			t.Fatal(err)
		}
		want("changed and removed", "jobs/new one.yaml", "jobs/web.yaml", "nodes/a.yaml", "nodes/b.tmp")
		if _, err := r.Clean(t.Context()); croft.KindOf(err) != croft.Conflict || !strings.Contains(err.Error(),
			"nodes/a.yaml") {
			t.Errorf("clean: %v", err)
		}
	})
}

// TestFilesThatAreNotComparedAreRefused: a job that a sparse checkout leaves out was not removed, and an edit that git
// was told to ignore is not part of the revision.
func TestFilesThatAreNotComparedAreRefused(t *testing.T) {
	t.Parallel()
	ways := map[string][][2][]string{ // each way with its remedy
		"git": {
			{{"git", "sparse-checkout", "set", "--no-cone", "/*", "!/jobs/"}, {"git", "sparse-checkout", "disable"}},
			{{"git", "update-index", "--assume-unchanged", "jobs/web.yaml"},
				{"git", "update-index", "--no-assume-unchanged", "jobs/web.yaml"}},
			{{"git", "update-index", "--skip-worktree", "jobs/web.yaml"},
				{"git", "update-index", "--no-skip-worktree", "jobs/web.yaml"}},
		},
		"hg": {{{"hg", "--config", "extensions.sparse=", "debugsparse", "--exclude", "jobs"},
			{"hg", "--config", "extensions.sparse=", "debugsparse", "--reset"}}},
	}
	each(t, func(t *testing.T, s system, dir string, r *Repository) {
		if s.name == "fossil" {
			t.Skip("fossil has neither")
		}
		if s.name == "hg" {
			run(t, dir, "sh", "-c", `printf '[extensions]\nsparse =\n' >> .hg/hgrc`)
		}
		s.commit(t, dir)
		for _, way := range ways[s.name] {
			run(t, dir, way[0]...)
			if _, err := r.Clean(t.Context()); croft.KindOf(err) != croft.Conflict ||
				!strings.Contains(err.Error(), strings.Join(way[1][:2], " ")) {
				t.Errorf("%q: %v", way[0], err)
			}
			run(t, dir, way[1]...)
			if _, err := r.Clean(t.Context()); err != nil {
				t.Errorf("%q: %v", way[1], err)
			}
		}
	})
}

// TestNoSettingOfACloneHidesAChange tests two things that git would trust: a file system monitor that reports nothing,
// and modification times that were set back.
func TestNoSettingOfACloneHidesAChange(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s system, dir string, r *Repository) {
		if s.name != "git" {
			t.Skip("git alone has these settings")
		}
		monitor := filepath.Join(t.TempDir(), "monitor")
		if err := os.WriteFile(monitor, []byte("#!/bin/sh\nprintf 'token\\0'\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		path, long := filepath.Join(dir, "jobs/web.yaml"), time.Now().Add(-time.Hour)
		for _, settings := range [][]string{{"core.fsmonitor", monitor},
			{"core.checkStat", "minimal", "core.trustctime", "false"}} {
			write(t, dir, "jobs/web.yaml", settings[0])
			s.commit(t, dir)
			for pair := range slices.Chunk(settings, 2) {
				run(t, dir, "git", "config", pair[0], pair[1])
			}
			text, err := os.ReadFile(path)
			if err == nil {
				err = os.Chtimes(path, long, long)
			}
			if err != nil {
				t.Fatal(err)
			}
			run(t, dir, "git", "status")
			run(t, dir, "git", "status") // git uses the monitor only from the second call on
			text[0]++
			if err = os.WriteFile(monitor+".new", text, 0o644); err == nil { // another inode
				err = errors.Join(os.Chtimes(monitor+".new", long, long), os.Rename(monitor+".new", path))
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, err := r.Uncommitted(t.Context()); err != nil || strings.Join(got, " ") != "jobs/web.yaml" {
				t.Errorf("%q: %q, %v", settings, got, err)
			}
			for pair := range slices.Chunk(settings, 2) {
				run(t, dir, "git", "config", "--unset", pair[0])
			}
			run(t, dir, "git", "update-index", "--no-fsmonitor")
		}
	})
}

func TestLinksOfTheStateAreKept(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s system, dir string, _ *Repository) {
		link := filepath.Join(dir, "alloc", "web", "0")
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("../../nodes/a.yaml", link); err != nil {
			t.Fatal(err)
		}
		s.commit(t, dir)
		other := dir + "-clone"
		s.clone(t, dir, other)
		if got, err := os.Readlink(filepath.Join(other, "alloc", "web", "0")); got != "../../nodes/a.yaml" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

func TestCommitFetchAndPush(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s system, dir string, r *Repository) {
		s.commit(t, dir)
		if head, err := r.Upstream(t.Context()); head != "" || err != nil {
			t.Errorf("without an upstream: %q, %v", head, err)
		}
		if s.name == "git" {
			run(t, dir, "git", "config", "receive.denyCurrentBranch", "ignore")
		}
		one, two := dir+"-one", dir+"-two"
		s.clone(t, dir, one)
		s.clone(t, dir, two)
		first, second := open(t, one), open(t, two)
		begin := revision(t, first)
		write(t, one, "nodes/a.yaml", "id: 2\n")
		write(t, one, "nodes/new.yaml", "id: 3\n")
		write(t, one, "jobs/web.yaml", "not committed")
		done, err := first.Commit(t.Context(), "an automatic change\n\nof two files", "nodes/a.yaml", "nodes/new.yaml")
		if err != nil || done == begin {
			t.Fatalf("commit: %s, %v", done, err)
		}
		if left, err := first.Uncommitted(t.Context()); err != nil || strings.Join(left, " ") != "jobs/web.yaml" {
			t.Errorf("after the commit: %q, %v", left, err)
		}
		if head, err := first.Upstream(t.Context()); err != nil || head != begin {
			t.Errorf("upstream before the push: %s, %v; want %s", head, err, begin)
		}
		if err := first.Push(t.Context()); err != nil {
			t.Fatal(err)
		}
		if head, err := second.Upstream(t.Context()); err != nil || head != done {
			t.Errorf("upstream after the push: %s, %v; want %s", head, err, done)
		}
		if has, err := second.ContainsUpstream(t.Context(), begin); has != revlock.No || err != nil {
			t.Errorf("the old revision has the upstream: %s, %v", has, err)
		}
		write(t, two, "nodes/a.yaml", "id: 4\n")
		_, err = second.Commit(t.Context(), "another", "nodes/a.yaml")
		if err == nil {
			err = second.Push(t.Context())
		}
		if croft.KindOf(err) != croft.Conflict {
			t.Errorf("a push that comes too late: %v", err)
		}
		for _, bad := range []string{"../x", "/etc/passwd"} {
			if _, err := first.Commit(t.Context(), "m", bad); croft.KindOf(err) != croft.Invalid {
				t.Errorf("commit %s: %v", bad, err)
			}
		}
	})
}

// TestCommitOfWhatIsGone commits directories with removed files, and one without changes.
func TestCommitOfWhatIsGone(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s system, dir string, r *Repository) {
		for _, name := range []string{"alloc/web/0", "alloc/web/1", "alloc/old/0"} {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("../../nodes/a.yaml", filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		s.commit(t, dir)
		write(t, dir, "nodes/a.yaml", "id: 2\n")
		for _, name := range []string{"alloc/web/0", "alloc/old"} {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
		before := revision(t, r)
		after, err := r.Commit(t.Context(), "m", "nodes/a.yaml", "alloc/web", "alloc/old", "jobs/web.yaml")
		if err != nil || after == before {
			t.Fatalf("commit: %s, %v", after, err)
		}
		if left, err := r.Uncommitted(t.Context()); err != nil || len(left) > 0 {
			t.Errorf("after the commit: %q, %v", left, err)
		}
		tracked := filepath.Join(dir, "alloc/web/1")
		if _, err := os.Readlink(tracked); err != nil {
			t.Errorf("what stayed: %v", err)
		}
	})
}

// TestAnUpstreamToWhichNobodyHasPushed is not treated as no upstream: other operators must be able to fetch the applied
// revision.
func TestAnUpstreamToWhichNobodyHasPushed(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s system, dir string, r *Repository) {
		switch s.name {
		case "git":
			run(t, dir, "git", "init", "-q", "--bare", dir+"-up")
			run(t, dir, "git", "remote", "add", "origin", dir+"-up")
			run(t, dir, "git", "config", "branch.main.remote", "origin")
			run(t, dir, "git", "config", "branch.main.merge", "refs/heads/main")
		case "hg":
			run(t, dir, "hg", "init", dir+"-up")
			write(t, dir, ".hg/hgrc", "[paths]\ndefault = "+dir+"-up\n")
		case "fossil":
			t.Skip("a clone of fossil has a revision, the first, always")
		}
		s.commit(t, dir)
		if head, err := r.Upstream(t.Context()); head != "" || croft.KindOf(err) != croft.Conflict {
			t.Errorf("before the first push: %q, %v", head, err)
		}
		if err := r.Push(t.Context()); err != nil {
			t.Fatal(err)
		}
		if head, err := r.Upstream(t.Context()); err != nil || head != revision(t, r) {
			t.Errorf("after it: %q, %v", head, err)
		}
	})
}

func TestAShallowCloneDoesNotKnow(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s system, dir string, r *Repository) {
		if s.name != "git" {
			t.Skip("only git has shallow clones")
		}
		var revisions []string
		for _, text := range []string{"1", "2", "3"} {
			write(t, dir, "nodes/a.yaml", text)
			s.commit(t, dir)
			revisions = append(revisions, revision(t, r))
		}
		run(t, dir, "git", "branch", "old", strings.TrimPrefix(revisions[0], "git:"))
		other := dir + "-shallow"
		run(t, dir, "git", "clone", "-q", "--depth=1", "file://"+dir, other)
		shallow := open(t, other)
		wantAnswer(t, "an ancestor that was not fetched", shallow, revisions[1], revisions[2], revlock.Unknown)
		run(t, other, "git", "fetch", "-q", "--depth=1", "origin", "old")
		wantAnswer(t, "an ancestor that is here without what is between", shallow, revisions[0], revisions[2],
			revlock.Unknown)
		run(t, other, "git", "fetch", "-q", "--unshallow")
		wantAnswer(t, "after fetching all", shallow, revisions[0], revisions[2], revlock.Yes)
	})
}

func TestRepositoriesThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, system string
		spoil        func(t *testing.T, s system, dir string)
		want         string
	}{
		{"core.symlinks is false", "git", func(t *testing.T, _ system, dir string) {
			run(t, dir, "git", "config", "core.symlinks", "false")
		}, "core.symlinks is false"},
		{"a clone without cases", "git", func(t *testing.T, _ system, dir string) {
			run(t, dir, "git", "config", "core.ignorecase", "true")
		}, "core.ignorecase is true"},
		{"names that differ by case alone", "git", func(t *testing.T, s system, dir string) {
			write(t, dir, "nodes/A.yaml", "id: 2")
			s.commit(t, dir)
		}, "nodes/A.yaml and nodes/a.yaml differ by case alone"},
		{"a submodule", "git", func(t *testing.T, s system, dir string) {
			run(t, dir, "git", "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", "file://"+dir,
				"jobs/more")
			s.commit(t, dir)
		}, "jobs/more is a submodule"},
		{"in the middle of a merge", "git", func(t *testing.T, s system, dir string) {
			run(t, dir, "git", "checkout", "-q", "-b", "other")
			write(t, dir, "nodes/a.yaml", "id: 7\n")
			s.commit(t, dir)
			run(t, dir, "git", "checkout", "-q", "main")
			write(t, dir, "nodes/b.yaml", "id: 8\n")
			s.commit(t, dir)
			run(t, dir, "git", "merge", "-q", "--no-commit", "other")
		}, "a merge is under way"},
		{"in the middle of a merge", "hg", func(t *testing.T, s system, dir string) {
			first := strings.TrimSpace(run(t, dir, "hg", "log", "-r", ".", "-T", "{node}"))
			write(t, dir, "nodes/a.yaml", "id: 7\n")
			s.commit(t, dir)
			s.checkout(t, dir, first)
			write(t, dir, "nodes/b.yaml", "id: 8\n")
			s.commit(t, dir)
			run(t, dir, "hg", "merge", "-q")
		}, "a merge is under way"},
		{"in the middle of a merge", "fossil", func(t *testing.T, s system, dir string) {
			run(t, dir, "fossil", "settings", "autosync", "off")
			write(t, dir, "nodes/b.yaml", "id: 8\n")
			run(t, dir, "fossil", "addremove")
			run(t, dir, "fossil", "commit", "--branch", "other", "--no-warnings", "-m", "x")
			run(t, dir, "fossil", "update", "trunk")
			write(t, dir, "nodes/a.yaml", "id: 7\n")
			s.commit(t, dir)
			run(t, dir, "fossil", "merge", "other")
		}, "a merge is under way"},
		{"allow-symlinks is off", "fossil", func(t *testing.T, _ system, dir string) {
			run(t, dir, "fossil", "settings", "allow-symlinks", "off")
		}, "allow-symlinks is off"},
	} {
		t.Run(c.system+": "+c.name, func(t *testing.T) {
			each(t, func(t *testing.T, s system, dir string, r *Repository) {
				if s.name != c.system {
					t.Skip("of another system")
				}
				s.commit(t, dir)
				if wrong, err := r.Examine(t.Context()); err != nil || len(wrong) > 0 {
					t.Fatalf("before: %q, %v", wrong, err)
				}
				c.spoil(t, s, dir)
				_, err := r.Clean(t.Context())
				if croft.KindOf(err) != croft.Conflict || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v; want %q", err, c.want)
				}
			})
		})
	}
}

func TestAnotherUsersRepository(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can give files to others")
	}
	dir := t.TempDir()
	run(t, dir, "git", "init", "-q")
	run(t, dir, "chown", "-R", "12345", dir)
	_, err := open(t, dir).Revision(t.Context())
	if croft.KindOf(err) != croft.Denied || !strings.Contains(err.Error(), "safe.directory "+dir) {
		t.Errorf("%v", err)
	}
}

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(dir, ""); croft.KindOf(err) != croft.NotFound || !strings.Contains(err.Error(), "git init") {
		t.Errorf("no repository: %v", err)
	}
	run(t, dir, "git", "init", "-q")
	if _, err := Open(dir, "hg"); croft.KindOf(err) != croft.Invalid {
		t.Errorf("another system's: %v", err)
	}
	if _, err := Open(dir, "svn"); croft.KindOf(err) != croft.NotFound {
		t.Errorf("an unknown system: %v", err)
	}
	sub := filepath.Join(dir, "clusters", "one")
	if err := os.MkdirAll(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, sub, "nodes/a.yaml", "id: 1")
	run(t, dir, "git", "add", "-A")
	run(t, dir, "git", "commit", "-q", "-m", "x")
	write(t, dir, "elsewhere", "not of the cluster")
	r := open(t, sub)
	if dirty, err := r.Uncommitted(context.Background()); err != nil || len(dirty) > 0 {
		t.Errorf("a file beside the cluster's directory: %q, %v", dirty, err)
	}
	t.Setenv("GIT_DIR", "/nowhere") // as a hook sets it
	revision(t, r)
}
