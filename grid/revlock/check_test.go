package revlock_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"croft"
	"croft/grid/revlock"
)

// repository is a VCS with a linear history, some revisions of which are missing.
type repository struct {
	order   string // hashes, one letter each, oldest first
	missing string
	head    string // checked out
	remote  string // the upstream's head; "": none
	dirty   []string
}

func hash(letter string) string {
	if letter == "" {
		return ""
	}
	return "git:" + strings.Repeat(letter, 40)
}

func (r repository) Revision(context.Context) (string, error) {
	if r.head == "" {
		return "", croft.Errorf(croft.NotFound, "nothing was committed yet")
	}
	return hash(r.head), nil
}

func (r repository) Uncommitted(context.Context) ([]string, error) { return r.dirty, nil }
func (r repository) Upstream(context.Context) (string, error)      { return hash(r.remote), nil }

func (r repository) Ancestor(_ context.Context, old, new string) (revlock.Answer, error) {
	if strings.Contains(r.missing, old[4:5]) {
		return revlock.Unknown, nil
	}
	a, b := strings.Index(r.order, old[4:5]), strings.Index(r.order, new[4:5])
	if a >= 0 && b >= 0 && a <= b {
		return revlock.Yes, nil
	}
	return revlock.No, nil
}

func TestWhichRevisionsMayChangeANode(t *testing.T) {
	t.Parallel()
	vcs := repository{order: "abc", missing: "e"}
	for _, c := range []struct {
		name   string
		stored revlock.State
		mine   string
		rights revlock.Rights
		busy   bool   // units of the cluster run on the node
		want   string // "": no error
	}{
		{"an ancestor", revlock.State{Revision: hash("a")}, "c", revlock.Rights{}, true, ""},
		{"the same, again", revlock.State{Revision: hash("c")}, "c", revlock.Rights{}, true, ""},
		{"one that was made later", revlock.State{Revision: hash("c")}, "b", revlock.Rights{}, true,
			"does not contain: pull and merge; to go back, commit a revert"},
		{"that with a reason", revlock.State{Revision: hash("c")}, "b", revlock.Rights{Force: true}, true, ""},
		{"one of another branch, or from before history was rewritten", revlock.State{Revision: hash("d")}, "c",
			revlock.Rights{}, true, "does not contain"},
		{"one that is not here", revlock.State{Revision: hash("e")}, "c", revlock.Rights{}, true, "fetch first"},
		{"one that is lost, with a reason", revlock.State{Revision: hash("e")}, "c", revlock.Rights{Force: true}, true,
			""},
		{"none, on a new node", revlock.State{}, "c", revlock.Rights{}, false, ""},
		{"none, where units are", revlock.State{}, "c", revlock.Rights{}, true, "--adopt"},
		{"none, where units are, and the operator says so", revlock.State{}, "c", revlock.Rights{Adopt: true}, true,
			""},
		{"none, and mine is the newest of all", revlock.State{}, "c", revlock.Rights{Head: hash("c")}, true, ""},
		{"none, and mine is not the newest", revlock.State{}, "b", revlock.Rights{Head: hash("c")}, false, "--adopt"},
		{"none, but an epoch: its lock was broken before anything was stored", revlock.State{Epoch: 1}, "c",
			revlock.Rights{}, false, "--adopt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := revlock.Check(t.Context(), vcs, c.stored, hash(c.mine), c.rights, !c.busy)
			if c.want == "" && err != nil || c.want != "" &&
				(!errors.Is(err, croft.Conflict) || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestWhatMayBeApplied(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		vcs  repository
		want string
		kind croft.Kind
	}{
		{"what is committed", repository{order: "ab", head: "b"}, "", ""},
		{"what is committed and pushed", repository{order: "ab", head: "b", remote: "b"}, "", ""},
		{"nothing was committed", repository{}, "nothing was committed", croft.NotFound},
		{"a name with a line break", repository{order: "ab", head: "b", dirty: []string{"jobs/x\nall is committed"}},
			"jobs/x all is committed is not committed", croft.Conflict},
		{"what is not committed", repository{order: "ab", head: "b", dirty: []string{"jobs/x.yaml", "jobs/y.yaml"}},
			"jobs/x.yaml and 1 more is not committed", croft.Conflict},
		{"what is not pushed", repository{order: "ab", head: "b", remote: "a"}, "is not pushed", croft.Conflict},
		{"what others have pushed more than", repository{order: "abc", head: "b", remote: "c"}, "pull and merge",
			croft.Conflict},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, head, err := revlock.Clean(t.Context(), c.vcs)
			if c.want != "" {
				if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("got %v, want %q", err, c.want)
				}
				return
			}
			if err != nil || got != hash(c.vcs.head) || head != hash(c.vcs.remote) {
				t.Errorf("got %s, %s, %v", got, head, err)
			}
		})
	}
}

func TestWhatManyAppliesNoteAtOnceIsKept(t *testing.T) {
	t.Parallel()
	m := revlock.Memory{File: filepath.Join(t.TempDir(), "a", "epochs")}
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			if err := m.Note(map[string]int64{fmt.Sprint("n", i): 7}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for i := range 40 {
		if err := m.Check(fmt.Sprint("n", i), 6); !errors.Is(err, croft.Conflict) {
			t.Errorf("the epoch of n%d is forgotten: %v", i, err)
		}
	}
}

func TestANodeWhoseStateWentBack(t *testing.T) {
	t.Parallel()
	m := revlock.Memory{File: filepath.Join(t.TempDir(), "a", "epochs")}
	if err := m.Check("n1", 0); err != nil {
		t.Errorf("a node that was never seen: %v", err)
	}
	if err := m.Note(map[string]int64{"n1": 7, "n2": 1}); err != nil {
		t.Fatal(err)
	}
	if err := m.Note(map[string]int64{"n2": 2}); err != nil {
		t.Fatal(err)
	}
	if err := m.Check("n1", 7); err != nil {
		t.Errorf("the same epoch: %v", err)
	}
	if err := m.Check("n1", 6); !errors.Is(err, croft.Conflict) || !strings.Contains(err.Error(), "had the epoch 7") {
		t.Errorf("an older epoch: %v", err)
	}
}
