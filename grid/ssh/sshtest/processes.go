package sshtest

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

var random = rand.Reader

// Kill ends the machine as if its power failed: sshd, its connections and everything that was started over them.
// What is on its disk stays. Restart brings it back.
func (n *Node) Kill() { kill(n) }

// kill ends several machines at once.
func kill(nodes ...*Node) {
	for _, n := range nodes {
		n.mu.Lock()
		defer n.mu.Unlock()
	}
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *Node) bool { return n.sshd == nil })
	for { // until nothing is left: a process may have started another one meanwhile
		all := processes(nodes...)
		if len(all) == 0 {
			break
		}
		for _, p := range all {
			_ = syscall.Kill(p.pid, syscall.SIGKILL) // it may have ended
		}
		time.Sleep(time.Millisecond)
	}
	for _, n := range nodes {
		<-n.ended
		n.sshd = nil
	}
}

// Restart starts sshd again after Kill. sshd adds lines to its configuration before all others.
func (n *Node) Restart(sshd ...string) error {
	n.Kill()
	n.Config = strings.Join(append(sshd, n.Config), "\n")
	n.log.mu.Lock()
	n.log.text.Reset()
	n.log.mu.Unlock()
	if err := n.start(); err != nil {
		return err
	}
	return n.listening()
}

// Suspend stops sshd and its connections, as if the network to the machine had failed without a word: nothing answers,
// what was started goes on.
func (n *Node) Suspend() { n.signalSshd(syscall.SIGSTOP, true) }

// Resume ends Suspend.
func (n *Node) Resume() { n.signalSshd(syscall.SIGCONT, true) }

// Cut breaks all connections to the machine. What was started over them goes on, with its input at an end; sshd takes
// new connections.
func (n *Node) Cut() { n.signalSshd(syscall.SIGKILL, false) }

func (n *Node) signalSshd(s syscall.Signal, listener bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.sshd == nil {
		return
	}
	for _, p := range processes(n) {
		if p.name == "sshd" && (listener || p.pid != n.sshd.Process.Pid) {
			_ = syscall.Kill(p.pid, s) // it may have ended
		}
	}
}

// Running lists the programs that were started over the node's connections and still run, as PID and command line.
func (n *Node) Running() []string {
	var list []string
	for _, p := range processes(n) {
		if p.name != "sshd" {
			list = append(list, fmt.Sprintf("%d %s", p.pid, p.line))
		}
	}
	return list
}

type process struct {
	pid, parent int
	name, line  string
}

// processes lists what belongs to nodes: what descends from their sshd, and what has their mark in the environment.
func processes(nodes ...*Node) []process {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var all []process
	ours := map[int]bool{}
	marks := map[string]bool{}
	for _, n := range nodes {
		marks[n.mark] = true
		if n.sshd != nil {
			ours[n.sshd.Process.Pid] = true
		}
	}
	for _, dir := range dirs {
		p, ok := readProcess(dir)
		if !ok {
			continue // it has ended
		}
		all = append(all, p)
		env, _ := os.ReadFile(dir + "/environ") // that of a process which ended, or of another user, says nothing
		if slices.ContainsFunc(bytes.Split(env, []byte{0}), func(v []byte) bool { return marks[string(v)] }) {
			ours[p.pid] = true
		}
	}
	for more := true; more; {
		more = false
		for _, p := range all {
			if ours[p.parent] && !ours[p.pid] {
				ours[p.pid], more = true, true
			}
		}
	}
	return slices.DeleteFunc(all, func(p process) bool { return !ours[p.pid] })
}

func readProcess(dir string) (process, bool) {
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return process{}, false
	}
	// pid (name) state parent ...: the name may have anything in it
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[end+1:]))
	if open < 0 || len(fields) < 2 || fields[0] == "Z" || fields[0] == "X" {
		return process{}, false
	}
	pid, err1 := strconv.Atoi(strings.TrimSpace(string(stat[:open])))
	parent, err2 := strconv.Atoi(fields[1])
	line, _ := os.ReadFile(dir + "/cmdline")
	return process{pid, parent, string(stat[open+1 : end]),
		strings.TrimSpace(string(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))}, err1 == nil && err2 == nil
}
