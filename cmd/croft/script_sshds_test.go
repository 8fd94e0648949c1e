package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"github.com/rogpeppe/go-internal/testscript"

	"croft/grid/ssh/sshtest"
)

// startSshds starts a number of nodes with a real sshd each: `sshds 2`. HOME becomes that of a user who may log in to
// all, by an ssh that PATH then has first, and N1, N1_STATE and so on are their addresses and state directories.
func startSshds(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: sshds NUMBER")
	}
	nodes, err := strconv.Atoi(args[0])
	ts.Check(err)
	dir := ts.MkAbs("sshds")
	ts.Check(os.MkdirAll(dir, 0o700))
	g, stop, err := sshtest.New(dir, sshtest.Options{Nodes: nodes})
	if errors.Is(err, sshtest.ErrNoSshd) {
		ts.Fatalf("%v", err)
	}
	ts.Check(err)
	ts.Defer(stop)
	ts.Setenv("HOME", g.Home)
	ts.Setenv("PATH", g.Bin+string(os.PathListSeparator)+ts.Getenv("PATH"))
	machinesOf(ts).nodes = g.Nodes
	for i, n := range g.Nodes {
		ts.Setenv(fmt.Sprintf("N%d", i+1), n.Unit.Address)
		ts.Setenv(fmt.Sprintf("N%d_STATE", i+1), n.State)
	}
}
