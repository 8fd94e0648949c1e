package probe_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"croft/grid/ssh"
	"croft/grid/ssh/sshtest"
	"croft/grid/state"
	"croft/grid/watch"
	"croft/grid/watch/probe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNodesAreDialedFromHereAndFromOthers(t *testing.T) {
	g := sshtest.Start(t, sshtest.Options{Nodes: 3})
	d := ssh.New(ssh.Config{File: g.ConfigFile(), Timeout: 3 * time.Second})
	t.Cleanup(d.Close)
	p := &probe.Prober{Dialer: d}
	node := func(i int) *state.Node {
		u := g.Nodes[i].Unit
		return &state.Node{Name: u.Name, ID: u.ID, Address: u.Address, User: u.User}
	}
	check := func(what string, got, want watch.Answer) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	check("a node that lives", p.Direct(t.Context(), node(1)), watch.Yes)
	check("from another", p.Through(t.Context(), node(0), node(1)), watch.Yes)
	g.Nodes[1].Kill()
	check("a dead node", p.Direct(t.Context(), node(1)), watch.No)
	check("from another", p.Through(t.Context(), node(0), node(1)), watch.No)
	check("from itself", p.Through(t.Context(), node(1), node(0)), watch.Unknown)
	g.Nodes[2].Suspend()
	check("a node that takes connections and says nothing", p.Direct(t.Context(), node(2)), watch.No)
	check("from another", p.Through(t.Context(), node(0), node(2)), watch.No)
	g.Nodes[2].Resume()
	stranger := node(2)
	stranger.User = "nobody-here"
	check("a node that refuses the login", p.Direct(t.Context(), stranger), watch.Yes)
	nowhere := &state.Node{Name: "x", Address: "no-such-host.invalid"}
	check("a name that leads nowhere, from another", p.Through(t.Context(), node(0), nowhere), watch.Unknown)
	check("an address that is none", p.Direct(t.Context(), &state.Node{Name: "x", Address: "a:b:c:d"}), watch.No)
}
