// Package connlimit bounds the connections to a listener, of each source address and of
// all together. Over a bound, the oldest connection is closed in favour of the new one:
// whoever hangs is the oldest sooner or later, and who floods a server competes with
// himself.
package connlimit

import (
	"container/list"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
)

// Limits are the bounds, and whom to tell. The functions may be nil.
type Limits struct {
	PerSource, Total       int
	Opened, Ended, Dropped func() // a connection; one that is dropped ends too
}

// Listener is another one with Limits.
type Listener struct {
	net.Listener
	limits Limits

	mu      sync.Mutex
	all     *list.List // of *limited, oldest first
	sources map[netip.Addr]*list.List
	open    sync.WaitGroup
}

// New bounds the connections that l accepts from now on.
func New(l net.Listener, limits Limits) *Listener {
	nobody := func() {}
	for _, f := range []*func(){&limits.Opened, &limits.Ended, &limits.Dropped} {
		if *f == nil {
			*f = nobody
		}
	}
	return &Listener{Listener: l, limits: limits, all: list.New(), sources: map[netip.Addr]*list.List{}}
}

// Wait returns when every connection has been closed.
func (l *Listener) Wait() { l.open.Wait() }

// Accept returns the next connection, having made room for it.
func (l *Listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &limited{Conn: conn, limiter: l, source: sourceOf(conn)}
	l.limits.Opened()
	for _, old := range l.add(c) {
		l.limits.Dropped()
		old.Close()
	}
	return c, nil
}

// add registers c and returns what must be closed for it.
func (l *Listener) add(c *limited) (close []*limited) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.sources[c.source]
	if own == nil {
		own = list.New()
		l.sources[c.source] = own
	}
	if own.Len() >= l.limits.PerSource {
		close = append(close, l.remove(own.Front().Value.(*limited)))
	} else if l.all.Len() >= l.limits.Total {
		close = append(close, l.remove(l.all.Front().Value.(*limited)))
	}
	l.sources[c.source] = own // remove drops a list that it empties
	c.inSource, c.inAll = own.PushBack(c), l.all.PushBack(c)
	l.open.Add(1)
	return close
}

// remove forgets c; the caller holds mu.
func (l *Listener) remove(c *limited) *limited {
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

// limited leaves its limiter when it is closed.
type limited struct {
	net.Conn
	limiter         *Listener
	source          netip.Addr
	inAll, inSource *list.Element // nil once removed
	once            sync.Once
}

// SyscallConn gives the socket, for its options.
func (c *limited) SyscallConn() (syscall.RawConn, error) {
	sys, ok := c.Conn.(syscall.Conn)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return sys.SyscallConn()
}

func (c *limited) Close() error {
	c.once.Do(func() {
		c.limiter.mu.Lock()
		c.limiter.remove(c)
		c.limiter.mu.Unlock()
		c.limiter.limits.Ended()
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
