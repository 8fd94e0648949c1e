package apply_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"croft/grid/apply"
	"croft/grid/plan"
	"croft/grid/unit"
)

// shell returns a unit of job web whose ready check succeeds while the unit is running.
func shell(command string) unit.Unit {
	return unit.Unit{Cluster: bedCluster, Job: "web", Runtime: "process", Command: []string{"/bin/sh", "-c", command},
		Ready: unit.Check{Command: []string{"true"}, Timeout: 600}}
}

func (b *bed) one(revision string, u unit.Unit) plan.Desired {
	d := b.want(revision, nil)
	d.Nodes[0].Units = []unit.Unit{u}
	d.Jobs["web"] = plan.Job{Want: 1}
	return d
}

const serves = "trap 'exit 0' TERM; sleep 100000 & wait"

func TestAUnitThatEndsAtOnceIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	b := newBed(t, 1)
	_, err := b.apply(b.grid("ann"), b.one("a1", shell("echo one; echo DATABASE_URL is not set >&2; exit 3")))
	var partly *apply.Partly // the check's timeout is ten minutes
	if !errors.As(err, &partly) || !strings.Contains(err.Error(), "it does not run, but is stopped") ||
		!strings.Contains(err.Error(), "its last output: one | DATABASE_URL is not set") {
		t.Errorf("got %v", err)
	}
}

func TestAUnitThatDoesNotGetReadyGivesWayToTheFormerOne(t *testing.T) {
	t.Parallel()
	b := newBed(t, 1)
	former, broken := shell(serves), shell("exit 3")
	want := b.one("a1", former)
	b.must(want)
	before := b.runs(want)
	_, err := b.apply(b.grid("ann"), b.one("a2", broken))
	var back *apply.TakenBack
	if !errors.As(err, &back) || len(back.Back) != 1 || !strings.Contains(err.Error(), "the former unit runs again") {
		t.Errorf("got %v", err)
	}
	if now := b.runs(want); len(now) != 2 || now[1] != before[1] || !strings.HasPrefix(now[0], "n1 applying") {
		t.Errorf("there is %q, want %q", now, before)
	}
	better := shell(serves + "; :")
	want = b.one("a3", better)
	b.must(want)
	if now := b.runs(want); !strings.HasPrefix(now[0], "n1 done") || !strings.HasSuffix(now[1], "running true") {
		t.Errorf("after a better change there is %q", now)
	}
}

func TestAJobMayKeepAUnitThatDoesNotGetReady(t *testing.T) {
	t.Parallel()
	b := newBed(t, 1)
	b.must(b.one("a1", shell(serves)))
	broken := shell("exit 3")
	broken.Ready.Stay = true
	want := b.one("a2", broken)
	_, err := b.apply(b.grid("ann"), want)
	var partly *apply.Partly
	if !errors.As(err, &partly) {
		t.Errorf("got %v", err)
	}
	ended := func(line string) bool { return strings.HasSuffix(line, "running false") }
	if now := b.runs(want); !slices.ContainsFunc(now, ended) {
		t.Errorf("there is %q", now)
	}
}

// TestAUnitOfAnotherDefinitionIsNotRestored: the runtime's current definition would create a different unit.
func TestAUnitOfAnotherDefinitionIsNotRestored(t *testing.T) {
	t.Parallel()
	b := newBed(t, 1)
	u := shell(serves)
	b.must(b.one("a1", u))
	redefine := func() {
		file := filepath.Join(b.nodes[0].StateDir, "units", u.Name(), "definition")
		if err := os.WriteFile(file, []byte("another\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	redefine()
	u.Confirm = 600
	if _, err := b.apply(b.grid("ann"), b.one("a2", u)); err == nil ||
		!strings.Contains(err.Error(), "cannot be made again") {
		t.Errorf("with confirm: %v", err)
	}
	u.Confirm = 0
	b.must(b.one("a2", u))
	redefine()
	u.Ready = unit.Check{Command: []string{"false"}, Timeout: 1}
	_, err := b.apply(b.grid("ann"), b.one("a3", u))
	var partly *apply.Partly
	if !errors.As(err, &partly) ||
		!strings.Contains(err.Error(), "the former unit is not back: it was made from another") {
		t.Errorf("got %v", err)
	}
}
