package etcdstore

import (
	"context"
	"net"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A hung member, for example because its process is suspended or the network drops its packets, keeps its connections
// and never answers. gRPC's keepalive needs up to 15 s to notice, which is longer than the lease of an agent. The
// following limits detect it within about 5 s; the intervals are randomly up to a tenth longer.
const (
	hungLook = 450 * time.Millisecond // interval of checks of the connections
	// hungSilence is how long a sent message may remain without any answer. Then the members are asked for their
	// status, over separate connections.
	hungSilence = 1500 * time.Millisecond
	// watchPoke is the interval of messages to the member that serves a watch. Without them, a watch without changes is
	// silent in both directions.
	watchPoke = 1800 * time.Millisecond
)

// keepaliveTime is how long a connection may be silent before gRPC pings the server; gRPC's minimum is 10 s.
// keepaliveTimeout bounds the answer. With several members, closeHung is faster.
const (
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 5 * time.Second
)

// connections holds the connections of one client to the members.
type connections struct {
	mu   sync.Mutex
	open map[*connection]bool
}

func newConnections() *connections { return &connections{open: map[*connection]bool{}} }

// dial connects to HOST:PORT for gRPC.
func (c *connections) dial(ctx context.Context, address string) (net.Conn, error) {
	network, at := "tcp", address
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		network, at = "unix", strings.TrimPrefix(path, "//")
	}
	d := net.Dialer{Control: func(network, _ string, raw syscall.RawConn) error {
		if !strings.HasPrefix(network, "tcp") {
			return nil
		}
		// gRPC sets this option only on connections that it dials itself.
		var err error
		if failed := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT,
				int(keepaliveTimeout/time.Millisecond))
		}); failed != nil {
			return failed
		}
		return err
	}}
	conn, err := d.DialContext(ctx, network, at)
	if err != nil {
		return nil, err
	}
	own := &connection{Conn: conn, of: c, address: address}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[own] = true
	return own, nil
}

// connection records since when its member owes an answer.
type connection struct {
	net.Conn
	of      *connections
	address string

	mu    sync.Mutex
	heard bool      // data was received; until then gRPC's own timeout for connecting applies
	since time.Time // first write without a later read; zero: no answer is expected
}

func (c *connection) Write(p []byte) (int, error) {
	c.mu.Lock()
	if c.since.IsZero() {
		c.since = time.Now()
	}
	c.mu.Unlock()
	return c.Conn.Write(p)
}

func (c *connection) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.mu.Lock()
		c.heard, c.since = true, time.Time{}
		c.mu.Unlock()
	}
	return n, err
}

func (c *connection) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// owes returns since when an answer is overdue; zero: no answer is expected.
func (c *connection) owes() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.heard {
		return time.Time{}
	}
	return c.since
}

// excuse clears an answer that is expected since then, because not every message has an answer.
func (c *connection) excuse(since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.Equal(since) {
		c.since = time.Time{}
	}
}

// silent returns the connections on which an answer has been overdue for longer than hungSilence, with the time since
// when.
func (c *connections) silent() map[*connection]time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[*connection]time.Time{}
	for conn := range c.open {
		if since := conn.owes(); !since.IsZero() && time.Since(since) > hungSilence {
			found[conn] = since
		}
	}
	return found
}
