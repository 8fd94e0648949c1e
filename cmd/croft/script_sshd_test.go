package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"croft/grid/ssh/sshtest"
)

// haveSshd reports whether OpenSSH is installed, both client and server.
func haveSshd() bool {
	_, client := exec.LookPath("ssh")
	_, server := os.Stat(sshtest.Program)
	return client == nil && server == nil
}

// sshd LINE... starts an sshd with these lines in its configuration. SSHD_HOST, SSHD_PORT and SSHD_USER are its address
// and user, SSHD_HOME has the user's .ssh, SSHD_KEY is the host key, and the file SSHD_AUTHORIZED has the keys that may
// log in.
func startSshd(ts *testscript.TestScript, _ bool, lines []string) {
	dir, err := os.MkdirTemp("", "sshd-") // the path of a socket must be short
	ts.Check(err)
	ts.Defer(func() { _ = os.RemoveAll(dir) })
	g, stop, err := sshtest.New(dir, sshtest.Options{Sshd: lines, Env: map[string]string{"PATH": ts.Getenv("PATH")}})
	ts.Check(err)
	ts.Defer(stop)
	n := g.Nodes[0]
	for name, value := range map[string]string{"HOST": n.Host, "PORT": n.Port, "USER": n.Unit.User, "HOME": g.Home,
		"KEY": filepath.Join(n.Dir, "host_key.pub"), "AUTHORIZED": g.AuthorizedKeys()} {
		ts.Setenv("SSHD_"+name, value)
	}
	ts.Setenv("SSH", strings.Join([]string{"-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes",
		"-o", "UserKnownHostsFile=" + g.KnownHosts(), "-p", n.Port, n.Unit.User + "@" + n.Host}, " "))
}
