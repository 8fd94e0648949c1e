package mdserver

import (
	"container/list"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
)

// limiter is a listener that bounds the connections of each source address and
// of all together. Over a bound, the oldest connection is closed in favour of
// the new one: whoever hangs is the oldest sooner or later, and a guest that
// floods the server competes with itself.
type limiter struct {
	net.Listener
	perSource, total int
	metrics          *metrics

	mu      sync.Mutex
	all     *list.List // of *limitedConn, oldest first
	sources map[netip.Addr]*list.List
	open    sync.WaitGroup
}

func newLimiter(l net.Listener, perSource, total int, m *metrics) *limiter {
	return &limiter{Listener: l, perSource: perSource, total: total, metrics: m,
		all: list.New(), sources: map[netip.Addr]*list.List{}}
}

// wait returns when every connection has been closed.
func (l *limiter) wait() { l.open.Wait() }

// Accept returns the next connection, having made room for it.
func (l *limiter) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &limitedConn{Conn: conn, limiter: l, source: sourceOf(conn)}
	l.metrics.connections.Inc()
	for _, old := range l.add(c) {
		l.metrics.closed.Inc()
		old.Close()
	}
	return c, nil
}

// add registers c and returns what must be closed for it.
func (l *limiter) add(c *limitedConn) (close []*limitedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.sources[c.source]
	if own == nil {
		own = list.New()
		l.sources[c.source] = own
	}
	if own.Len() >= l.perSource {
		close = append(close, l.remove(own.Front().Value.(*limitedConn)))
	} else if l.all.Len() >= l.total {
		close = append(close, l.remove(l.all.Front().Value.(*limitedConn)))
	}
	l.sources[c.source] = own // remove drops a list that it empties
	c.inSource, c.inAll = own.PushBack(c), l.all.PushBack(c)
	l.open.Add(1)
	return close
}

// remove forgets c; the caller holds mu.
func (l *limiter) remove(c *limitedConn) *limitedConn {
	if c.inAll == nil {
		return c
	}
	l.all.Remove(c.inAll)
	own := l.sources[c.source]
	own.Remove(c.inSource)
	if own.Len() == 0 {
		delete(l.sources, c.source)
	}
	c.inAll, c.inSource = nil, nil
	return c
}

// limitedConn leaves its limiter when it is closed.
type limitedConn struct {
	net.Conn
	limiter         *limiter
	source          netip.Addr
	inAll, inSource *list.Element // nil once removed
	once            sync.Once
}

// SyscallConn gives the socket, for its options.
func (c *limitedConn) SyscallConn() (syscall.RawConn, error) {
	sys, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return sys.SyscallConn()
}

func (c *limitedConn) Close() error {
	c.once.Do(func() {
		c.limiter.mu.Lock()
		c.limiter.remove(c)
		c.limiter.mu.Unlock()
		c.limiter.metrics.connections.Dec()
		c.limiter.open.Done()
	})
	return c.Conn.Close()
}

// sourceOf is the zero address for a connection that has none; those share a bound.
func sourceOf(c net.Conn) netip.Addr {
	from, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	return from.Addr().Unmap()
}
