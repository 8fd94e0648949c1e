package ssh_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"croft"
	"croft/grid/machine"
	"croft/grid/ssh"
	"croft/grid/ssh/sshtest"
	"croft/internal/testing/patient"
)

func TestManyDialsAtOnceAllSucceed(t *testing.T) {
	t.Parallel()
	g := sshtest.Start(t, sshtest.Options{Sshd: []string{"MaxStartups 2:50:4"}})
	d := dialer(t, g)
	var all sync.WaitGroup
	for range 24 {
		all.Go(func() {
			r := d.Remote(g.Nodes[0].Unit)
			defer r.Close()
			if out, err := machine.Output(patient.Context(t), r, nil, "echo", "x"); out != "x\n" || err != nil {
				t.Errorf("%q, %v", out, err)
			}
		})
	}
	all.Wait()
	if log := g.Nodes[0].Log(); !strings.Contains(log, "MaxStartups") {
		t.Log("no dial was refused this time")
	}
}

func TestFewerSessionsThanWeMayUse(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{"1", "3"} {
		g := sshtest.Start(t, sshtest.Options{Sshd: []string{"MaxSessions " + limit}})
		r := dialer(t, g).Remote(g.Nodes[0].Unit)
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				want := fmt.Sprintln(i)
				out, err := machine.Output(patient.Context(t), r, nil, "echo", fmt.Sprint(i))
				if out != want || err != nil {
					t.Errorf("MaxSessions %s: %q, %v", limit, out, err)
				}
			})
		}
		all.Wait()
		r.Close()
	}
	g := sshtest.Start(t, sshtest.Options{Sshd: []string{"MaxSessions 0"}})
	_, err := machine.Output(patient.Context(t), dialer(t, g).Remote(g.Nodes[0].Unit), nil, "true")
	if !errors.Is(err, croft.Unavailable) || !strings.Contains(err.Error(), "MaxSessions") {
		t.Errorf("no session at all: %v", err)
	}
}

func TestMoreProgramsThanSessionsWaitTheirTurn(t *testing.T) {
	t.Parallel()
	g := sshtest.Start(t, sshtest.Options{})
	r := dialer(t, g).Remote(g.Nodes[0].Unit)
	// each waits for the 8th to begin: fewer than 8 at once would wait for ever
	script := `echo x >>"$STATE_DIR/n"; until [ $(wc -l <"$STATE_DIR/n") -ge 8 ]; do sleep 0.01; done`
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() {
			if _, err := machine.Output(patient.Context(t), r, nil, "sh", "-c", script); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestManyNodesAtOnce(t *testing.T) {
	t.Parallel()
	const nodes = 15
	g := sshtest.Start(t, sshtest.Options{Nodes: nodes, HostCA: true})
	d := dialer(t, g)
	var all sync.WaitGroup
	for _, n := range g.Nodes {
		all.Go(func() {
			out, err := machine.Output(patient.Context(t), d.Remote(n.Unit), nil, "sh", "-c", `echo "$STATE_DIR"`)
			if out != n.State+"\n" || err != nil {
				t.Errorf("%s: %q, %v", n.Unit.Name, out, err)
			}
		})
	}
	all.Wait()
}

func TestJumps(t *testing.T) {
	t.Parallel()
	g := sshtest.Start(t, sshtest.Options{Nodes: 4})
	hop := func(n *sshtest.Node) string { return n.Unit.User + "@" + n.Unit.Address }
	a, b, c, last := g.Nodes[0], g.Nodes[1], g.Nodes[2], g.Nodes[3]
	configure(t, g, fmt.Sprintf("Host last\n HostName %s\n Port %s\n ProxyJump %s,%s\n"+
		"Host other\n HostName %s\n Port %s\n ProxyJump last\n", last.Host, last.Port, hop(a), hop(b), c.Host, c.Port))
	d := dialer(t, g)
	var all sync.WaitGroup
	for _, name := range []string{"last", "other", "last", "other"} {
		all.Go(func() {
			node := last.Unit
			node.Address = name
			from, want := b.Host, last.Host
			if name == "other" {
				from, want = last.Host, c.Host
			}
			out, err := machine.Output(patient.Context(t), d.Remote(node), nil, "sh", "-c", `echo $SSH_CONNECTION`)
			if words := strings.Fields(out); err != nil || len(words) != 4 || words[2] != want {
				t.Errorf("%s: %q, %v, want a connection from %s to %s", name, out, err, from, want)
			}
		})
	}
	all.Wait()
	// a node that was reached through a jump that broke is lost
	node := last.Unit
	node.Address = "last"
	r := d.Remote(node)
	if err := r.Connect(patient.Context(t)); err != nil {
		t.Fatal(err)
	}
	a.Cut()
	<-r.Lost()
	if err := r.Connect(patient.Context(t)); !errors.Is(err, croft.Unavailable) {
		t.Errorf("got %v", err)
	}
	if err := connect(t, g, node); err != nil {
		t.Error(err)
	}
	patient.Until(t, "the way is found anew", func() bool { return d.Remote(node).Connect(patient.Context(t)) == nil })
	a.Kill()
	if err := connect(t, g, node); !errors.Is(err, croft.Unavailable) ||
		!strings.Contains(err.Error(), a.Port+": Connection refused") {
		t.Errorf("the first jump is off: %v", err)
	}
}

func TestJumpsInACircle(t *testing.T) {
	t.Parallel()
	g := sshtest.Start(t, sshtest.Options{})
	configure(t, g, "Host n1\n ProxyJump n2\nHost n2\n ProxyJump n1\n")
	node := g.Nodes[0].Unit
	node.Address = "n1"
	if err := connect(t, g, node); !errors.Is(err, croft.Invalid) || !strings.Contains(err.Error(), "circle") {
		t.Errorf("got %v", err)
	}
	configure(t, g, "Host n1\n ProxyJump a/b\n")
	if err := connect(t, g, node); !errors.Is(err, croft.Invalid) {
		t.Errorf("a jump that is no address: %v", err)
	}
}

func BenchmarkDial(b *testing.B) {
	g, d := benched(b)
	for b.Loop() {
		r := d.Remote(g.Nodes[0].Unit)
		if err := r.Connect(b.Context()); err != nil {
			b.Fatal(err)
		}
		r.Close()
	}
}

func BenchmarkProgram(b *testing.B) {
	g, d := benched(b)
	r := d.Remote(g.Nodes[0].Unit)
	for b.Loop() {
		if _, err := machine.Output(b.Context(), r, nil, "true"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFifteenNodes is what a pass over 15 nodes costs that dials each and runs four programs there.
func BenchmarkFifteenNodes(b *testing.B) {
	g := sshtest.Start(b, sshtest.Options{Nodes: 15})
	for b.Loop() {
		d := ssh.New(ssh.Config{File: g.ConfigFile()})
		var all sync.WaitGroup
		for _, n := range g.Nodes {
			all.Go(func() {
				r := d.Remote(n.Unit)
				for range 4 {
					if _, err := machine.Output(b.Context(), r, nil, "true"); err != nil {
						b.Error(err)
					}
				}
			})
		}
		all.Wait()
		d.Close()
	}
}

func benched(b *testing.B) (*sshtest.Grid, *ssh.Dialer) {
	g := sshtest.Start(b, sshtest.Options{})
	d := ssh.New(ssh.Config{File: g.ConfigFile()})
	b.Cleanup(d.Close)
	return g, d
}

func TestALoginShellThatHangsIsReported(t *testing.T) {
	t.Parallel()
	g := sshtest.Start(t, sshtest.Options{Sshd: []string{"ForceCommand sleep 900"}})
	d := dialer(t, g, func(c *ssh.Config) { c.Shell = time.Second })
	r := d.Remote(g.Nodes[0].Unit)
	for _, want := range []string{"did not start a program within 1s", "lost before"} { // nobody waits a second time
		_, err := machine.Output(patient.Context(t), r, nil, "true")
		if !errors.Is(err, croft.Unavailable) || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("got %v, want Unavailable: %s", err, want)
		}
	}
}
