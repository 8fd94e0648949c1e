package apply_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"croft/grid/apply"
	"croft/grid/plan"
	"croft/grid/revlock"
	"croft/grid/runtime"
	"croft/grid/ssh"
	"croft/grid/ssh/sshtest"
	"croft/grid/unit"
	"croft/internal/testing/patient"
)

func TestMain(m *testing.M) {
	if os.Getenv("CROFT_APPLY_BED") != "" {
		os.Exit(applyOnce())
	}
	patient.SideBySide(4)
	goleak.VerifyTestMain(m)
}

const bedCluster = "fedcba9876543210fedcba9876543210"

// A bed is a test bed of nodes with a real sshd each. Its units are real processes.
type bed struct {
	t     testing.TB
	ssh   *sshtest.Grid
	nodes []unit.Node
}

func newBed(t testing.TB, nodes int, sshd ...string) *bed {
	b := &bed{t: t, ssh: sshtest.Start(t, sshtest.Options{Nodes: nodes, Sshd: sshd})}
	for _, n := range b.ssh.Nodes {
		b.nodes = append(b.nodes, n.Unit)
	}
	return b
}

// want returns the desired state of a revision. units maps nodes to units, each written as JOB/SLOT:COMMAND.
func (b *bed) want(revision string, units map[string][]string) plan.Desired {
	d := plan.Desired{Cluster: bedCluster, Revision: revisionOf(revision), Jobs: map[string]plan.Job{}}
	for _, n := range b.nodes {
		n.Units = nil
		for _, text := range units[n.Name] {
			n.Units = append(n.Units, process(text))
		}
		d.Nodes = append(d.Nodes, n)
	}
	for _, n := range d.Nodes {
		for _, u := range n.Units {
			j := d.Jobs[u.Job]
			j.Want++
			d.Jobs[u.Job] = j
		}
	}
	return d
}

func process(text string) unit.Unit {
	name, version, _ := strings.Cut(text, ":")
	job, slot, _ := strings.Cut(name, "/")
	u := unit.Unit{Cluster: bedCluster, Job: job, Runtime: "process", Command: []string{"/bin/sh", "-c",
		"trap 'exit 0' TERM; sleep 100000 & wait"},
		Env: map[string]string{"VERSION": version}, Exclusive: job == "db"}
	_, _ = fmt.Sscan(slot, &u.Slot)
	return u
}

func revisionOf(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "git:" + hex.EncodeToString(sum[:20])
}

// line is a version history in which a revision contains the revisions with the same first letter that sort before it.
type line struct{ names []string }

func (l line) Revision(context.Context) (string, error)      { return "", errors.New("not asked") }
func (l line) Uncommitted(context.Context) ([]string, error) { return nil, nil }
func (l line) Upstream(context.Context) (string, error)      { return "", nil }
func (l line) Ancestor(_ context.Context, old, new string) (revlock.Answer, error) {
	at := func(rev string) string {
		for _, n := range l.names {
			if revisionOf(n) == rev {
				return n
			}
		}
		return ""
	}
	a, b := at(old), at(new)
	switch {
	case a == "" || b == "":
		return revlock.Unknown, nil
	case a[0] == b[0] && a <= b:
		return revlock.Yes, nil
	}
	return revlock.No, nil
}

var known = line{[]string{"a1", "a2", "a3", "a4", "b1", "b2"}}

type sshDialer struct{ d *ssh.Dialer }

func (d sshDialer) Dial(ctx context.Context, n unit.Node) (apply.Connection, error) {
	r := d.d.Remote(n)
	if err := r.Connect(ctx); err != nil {
		return nil, err
	}
	return closer{r}, nil
}

type closer struct{ *ssh.Remote }

func (c closer) Close() error {
	c.Remote.Close()
	return nil
}

// config returns the Config of a Grid whose user has this home directory.
func config(home, who string) (apply.Config, *ssh.Dialer) {
	d := ssh.New(ssh.Config{File: filepath.Join(home, ".ssh", "config")})
	return apply.Config{
		Dialer: sshDialer{d}, Locker: apply.Shell{Cluster: bedCluster, Who: who}, VCS: known,
		Runtimes: func(name string, n unit.Node) (apply.Runtime, error) {
			return runtime.Config{StateDir: n.StateDir}.Open(name)
		},
	}, d
}

// grid returns the Grid of a new client.
func (b *bed) grid(who string, change ...func(*apply.Config)) *apply.Grid {
	c, d := config(b.ssh.Home, who)
	for _, f := range change {
		f(&c)
	}
	g, err := apply.New(c)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		g.Close()
		d.Close()
	})
	return g
}

// apply plans and applies.
func (b *bed) apply(g *apply.Grid, want plan.Desired) (apply.Result, error) {
	p, found, err := g.Plan(b.t.Context(), want, plan.Options{})
	if err != nil {
		return apply.Result{}, err
	}
	return g.Apply(b.t.Context(), want, p, found, apply.Choice{})
}

// must plans and applies want. It fails the test on errors.
func (b *bed) must(want plan.Desired) apply.Result {
	b.t.Helper()
	g := b.grid("setup")
	r, err := b.apply(g, want)
	if err != nil {
		b.t.Fatal(err)
	}
	g.Close()
	return r
}

// runs lists the running units as NODE NAME VERSION, and the outcome of each node's last change.
func (b *bed) runs(want plan.Desired) []string {
	b.t.Helper()
	g := b.grid("look")
	defer g.Close()
	var all []string
	for _, o := range g.Observe(b.t.Context(), want, b.nodes) {
		if o.Error != "" {
			b.t.Fatalf("%s: %s", o.Node, o.Error)
		}
		all = append(all, fmt.Sprintf("%s %s %s", o.Node, o.Phase, revlock.Short(o.Revision)))
		for _, u := range o.Units {
			all = append(all, fmt.Sprintf("%s %s %.8s running %v", o.Node, u.Name, u.Hash, u.Running))
		}
	}
	return all
}

func equal(a, b []string) bool { return slices.Equal(a, b) }
