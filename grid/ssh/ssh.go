// Package ssh runs programs on machines over SSH. OpenSSH's ssh connects, so whatever the user's ssh configuration says
// applies; its master process (see ControlMaster in ssh_config) carries all programs of a connection, and this package
// gives it the programs over its control socket. Host keys are always verified.
//
// A Remote is one machine by one connection of its own: it never uses a connection that another Remote, or the user's
// ssh, has opened. A connection that breaks is never replaced: whoever gave orders over it has to look first what
// became of them, and makes another Remote then. Only establishing a connection is repeated, where sshd refuses because
// too many are being established.
package ssh

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"croft"
)

// dialsMax is what sshd allows by default, MaxStartups 10:30:100, with some reserve.
const dialsMax = 8

// Config configures a Dialer. The zero Config reaches machines as ssh does for this user.
type Config struct {
	// File is the ssh configuration; empty: ~/.ssh/config and, for what that does not say, /etc/ssh/ssh_config.
	File string
	// Credential gives short-lived certificates; nil: none are configured.
	Credential Credential
	// Timeout is how long a machine may take until it has shown its host key; 0: ConnectTimeout of the ssh
	// configuration, else 10 seconds. ssh counts whole seconds.
	Timeout time.Duration
	// Keepalive is the time between two questions whether a machine is still there, in whole seconds; 0: 15 seconds. A
	// machine that leaves three of them without an answer is lost.
	Keepalive time.Duration
	// Shell is how long the login shell of a machine may take to start a program; 0: 30 seconds. Then the connection
	// is lost: a shell that waits for its home directory, say, would keep the next program waiting too.
	Shell time.Duration
}

// A Credential gives a key with a certificate to log in with, besides the agent's keys and the user's own.
type Credential interface {
	// KeyFile returns the file of a private key, whose certificate is in the file of the same name with -cert.pub and
	// is valid for some minutes more. It is asked before each login, by several goroutines at once.
	KeyFile(ctx context.Context) (string, error)
}

// A Dialer opens connections, at most 8 at once. It may be used by several goroutines.
type Dialer struct {
	config Config
	dials  chan struct{} // has a value for each connection that is being established

	mu     sync.Mutex
	closed bool
	dir    string // of control sockets and known hosts, which nobody else may read; empty: not made yet
	files  int    // names given in dir
	open   map[*connection]bool
	pinned map[string]knownKey // by machine and fingerprint
	turns  map[string]chan struct{}
}

// New makes a Dialer, which opens nothing yet.
func New(c Config) *Dialer {
	c.Keepalive = cmp.Or(c.Keepalive, 15*time.Second)
	c.Shell = cmp.Or(c.Shell, 30*time.Second)
	return &Dialer{config: c, dials: make(chan struct{}, dialsMax), open: map[*connection]bool{},
		pinned: map[string]knownKey{}, turns: map[string]chan struct{}{}}
}

// Close ends all connections. What runs over them is Lost.
func (d *Dialer) Close() {
	d.mu.Lock()
	d.closed = true
	var all []*connection
	for c := range d.open {
		all = append(all, c)
	}
	d.mu.Unlock()
	for _, c := range all {
		c.end(errClosed)
	}
	for _, c := range all {
		c.work.Wait()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dir != "" {
		_ = os.RemoveAll(d.dir) // nothing in it is of use any more
		d.dir = ""
	}
}

// keep takes over a new connection until it ends.
func (d *Dialer) keep(c *connection) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return croft.Errorf(croft.Unavailable, "%s: %w", c.name, errClosed)
	}
	d.open[c] = true
	c.work.Go(func() {
		<-c.done
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.open, c)
	})
	return nil
}

// retries returns the channel that has a value while somebody tries again to reach a machine.
func (d *Dialer) retries(t *target) chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	turn := d.turns[t.String()]
	if turn == nil {
		turn = make(chan struct{}, 1)
		d.turns[t.String()] = turn
	}
	return turn
}

// socketDirMax is how long the path of a directory for sockets may be. A socket's path has at most 108 bytes, and ssh
// appends 17 to it while it makes one.
const socketDirMax = 64

// path returns a new name in the Dialer's private directory.
func (d *Dialer) path(kind string) (string, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return "", croft.Errorf(croft.Unavailable, "reach a machine: %w", errClosed)
	}
	if d.dir == "" {
		parent := cmp.Or(os.Getenv("XDG_RUNTIME_DIR"), os.TempDir())
		if info, err := os.Stat(parent); len(parent) > socketDirMax || err != nil || !info.IsDir() {
			parent = "/tmp"
		}
		dir, err := os.MkdirTemp(parent, "croft-grid-")
		if err != nil {
			return "", croft.Errorf(croft.Invalid, "make a directory for ssh's sockets: %w", err)
		}
		d.dir = dir
	}
	d.files++
	return filepath.Join(d.dir, fmt.Sprint(kind, d.files)), nil
}

// command returns a command of ssh for a machine, which asks the user nothing. A context that ends kills it and what it
// started. Invalid: ssh is not installed.
func (d *Dialer) command(ctx context.Context, w where, args ...string) (*exec.Cmd, error) {
	program, err := exec.LookPath("ssh")
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "the program ssh is not there: install OpenSSH's client (the package "+
			"openssh-client, or openssh-clients)")
	}
	all := []string{program}
	if d.config.File != "" {
		all = append(all, "-F", d.config.File)
	}
	all = append(all, args...)
	if w.user != "" {
		all = append(all, "-l", w.user)
	}
	if w.port != "" {
		all = append(all, "-p", w.port)
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Args = append(all, "--", w.host)
	isolate(cmd)
	return cmd, nil
}
