package apply_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"croft/grid/apply"
	"croft/grid/plan"
	"croft/grid/unit"
	"croft/internal/testing/patient"
)

// secret returns a desired state whose first node has a unit with a secret file; changes of the unit must be confirmed.
func (b *bed) secret(revision, content string, ready unit.Check) plan.Desired {
	d := b.want(revision, map[string][]string{"n1": {"sure/0:1"}})
	u := &d.Nodes[0].Units[0]
	u.Confirm, u.Ready = 3600, ready
	u.Files = []unit.File{{Path: "/etc/plain", Mode: 0o644, Content: "plain", Digest: "plain"},
		{Path: "/etc/secret", Mode: 0o400, Content: content, Digest: "of " + revision, Secret: true}}
	return d
}

// having lists the files in the first node's state directory that contain text.
func (b *bed) having(text string) []string {
	b.t.Helper()
	out, err := exec.CommandContext(b.t.Context(), "grep", "-rlF", text, b.nodes[0].StateDir).Output()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || exit.ExitCode() != 1) {
		b.t.Fatal(err)
	}
	return strings.Fields(string(out))
}

// restart kills the processes on the node that watch unconfirmed changes, as a reboot does.
func (b *bed) restart() {
	b.t.Helper()
	mark := filepath.Join(b.nodes[0].StateDir, bedCluster, "armed")
	ended := false
	patient.Until(b.t, "what watches the change has ended", func() bool {
		left := false
		files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, file := range files {
			text, _ := os.ReadFile(file)
			pid, err := strconv.Atoi(strings.Split(file, "/")[2])
			if err == nil && strings.Contains(string(text), mark) {
				left, ended = true, true
				_ = syscall.Kill(-pid, syscall.SIGKILL)
			}
		}
		return !left
	})
	if !ended {
		b.t.Error("nothing watched the change")
	}
}

// TestAChangedSecretIsTakenBack also checks that only the unit's own file contains the secret after a confirmed or
// reverted change.
func TestAChangedSecretIsTakenBack(t *testing.T) {
	t.Parallel()
	const former, next = "the-former-hunter2", "the-next-hunter2"
	b := newBed(t, 1)
	one := b.secret("a1", former, unit.Check{})
	b.must(one)
	before := b.runs(one)
	file := b.having(former)
	if len(file) != 1 || !strings.HasSuffix(file[0], "/files/1") {
		t.Fatalf("the secret is in %q", file)
	}
	two := b.secret("a2", next, unit.Check{Command: []string{"sh", "-c",
		"! grep -rlF hunter2 " + filepath.Join(b.nodes[0].StateDir, bedCluster) + " | grep -v '/armed/step-0.kept/1$'"},
		Timeout: 30})
	g := b.grid("second")
	if r, err := b.apply(g, two); err != nil || len(r.Done) != 1 {
		t.Fatalf("a change that is confirmed: %v, %+v", err, r)
	}
	g.Close()
	if was, is := b.having(former), b.having(next); len(was) != 0 || !equal(is, file) {
		t.Errorf("after it was confirmed, the former secret is in %q, the new one in %q", was, is)
	}

	three := b.secret("a3", former, unit.Check{Command: []string{"false"}, Timeout: 1})
	g = b.grid("third")
	var back *apply.TakenBack
	if _, err := b.apply(g, three); !errors.As(err, &back) {
		t.Fatalf("a change that is never ready: %v", err)
	}
	g.Close()
	if was, is := b.having(former), b.having(next); len(was) != 0 || !equal(is, file) {
		t.Errorf("after it was taken back, the secret that failed is in %q, the one before it in %q", was, is)
	}
	if info, err := os.Stat(file[0]); err != nil || info.Mode().Perm() != 0o400 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
	after := b.runs(two)
	if len(after) != 2 || !strings.HasSuffix(after[1], "running true") || !strings.Contains(after[0], "returned") ||
		after[1] == before[1] {
		t.Errorf("it runs %q, before %q", after, before)
	}
}

// TestANodeThatRestartsBeforeItsChangeIsConfirmed expects that the node reports the change as unconfirmed, and that
// only the next apply reverts it.
func TestANodeThatRestartsBeforeItsChangeIsConfirmed(t *testing.T) {
	t.Parallel()
	const former, next = "the-former-hunter2", "the-next-hunter2"
	b := newBed(t, 1)
	one, two := b.secret("a1", former, unit.Check{}), b.secret("a2", next, unit.Check{})
	b.must(one)
	before := b.runs(one)
	if _, dead := b.killed(two, atConfirm); !dead {
		t.Fatal("the client was not killed")
	}
	b.restart()

	g := b.grid("next")
	p, found, err := g.Plan(t.Context(), two, plan.Options{})
	if err != nil || len(found) != 1 || !equal(found[0].Unwatched, []string{"replace f-fedcba98-sure-0"}) ||
		!strings.Contains(strings.Join(p.Warnings, "\n"), "the node restarted before the change was confirmed") {
		t.Fatalf("what is seen: %+v, %+v, %v", found, p.Warnings, err)
	}
	differences, err := plan.Audit(two, found, plan.Options{})
	if err != nil || differences[0].Cause != plan.Unconfirmed || differences[0].Name != "f-fedcba98-sure-0" {
		t.Errorf("audit: %+v, %v", differences, err)
	}
	if text := plan.Metrics(two, found, differences); !strings.Contains(text,
		`croft_grid_node_unconfirmed{node="n1"} 1`) {
		t.Errorf("metrics:\n%s", text)
	}

	var back *apply.TakenBack
	r, err := g.Apply(t.Context(), two, p, found, apply.Choice{})
	if !errors.As(err, &back) || len(r.Back) != 1 || r.Back[0].Op != plan.Replace || len(r.Done) != 0 ||
		!strings.Contains(err.Error(), "the node restarted before the change was confirmed") {
		t.Fatalf("the next apply: %v, %+v", err, r)
	}
	if after := b.runs(one); after[1] != before[1] || !strings.Contains(after[0], "returned") {
		t.Errorf("after that: %q, before %q", after, before)
	}
	if is := b.having(next); len(is) != 0 {
		t.Errorf("the secret that was taken back is in %q", is)
	}
	g.Close()
	g = b.grid("the one after")
	if r, err := b.apply(g, two); err != nil || len(r.Done) != 1 {
		t.Errorf("the apply after that: %v, %+v", err, r)
	}
}
