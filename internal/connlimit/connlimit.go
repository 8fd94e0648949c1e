// Package connlimit bounds the connections to a listener, per source and in total. Over a bound, a new connection
// replaces an old one, unproven peers first, so that neither idle connections nor a flood disconnect known clients.
//
// A source is an IPv4 address, or the /64 of an IPv6 address, since whoever has one address of a /64 usually has all
// of them. Loopback is one source.
package connlimit

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// Limits are the bounds, and whom to tell. The functions may be nil.
type Limits struct {
	PerSource, Total int
	// UnprovenOnly leaves out of the count who has proven who it is: nothing is closed in favour of others then but
	// what has not.
	UnprovenOnly bool
	// WriteTime is how long the other end may take to read what is written at once; 0: for ever.
	WriteTime time.Duration
	// EachAddress counts every IPv6 address for itself, on a link whose hosts cannot
	// choose addresses freely and share a /64.
	EachAddress            bool
	Opened, Ended, Dropped func() // a connection; one that is dropped ends too
}

// The most that a listener takes where descriptors are plenty.
const (
	mostPerSource = 1024
	mostTotal     = 32 << 10
)

// Files is how many descriptors the process may have (RLIMIT_NOFILE).
func Files() int {
	const unlimited = 1 << 30
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return unlimited
	}
	return int(min(files.Cur, unlimited))
}

// OfProcess is one listener's share, of which one source may have half. All listeners of
// a process together take less than half of its descriptors: etcd, to which each host has
// a connection, five sixteenths of them (OfEtcd), and a fortieth each of the others, which
// are seven at most: Placement, control, the agent, etcd's peers, metadata on IPv4 and on
// IPv6, and pools or metrics.
func OfProcess() Limits {
	total := min(max(Files()/40, 2), mostTotal)
	return Limits{PerSource: min(total/2, mostPerSource), Total: total}
}

// OfEtcd is the share of etcd's listener for clients.
func OfEtcd() Limits {
	total := max(Files()*5/16, 2)
	return Limits{PerSource: min(total/2, 4*mostPerSource), Total: total}
}

// Listener is another one with Limits.
type Listener struct {
	net.Listener
	limits Limits

	mu      sync.Mutex
	sources map[netip.Addr]*connections
	all     connections
	open    sync.WaitGroup
}

// connections are the open ones of one source, or of all.
type connections struct {
	unproven, proven list.List // of *limited, oldest first
}

func (c *connections) len() int { return c.unproven.Len() + c.proven.Len() }

// of is the list that a connection belongs to.
func (c *connections) of(proven bool) *list.List {
	if proven {
		return &c.proven
	}
	return &c.unproven
}

// worst is what is closed first: the oldest that has not proven who it is, else the oldest.
func (c *connections) worst() *limited {
	oldest := c.unproven.Front()
	if oldest == nil {
		oldest = c.proven.Front()
	}
	return oldest.Value.(*limited)
}

// New bounds the connections that l accepts from now on.
func New(l net.Listener, limits Limits) *Listener {
	nobody := func() {}
	for _, f := range []*func(){&limits.Opened, &limits.Ended, &limits.Dropped} {
		if *f == nil {
			*f = nobody
		}
	}
	return &Listener{Listener: l, limits: limits, sources: map[netip.Addr]*connections{}}
}

// Wait returns when every connection has been closed.
func (l *Listener) Wait() { l.open.Wait() }

// End closes the listener and what it accepted, and returns when every connection has been closed.
func (l *Listener) End() {
	_ = l.Listener.Close()
	l.mu.Lock()
	var open []*limited
	for _, list := range []*list.List{&l.all.unproven, &l.all.proven} {
		for e := list.Front(); e != nil; e = e.Next() {
			open = append(open, e.Value.(*limited))
		}
	}
	l.mu.Unlock()
	for _, c := range open {
		_ = c.Close()
	}
	l.Wait()
}

// Accept returns the next connection, having made room for it.
func (l *Listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &limited{Conn: conn, limiter: l, source: sourceOf(conn, l.limits.EachAddress)}
	l.limits.Opened()
	if old := l.add(c); old != nil {
		l.limits.Dropped()
		old.Close()
	}
	return c, nil
}

// add registers c and returns what must be closed for it, or nil.
func (l *Listener) add(c *limited) (close *limited) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if own := l.sources[c.source]; own != nil && l.count(own) >= l.limits.PerSource {
		close = own.worst()
	} else if l.count(&l.all) >= l.limits.Total {
		close = l.worst()
	}
	if close != nil {
		l.remove(close)
	}
	if l.sources[c.source] == nil { // remove drops a source that it empties
		l.sources[c.source] = &connections{}
	}
	l.insert(c)
	l.open.Add(1)
	return close
}

// count is how many of them the bounds are about.
func (l *Listener) count(c *connections) int {
	if l.limits.UnprovenOnly {
		return c.unproven.Len()
	}
	return c.len()
}

// worst is what is closed where all together are too many: the oldest that has not proven
// who it is, else the oldest of the source that has the most. The caller holds mu.
func (l *Listener) worst() *limited {
	if l.all.unproven.Len() > 0 {
		return l.all.worst()
	}
	var most *connections
	for _, source := range l.sources {
		if most == nil || source.len() > most.len() {
			most = source
		}
	}
	return most.worst()
}

// insert puts c where it belongs; the caller holds mu.
func (l *Listener) insert(c *limited) {
	c.inSource = l.sources[c.source].of(c.proven).PushBack(c)
	c.inAll = l.all.of(c.proven).PushBack(c)
}

// remove forgets c; the caller holds mu.
func (l *Listener) remove(c *limited) {
	if c.inAll == nil {
		return
	}
	l.all.of(c.proven).Remove(c.inAll)
	own := l.sources[c.source]
	own.of(c.proven).Remove(c.inSource)
	if own.len() == 0 {
		delete(l.sources, c.source)
	}
	c.inAll, c.inSource = nil, nil
}

// limited leaves its limiter when it is closed.
type limited struct {
	net.Conn
	limiter         *Listener
	source          netip.Addr
	proven          bool
	inAll, inSource *list.Element // nil once removed
	once            sync.Once

	deadline struct {
		sync.Mutex
		time time.Time // that others set for writes; zero: none
	}
}

// SetDeadline implements net.Conn.
func (c *limited) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// SetWriteDeadline implements net.Conn.
func (c *limited) SetWriteDeadline(t time.Time) error {
	c.deadline.Lock()
	defer c.deadline.Unlock()
	c.deadline.time = t
	return c.Conn.SetWriteDeadline(t)
}

// Write ends by the deadline that was set, and within WriteTime.
func (c *limited) Write(p []byte) (int, error) {
	if err := c.hurry(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

func (c *limited) hurry() error {
	within := c.limiter.limits.WriteTime
	if within == 0 {
		return nil
	}
	c.deadline.Lock()
	defer c.deadline.Unlock()
	end := time.Now().Add(within)
	if t := c.deadline.time; !t.IsZero() && t.Before(end) {
		return nil // it is set
	}
	return c.Conn.SetWriteDeadline(end)
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

// prove moves c to those that go last.
func (c *limited) prove() {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	if c.proven || c.inAll == nil {
		return
	}
	own := c.limiter.sources[c.source]
	own.unproven.Remove(c.inSource)
	c.limiter.all.unproven.Remove(c.inAll)
	c.proven = true
	c.limiter.insert(c)
}

type connKey struct{}

// Context is for http.Server.ConnContext: with it Prove finds the connection of a request.
func Context(ctx context.Context, c net.Conn) context.Context {
	if over, ok := c.(*tls.Conn); ok {
		c = over.NetConn()
	}
	if own, ok := c.(*limited); ok {
		return context.WithValue(ctx, connKey{}, own)
	}
	return ctx
}

// Prove notes that the connection of a request showed credentials that count: it is
// closed for others only where no unproven one is left. ctx is the request's.
func Prove(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*limited); ok {
		c.prove()
	}
}

// sourceOf is the zero address for a connection that has none; those share a bound.
func sourceOf(c net.Conn, eachAddress bool) netip.Addr {
	from, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	switch addr := from.Addr().Unmap(); {
	case addr.IsLoopback():
		return netip.IPv6Loopback()
	case addr.Is4() || eachAddress || addr.IsLinkLocalUnicast(): // all of a link share fe80::/64
		return addr
	default:
		return netip.PrefixFrom(addr, 64).Masked().Addr()
	}
}
