package apply_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"croft/grid/apply"
	"croft/grid/machine"
	"croft/grid/plan"
	"croft/grid/unit"
)

// scripts is a Runtime whose units are shell commands that change their node. VERSION is the result of the command.
type scripts struct{}

func (scripts) run(ctx context.Context, m machine.Machine, text string) (string, error) {
	return machine.Output(ctx, m, nil, "sh", "-c", text)
}

func (scripts) file(u unit.Unit) string { return filepath.Join(u.Options["dir"], "unit-"+u.Name()) }

func (scripts) Prepare(context.Context, machine.Machine, unit.Unit) error { return nil }

func (s scripts) Create(ctx context.Context, m machine.Machine, u unit.Unit) error {
	_, err := s.run(ctx, m, fmt.Sprintf("echo %s %s %d %s >%s", u.Name(), u.Job, u.Slot, u.Hash(), s.file(u)))
	return err
}

func (s scripts) Start(ctx context.Context, m machine.Machine, u unit.Unit) error {
	_, err := s.run(ctx, m, u.Command[0])
	return err
}

func (scripts) Stop(context.Context, machine.Machine, unit.Unit) error { return nil }

func (s scripts) Remove(ctx context.Context, m machine.Machine, u unit.Unit) error {
	_, err := s.run(ctx, m, `rm -f "$STATE_DIR/unit-`+u.Name()+`"`)
	return err
}

func (s scripts) List(ctx context.Context, m machine.Machine, _ string) ([]plan.Actual, error) {
	text, err := s.run(ctx, m, `cat "$STATE_DIR"/unit-* 2>/dev/null || :`)
	if err != nil {
		return nil, err
	}
	var all []plan.Actual
	for line := range strings.Lines(text) {
		a := plan.Actual{Running: true}
		if _, err := fmt.Sscan(line, &a.Name, &a.Job, &a.Slot, &a.Hash); err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

func (scripts) Ready(context.Context, machine.Machine, unit.Unit) (string, error) { return "", nil }

func (scripts) Logs(context.Context, machine.Machine, unit.Unit, int, io.Writer) error { return nil }

func (s scripts) Undo(before, now *unit.Unit) (keep, undo string, err error) {
	text := "rm -f " + s.file(*now) + "\n"
	if before != nil {
		text += fmt.Sprintf("echo %s %s %d %s >%s\n%s\n", before.Name(), before.Job, before.Slot, before.Hash(),
			s.file(*before), before.Command[0])
	}
	return "", text, nil
}

func withScripts(c *apply.Config) {
	had := c.Runtimes
	c.Runtimes = func(name string, n unit.Node) (apply.Runtime, error) {
		if name == "scripts" {
			return scripts{}, nil
		}
		return had(name, n)
	}
	c.FirewallConfirm = 4 * time.Second
}

// script returns the desired state with one unit on the first node, which runs command.
func (b *bed) script(revision, command string, confirm int) plan.Desired {
	d := b.want(revision, nil)
	d.Nodes[0].Units = []unit.Unit{{Cluster: bedCluster, Job: "sshd", Runtime: "scripts", Command: []string{command},
		Options: map[string]string{"dir": d.Nodes[0].StateDir}, Confirm: confirm}}
	d.Jobs["sshd"] = plan.Job{Want: 1}
	return d
}

// listener is a shell script that kills the node's listening sshd and keeps its open connections.
const listener = `for p in $(grep -l %[1]s /proc/[0-9]*/cmdline 2>/dev/null); do d=${p%%/cmdline}
[ "$(cat $d/comm)" = sshd ] && kill -9 ${d#/proc/}; done; :; `

// TestAnSshdThatNoLongerStartsIsTakenBack makes a change after which the existing connection still works and new
// connections fail.
func TestAnSshdThatNoLongerStartsIsTakenBack(t *testing.T) {
	t.Parallel()
	b := newBed(t, 1)
	file := filepath.Join(b.ssh.Nodes[0].Dir, "sshd_config")
	// The killed sshd may hold the port for a moment.
	restart := fmt.Sprintf(listener+`sed -i /NoSuchKeyword/d %[1]s; n=0; `+
		`until /usr/sbin/sshd -f %[1]s </dev/null >/dev/null 2>&1 || [ $((n += 1)) = 300 ]; do sleep 0.1; done`, file)
	t.Cleanup(func() {
		if out, err := exec.Command("/bin/sh", "-c", fmt.Sprintf(listener, file)).CombinedOutput(); err != nil {
			t.Logf("end the node's sshd: %v: %s", err, out)
		}
	})
	breaks := fmt.Sprintf(listener+`echo NoSuchKeyword yes >>%[1]s; /usr/sbin/sshd -D -f %[1]s 2>/dev/null || :`, file)
	g := b.grid("first", withScripts)
	if _, err := b.apply(g, b.script("a1", restart, 20)); err != nil {
		t.Fatalf("a change that is confirmed: %v", err)
	}
	g.Close()
	g = b.grid("second", withScripts)
	r, err := b.apply(g, b.script("a2", breaks, 3))
	var back *apply.TakenBack
	if !errors.As(err, &back) || len(r.Back) != 1 || len(r.Done) != 0 {
		t.Fatalf("a change that cuts us off: %v, %+v", err, r)
	}
	g.Close()
	text, _ := os.ReadFile(file)
	if strings.Contains(string(text), "NoSuchKeyword") {
		t.Errorf("the node's sshd has\n%s", text)
	}
	g = b.grid("third", withScripts)
	want := b.script("a1", restart, 20)
	found := g.Observe(t.Context(), want, want.Nodes)
	if found[0].Phase != "returned" || len(found[0].Units) != 1 ||
		found[0].Units[0].Hash != want.Nodes[0].Units[0].Hash() {
		t.Errorf("after that the node has %+v", found[0])
	}
	if _, err := b.apply(g, b.script("a3", restart+"; true", 20)); err != nil {
		t.Errorf("the next apply: %v", err)
	}
	left, _ := filepath.Glob(filepath.Join(b.nodes[0].StateDir, bedCluster, "armed", "*.watch"))
	if len(left) > 0 {
		t.Errorf("the node still has %q", left)
	}
}

// TestAUnitThatIsNotReadyIsTakenBack uses a real runtime to restore the old version.
func TestAUnitThatIsNotReadyIsTakenBack(t *testing.T) {
	t.Parallel()
	b := newBed(t, 2)
	one := b.want("a1", map[string][]string{"n1": {"web/0:1"}, "n2": {"web/1:1"}})
	b.must(one)
	before := b.runs(one)
	two := b.want("a2", map[string][]string{"n1": {"web/0:2"}, "n2": {"web/1:2"}})
	for i := range two.Nodes {
		u := &two.Nodes[i].Units[0]
		u.Confirm, u.Ready = 60, unit.Check{Command: []string{"false"}, Timeout: 1}
	}
	g := b.grid("second")
	r, err := b.apply(g, two)
	var back *apply.TakenBack
	if !errors.As(err, &back) || len(r.Back) != 1 || len(r.Pending) != 1 {
		t.Fatalf("a unit that is never ready: %v, %+v", err, r)
	}
	after := b.runs(one)
	if after[1] != before[1] || !strings.Contains(after[0], "returned") || after[3] != before[3] {
		t.Errorf("before\n%s\nafter\n%s", strings.Join(before, "\n"), strings.Join(after, "\n"))
	}
}

// TestAFirewallThatCutsUsOffIsTakenBack runs in its own network namespace.
func TestAFirewallThatCutsUsOffIsTakenBack(t *testing.T) {
	t.Parallel()
	if os.Getenv("CROFT_OWN_NETWORK") == "" {
		ownNetwork(t)
		return
	}
	b := newBed(t, 1)
	_, port, err := net.SplitHostPort(b.nodes[0].Address)
	if err != nil {
		t.Fatal(err)
	}
	table := func(rule string) string {
		return fmt.Sprintf("table inet %s {\n\tchain in {\n\t\ttype filter hook input priority filter; policy accept;\n\t\t%s\n"+
			"\t}\n}\n", apply.Table(bedCluster), rule)
	}
	try := func(revision, text string) (apply.Result, error) {
		g := b.grid("client of "+revision, withScripts)
		defer g.Close()
		want := b.want(revision, nil)
		want.Nodes[0].Firewall = text
		return b.apply(g, want)
	}
	good := table("tcp dport 9 drop")
	if r, err := try("a1", good); err != nil || len(r.Done) != 1 {
		t.Fatalf("a firewall that lets us in: %v, %+v", err, r)
	}
	if r, err := try("a1", good); err != nil || len(r.Done) != 0 {
		t.Errorf("the same again: %v, %+v", err, r)
	}
	before := ruleset(t)
	r, err := try("a2", table("tcp dport "+port+" drop"))
	var back *apply.TakenBack
	if !errors.As(err, &back) || len(r.Back) != 1 {
		t.Fatalf("a firewall that cuts us off: %v, %+v", err, r)
	}
	if after := ruleset(t); after != before {
		t.Errorf("before\n%safter\n%s", before, after)
	}
	if _, err := try("a3", table("no such rule")); err == nil || !strings.Contains(err.Error(), "check the firewall") {
		t.Errorf("a firewall with a mistake: %v", err)
	}
	if r, err := try("a3", ""); err != nil || len(r.Done) != 1 || ruleset(t) != "" {
		t.Errorf("no firewall: %v, %+v, %s", err, r, ruleset(t))
	}
}

func ruleset(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "nft", "-s", "list", "ruleset").CombinedOutput()
	if err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
	return string(out)
}

// ownNetwork runs the test again in a new network namespace.
func ownNetwork(t *testing.T) {
	for _, program := range []string{"unshare", "nft", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed: scripts/install-deps test", program)
		}
	}
	if err := exec.CommandContext(t.Context(), "unshare", "-n", "true").Run(); err != nil {
		t.Skipf("no network of its own can be made here: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "-n", "sh", "-c",
		`ip link set lo up && exec "$@"`, "sh", os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), "CROFT_OWN_NETWORK=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS") {
		t.Errorf("%v\n%s", err, out)
	}
}
