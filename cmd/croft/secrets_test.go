package main

import (
	"bytes"
	"encoding/base64"
	"encoding/pem"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"croft"
	"croft/control/cloud/direct"
	"croft/trust/invitation"
)

// runningCroft is a running croft process and its output.
type runningCroft struct {
	cmd  *exec.Cmd
	said heard
}

// startProcess runs croft until the end of the test, and returns once it accepts requests.
func startProcess(t *testing.T, name, stdin string, args ...string) *runningCroft {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &runningCroft{cmd: exec.Command(self, args...)}
	p.cmd.Args[0] = "croft" // TestMain makes it the program
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = strings.NewReader(stdin), &p.said, &p.said
	p.cmd.Env = append(os.Environ(), "CROFT_LOG_LEVEL=debug", "CROFT_HOST_NAME="+name)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)
		if err := p.cmd.Wait(); err != nil {
			t.Errorf("%q: %v\n%s", args, err, p.said.String())
		}
	})
	await(t, "croft is up", func() bool { return strings.Contains(p.said.String(), "croft is up") })
	return p
}

// TestSecretsStayWhereTheyAre starts a cloud and a host that joins it, with secrets of every kind at the most verbose
// log level, and searches everything that other users can read: command lines, logs, and files that not only their
// owner may read.
func TestSecretsStayWhereTheyAre(t *testing.T) {
	at := net.JoinHostPort(reachable(t), "0")
	dir := t.TempDir()
	first, second := filepath.Join(dir, "first"), filepath.Join(dir, "second")
	password := filepath.Join(dir, "metrics-token")
	if err := os.WriteFile(password, []byte("the-token-of-metrics\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CROFT_METRICS_TOKEN_FILE", password)
	t.Setenv("CROFT_STATE_DIR", first)
	cloud := startProcess(t, "first", "", "up", "--hypervisor", "sim", "--etcd-listen", at, "--placement-listen", at,
		"--api-listen", at, "--join-listen", at)
	token, _ := command(t, croft.ExitOK, "token", "create")
	host := startProcess(t, "second", token+"\n", "up", "--hypervisor", "sim", "--state-dir", second, "--api-listen",
		at, "--join", "-")
	anna := filepath.Join(dir, "anna")
	command(t, croft.ExitOK, "ca", "issue", "--operator", "anna", "--to", anna)
	command(t, croft.ExitOK, "schedule", "--wait", "--name", "one", "--count", "2",
		"resources=VCPU:1,MEMORY_MB:64,DISK_GB:1", "tiny")
	_, said := command(t, croft.ExitOK, "audit")

	secrets := secretsBelow(t, dir)
	parsed, err := invitation.Parse(token)
	if err != nil {
		t.Fatal(err)
	}
	secrets["the token to join"] = token
	secrets["its secret"] = base64.StdEncoding.EncodeToString(parsed.Secret)
	secrets["the token of metrics"] = "the-token-of-metrics"
	secret, _ := command(t, croft.ExitOK, "access", "create", "--create", "--project", "lab")
	secrets["an access token"] = strings.TrimSpace(secret)[len("croft_0123456789ab_"):]
	snapshot := filepath.Join(first, "snapshot")
	command(t, croft.ExitOK, "etcd", "snapshot", snapshot)
	text, err := os.ReadFile(snapshot)
	if err != nil || !bytes.Contains(text, []byte("/tokens/lab/")) {
		t.Errorf("a snapshot of etcd does not hold the record of an access token: %v", err)
	}
	for what, secret := range secrets { // secrets of agents are not among them yet
		if bytes.Contains(text, []byte(secret)) {
			t.Errorf("%s is in a snapshot of etcd", what)
		}
	}
	for id, secret := range agentTokens(t) {
		secrets["the token of the agent of "+id] = secret
	}
	if len(secrets) < 3+1+2+1+8 {
		t.Fatalf("only %d secrets were found: %q", len(secrets), secrets)
	}
	places := map[string]string{
		"the cloud's log": cloud.said.String(), "the host's log": host.said.String(), "what a command says": said,
		"the cloud's command line": commandLine(t, cloud), "the host's command line": commandLine(t, host),
	}
	for place, text := range openFiles(t, dir) {
		places[place] = text
	}
	for what, secret := range secrets {
		for place, text := range places {
			if strings.Contains(text, secret) {
				t.Errorf("%s is in %s", what, place)
			}
		}
	}
}

// secretsBelow returns the keys and tokens in the files of a directory.
func secretsBelow(t *testing.T, dir string) map[string]string {
	t.Helper()
	secrets := map[string]string{}
	eachFile(t, dir, func(path string, _ fs.FileInfo, text []byte) {
		for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
			if strings.Contains(block.Type, "PRIVATE") { // any line of it
				secrets["the key in "+path] = strings.Split(string(pem.EncodeToMemory(block)), "\n")[1]
			}
		}
		if filepath.Base(path) == "placement-token" {
			secrets["the token of Placement"] = strings.TrimSpace(string(text))
		}
	})
	return secrets
}

// openFiles returns the files below a directory that not only their owner may read, with their contents.
func openFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	open := map[string]string{}
	eachFile(t, dir, func(path string, info fs.FileInfo, text []byte) {
		if info.Mode().Perm()&0o077 != 0 && !private(t, dir, filepath.Dir(path)) {
			open[path] = string(text)
		}
	})
	return open
}

// private reports whether a directory, or one above it up to top, is accessible only to its owner.
func private(t *testing.T, top, dir string) bool {
	t.Helper()
	for ; dir != top; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err != nil {
			t.Fatal(err)
		} else if info.Mode().Perm()&0o077 == 0 {
			return true
		}
	}
	return false
}

// eachFile reads every file except etcd's, whose directory is its owner's.
func eachFile(t *testing.T, dir string, do func(path string, info fs.FileInfo, text []byte)) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			if err == nil && entry.Name() == "etcd" && private(t, dir, path) {
				return fs.SkipDir
			}
			return err
		}
		info, err := entry.Info()
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		do(path, info, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// agentTokens returns the tokens of the agents' APIs, which are stored only in etcd.
func agentTokens(t *testing.T) map[string]string {
	t.Helper()
	s := direct.Defaults()
	if err := direct.AddLocal(direct.LocalStateDir(), &s.Etcd, &s.Placement); err != nil {
		t.Fatal(err)
	}
	store, err := s.Etcd.Open(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	hosts, err := store.Registry.Hosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tokens := map[string]string{}
	for id, h := range hosts {
		tokens[string(id)] = h.Token
	}
	return tokens
}

func commandLine(t *testing.T, p *runningCroft) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.cmd.Process.Pid), "cmdline"))
	if err != nil || len(text) == 0 {
		t.Fatal(err)
	}
	return string(text)
}
