// Package sshtest starts real SSH servers for tests, one per simulated node: each with an address of its own in
// 127.0.0.0/8, a host key, a home directory and a state directory. What they run ends with the test.
package sshtest

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"croft/grid/unit"
	"croft/internal/hostkey"
	"croft/internal/testing/freeport"
)

// Options of a grid. The zero Options are one node whose sshd has its default limits.
type Options struct {
	Nodes int // 0: 1
	// HostCA makes host certificates for the names and addresses of the nodes, and a known_hosts file that has the
	// authority alone.
	HostCA bool
	Sshd   []string          // more lines of each sshd_config; the first of a keyword counts
	Env    map[string]string // of the programs; HOME, CROFT_NODE and STATE_DIR are set
}

// A Grid is some nodes, and a user who may log in to each.
type Grid struct {
	Nodes   []*Node
	Home    string // of the user who logs in: .ssh has a key, known_hosts and the ssh configuration that names them
	Bin     string // a directory for PATH with an ssh that reads this configuration, where none is named
	KeyFile string // the user's private key, Home/.ssh/id_ed25519
	HostCA  ssh.Signer
	dir     string
	options Options
}

// A Node is one simulated machine.
type Node struct {
	Unit    unit.Node // as ssh.Dialer.Remote takes it: address with port, user, no pinned key
	Host    string    // 127.0.0.x
	Port    string
	Dir     string // has everything that belongs to the node
	Home    string // HOME of its programs; ~/.bashrc there is read by a login shell that is bash
	State   string // $STATE_DIR of its programs
	HostKey ssh.PublicKey
	Config  string // of sshd; Restart may add to it

	mark  string // in the environment of its programs
	log   *log
	mu    sync.Mutex
	sshd  *exec.Cmd     // nil: it was killed
	ended chan struct{} // closed when sshd has ended
}

// log keeps what sshd says.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Start starts a grid that ends with the test. Where there is no sshd the test is skipped.
func Start(t testing.TB, o Options) *Grid {
	t.Helper()
	g, stop, err := New(t.TempDir(), o)
	if errors.Is(err, ErrNoSshd) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	t.Cleanup(func() {
		if t.Failed() {
			for _, n := range g.Nodes {
				t.Logf("log of %s:\n%s", n.Unit.Name, tail(n.Log(), 1<<10))
			}
		}
	})
	return g
}

func tail(text string, n int) string { return text[max(0, len(text)-n):] }

// ErrNoSshd means that OpenSSH's server is not installed.
var ErrNoSshd = errors.New("there is no sshd: scripts/install-deps test installs it")

// New is Start for programs other than tests, in an empty directory. stop ends everything.
func New(dir string, o Options) (g *Grid, stop func(), err error) {
	if _, err := os.Stat(Program); err != nil {
		return nil, nil, ErrNoSshd
	}
	o.Nodes = max(o.Nodes, 1)
	g = &Grid{dir: dir, Home: filepath.Join(dir, "user"), options: o}
	stop = func() { kill(g.Nodes...) }
	if err := g.prepare(); err != nil {
		return nil, nil, err
	}
	for i := range o.Nodes {
		n, err := g.node(i)
		if err == nil {
			g.Nodes = append(g.Nodes, n)
			err = n.start()
		}
		if err != nil {
			stop()
			return nil, nil, fmt.Errorf("start sshd %d: %w", i, err)
		}
	}
	for _, n := range g.Nodes {
		if err := n.listening(); err != nil {
			stop()
			return nil, nil, err
		}
	}
	return g, stop, nil
}

// Program is sshd, which wants to be started by its absolute path.
const Program = "/usr/sbin/sshd"

// prepare makes the user's files.
func (g *Grid) prepare() error {
	if os.Getuid() == 0 {
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil { // its empty directory
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(g.Home, ".ssh"), 0o700); err != nil {
		return err
	}
	g.KeyFile = filepath.Join(g.Home, ".ssh", "id_ed25519")
	public, err := NewKey(g.KeyFile)
	if err != nil {
		return err
	}
	line := ssh.MarshalAuthorizedKey(public)
	if g.options.HostCA {
		if _, err := NewKey(filepath.Join(g.dir, "host_ca")); err != nil {
			return err
		}
		text, err := os.ReadFile(filepath.Join(g.dir, "host_ca"))
		if err != nil {
			return err
		}
		if g.HostCA, err = ssh.ParsePrivateKey(text); err != nil {
			return err
		}
		known := "@cert-authority * " + string(ssh.MarshalAuthorizedKey(g.HostCA.PublicKey()))
		if err := os.WriteFile(g.KnownHosts(), []byte(known), 0o600); err != nil {
			return err
		}
	}
	return errors.Join(os.WriteFile(filepath.Join(g.dir, "authorized_keys"), line, 0o600), g.Configure(), g.client())
}

// Configure replaces the user's ssh configuration. What the lines do not say is as Home has it: ssh itself would look
// in the home directory of the user who runs the test.
func (g *Grid) Configure(lines ...string) error {
	identity := "IdentityFile " + g.KeyFile
	if slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, "IdentityFile") }) {
		identity = "" // they would add up
	}
	lines = append(lines, "Match all", identity, "IdentityAgent none", "UserKnownHostsFile "+g.KnownHosts(),
		"GlobalKnownHostsFile none", "UpdateHostKeys no", "")
	return os.WriteFile(g.ConfigFile(), []byte(strings.Join(lines, "\n")), 0o600)
}

// client makes Bin.
func (g *Grid) client() error {
	program, err := exec.LookPath("ssh")
	if err != nil {
		return err
	}
	g.Bin = filepath.Join(g.dir, "bin")
	script := "#!/bin/sh\nexec " + program + " -F '" + g.ConfigFile() + "' \"$@\"\n" // a further -F counts
	return errors.Join(os.MkdirAll(g.Bin, 0o755), os.WriteFile(filepath.Join(g.Bin, "ssh"), []byte(script), 0o755))
}

// KnownHosts is the user's file of known hosts, which has all nodes.
func (g *Grid) KnownHosts() string { return filepath.Join(g.Home, ".ssh", "known_hosts") }

// ConfigFile is the user's ssh configuration.
func (g *Grid) ConfigFile() string { return filepath.Join(g.Home, ".ssh", "config") }

// AuthorizedKeys is the file that lists who may log in to any node.
func (g *Grid) AuthorizedKeys() string { return filepath.Join(g.dir, "authorized_keys") }

// NewKey writes an ed25519 key and its public half, with .pub, and returns that.
func NewKey(path string) (ssh.PublicKey, error) {
	text, err := hostkey.New()
	if err != nil {
		return nil, err
	}
	signer, err := ssh.ParsePrivateKey([]byte(text))
	if err != nil {
		return nil, err
	}
	public := signer.PublicKey()
	return public, errors.Join(os.WriteFile(path, []byte(text), 0o600),
		os.WriteFile(path+".pub", ssh.MarshalAuthorizedKey(public), 0o644))
}

// node makes the files of a node.
func (g *Grid) node(i int) (*Node, error) {
	host := fmt.Sprintf("127.0.%d.%d", 1+i/200, 1+i%200)
	address, err := freeport.Address(host)
	if err != nil {
		return nil, err
	}
	_, port, _ := net.SplitHostPort(address)
	me, err := user.Current()
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("n%d", i+1)
	n := &Node{
		Host: host, Port: port, Dir: filepath.Join(g.dir, name), log: &log{},
		Unit: unit.Node{Name: name, ID: i + 1, Address: address, User: me.Username, State: "up"},
		mark: fmt.Sprintf("CROFT_NODE=%s@%s", name, g.dir),
	}
	n.Home, n.State = filepath.Join(n.Dir, "home"), filepath.Join(n.Dir, "state")
	n.Unit.StateDir = n.State
	for _, dir := range []string{n.Home, n.State} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, err
		}
	}
	key := filepath.Join(n.Dir, "host_key")
	if n.HostKey, err = NewKey(key); err != nil {
		return nil, err
	}
	lines := []string{
		"ListenAddress " + address, "HostKey " + key, "PidFile none", "UsePAM no", "StrictModes no",
		"PasswordAuthentication no", "KbdInteractiveAuthentication no", "PermitRootLogin prohibit-password",
		"AuthorizedKeysFile " + g.AuthorizedKeys(), "LogLevel VERBOSE", "Subsystem sftp internal-sftp",
		"KexAlgorithms curve25519-sha256", // OpenSSH's sntrup761 takes a tenth of a second on both sides
	}
	if g.HostCA != nil {
		if err := n.certify(g.HostCA, func(*ssh.Certificate) {}); err != nil {
			return nil, err
		}
		lines = append(lines, "HostCertificate "+key+"-cert.pub")
	} else if err := g.know(n); err != nil {
		return nil, err
	}
	env := fmt.Sprintf(`SetEnv "HOME=%s" "STATE_DIR=%s" "%s"`, n.Home, n.State, n.mark)
	for k, v := range g.options.Env {
		env += fmt.Sprintf(` "%s=%s"`, k, v)
	}
	n.Config = strings.Join(append(append(append([]string{}, g.options.Sshd...), lines...), env, ""), "\n")
	return n, nil
}

// know adds the host key to the user's known hosts.
func (g *Grid) know(n *Node) error {
	f, err := os.OpenFile(g.KnownHosts(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "[%s]:%s %s", n.Host, n.Port, ssh.MarshalAuthorizedKey(n.HostKey))
	return errors.Join(err, f.Close())
}

// certify makes a host certificate.
func (n *Node) certify(authority ssh.Signer, change func(*ssh.Certificate)) error {
	now := time.Now()
	cert := &ssh.Certificate{
		Key: n.HostKey, CertType: ssh.HostCert, KeyId: n.Unit.Name, Serial: uint64(n.Unit.ID),
		ValidPrincipals: []string{n.Unit.Name, n.Host},
		ValidAfter:      uint64(now.Add(-time.Minute).Unix()), ValidBefore: uint64(now.Add(time.Hour).Unix()),
	}
	change(cert)
	if err := cert.SignCert(random, authority); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(n.Dir, "host_key-cert.pub"), ssh.MarshalAuthorizedKey(cert), 0o644)
}

// Recertify restarts a node of a grid with HostCA with a certificate that was changed.
func (n *Node) Recertify(authority ssh.Signer, change func(*ssh.Certificate)) error {
	if err := n.certify(authority, change); err != nil {
		return err
	}
	return n.Restart()
}

// Log is what the node's sshd has said.
func (n *Node) Log() string { return n.log.String() }

// start starts sshd with the node's configuration.
func (n *Node) start() error {
	file := filepath.Join(n.Dir, "sshd_config")
	if err := os.WriteFile(file, []byte(n.Config), 0o600); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sshd = exec.Command(Program, "-D", "-e", "-f", file)
	n.sshd.Stderr = n.log
	n.sshd.Env = append(os.Environ(), n.mark)
	n.sshd.WaitDelay = time.Second // its children may have its standard error
	n.sshd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := n.sshd.Start(); err != nil {
		return err
	}
	n.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		defer close(ended)
		_ = cmd.Wait() // how it ended is in its log
	}(n.sshd, n.ended)
	return nil
}

// listening returns when sshd listens.
func (n *Node) listening() error {
	end := time.Now().Add(time.Minute)
	for {
		if strings.Contains(n.Log(), "Server listening on") {
			return nil
		}
		select {
		case <-n.ended:
			return fmt.Errorf("sshd of %s ended: %s", n.Unit.Name, n.Log())
		case <-time.After(2 * time.Millisecond):
		}
		if time.Now().After(end) {
			return fmt.Errorf("sshd of %s does not listen: %s", n.Unit.Name, n.Log())
		}
	}
}
