// Package ssh runs programs on machines over SSH, as OpenSSH's ssh would reach them: with the user's ssh configuration,
// agent, certificates, keys and known hosts. Host keys are always verified.
//
// A Remote is one machine by one connection. A connection that breaks is never replaced: whoever gave orders over it
// has to look first what became of them, and makes another Remote then. Only establishing a connection is repeated,
// where sshd refuses because too many are being established.
package ssh

import (
	"cmp"
	"os"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"croft"
)

// dialsMax is what sshd allows by default, MaxStartups 10:30:100, with some reserve.
const dialsMax = 8

// A Dialer opens connections, at most 8 at once. It may be used by several goroutines.
type Dialer struct {
	config Config
	dials  chan struct{} // has a value for each connection that is being established

	mu     sync.Mutex
	closed bool
	open   map[*connection]bool
	jumps  map[string]*jump // by what is reached there, as user@host:port
}

// New makes a Dialer, which opens nothing yet. Invalid: there is no home directory.
func New(c Config) (*Dialer, error) {
	if c.Home == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, croft.Errorf(croft.Invalid, "find the user's ssh configuration: %w; set HOME", err)
		}
		c.Home = home
	}
	c.Agent = cmp.Or(c.Agent, os.Getenv("SSH_AUTH_SOCK"), none)
	c.Keepalive = cmp.Or(c.Keepalive, 15*time.Second)
	c.Shell = cmp.Or(c.Shell, 30*time.Second)
	return &Dialer{
		config: c,
		dials:  make(chan struct{}, dialsMax),
		open:   map[*connection]bool{},
		jumps:  map[string]*jump{},
	}, nil
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
		c.work.Wait()
	}
}

// keep takes over a new connection until it ends.
func (d *Dialer) keep(name string, client *ssh.Client, conn *watched) (*connection, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		_ = client.Close() // nobody uses it
		return nil, croft.Errorf(croft.Unavailable, "%s: %w", name, errClosed)
	}
	c := newConnection(name, client, conn, d.config)
	d.open[c] = true
	c.work.Go(func() {
		<-c.done
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.open, c)
	})
	return c, nil
}
