// Package connlimit bounds the connections to a listener, per source and in total. If a bound is exceeded, a new
// connection replaces an old one, preferably of an unproven peer, so that neither idle connections nor a flood
// disconnect known clients.
//
// A source is an IPv4 address, or the /64 of an IPv6 address, since a client with one address of a /64 usually has all
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

// Limits are the bounds, and callbacks for metrics, which may be nil.
type Limits struct {
	PerSource, Total int
	// UnprovenOnly exempts proven peers: only unproven connections count, and are closed to make room.
	UnprovenOnly bool
	// WriteTime is how long the peer may take to read one write; 0: no limit.
	WriteTime time.Duration
	// EachAddress treats every IPv6 address as a source, for a link whose hosts cannot choose addresses
	// freely and share a /64.
	EachAddress            bool
	Opened, Ended, Dropped func() // called per connection; a dropped one ends too
}

// Upper limits per listener for a process that may have many descriptors.
const (
	mostPerSource = 1024
	mostTotal     = 32 << 10
)

// Files returns how many descriptors the process may have (RLIMIT_NOFILE).
func Files() int {
	const unlimited = 1 << 30
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		return unlimited
	}
	return int(min(files.Cur, unlimited))
}

// OfProcess returns the limits of one listener, of which one source may use half. All listeners of a process together
// use less than half of its descriptors: five sixteenths for etcd, which has a connection from each host (OfEtcd), and
// one fortieth for each of the others, which are at most seven: Placement, control, the agent, etcd's peers, metadata
// on IPv4 and IPv6, and pools or metrics.
func OfProcess() Limits {
	total := min(max(Files()/40, 2), mostTotal)
	return Limits{PerSource: min(total/2, mostPerSource), Total: total}
}

// OfEtcd returns the limits of etcd's listener for clients.
func OfEtcd() Limits {
	total := max(Files()*5/16, 2)
	return Limits{PerSource: min(total/2, 4*mostPerSource), Total: total}
}

// Listener applies Limits to another listener.
type Listener struct {
	net.Listener
	limits Limits

	mu      sync.Mutex
	sources map[netip.Addr]*connections
	all     connections
	open    sync.WaitGroup
}

// connections are the open connections of one source, or of all sources.
type connections struct {
	unproven, proven list.List // of *limited, oldest first
}

func (c *connections) len() int { return c.unproven.Len() + c.proven.Len() }

// of returns the list that contains proven or unproven connections.
func (c *connections) of(proven bool) *list.List {
	if proven {
		return &c.proven
	}
	return &c.unproven
}

// worst returns the connection to close first: the oldest unproven one, else the oldest.
func (c *connections) worst() *limited {
	oldest := c.unproven.Front()
	if oldest == nil {
		oldest = c.proven.Front()
	}
	return oldest.Value.(*limited)
}

// New limits the connections that l accepts from now on.
func New(l net.Listener, limits Limits) *Listener {
	nobody := func() {}
	for _, f := range []*func(){&limits.Opened, &limits.Ended, &limits.Dropped} {
		if *f == nil {
			*f = nobody
		}
	}
	return &Listener{Listener: l, limits: limits, sources: map[netip.Addr]*connections{}}
}

// Wait returns when all connections are closed.
func (l *Listener) Wait() { l.open.Wait() }

// End closes the listener and its connections, and returns when all are closed.
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

// Accept returns the next connection after making room for it.
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

// add registers c and returns the connection to close to make room; nil: none.
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
	if l.sources[c.source] == nil { // needed, because remove deletes a source without connections
		l.sources[c.source] = &connections{}
	}
	l.insert(c)
	l.open.Add(1)
	return close
}

// count returns how many connections of c count for the limits.
func (l *Listener) count(c *connections) int {
	if l.limits.UnprovenOnly {
		return c.unproven.Len()
	}
	return c.len()
}

// worst returns the connection to close if the total is exceeded: the oldest unproven one, else the oldest of
// the source with most connections. The caller holds mu.
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

// insert adds c to its lists; the caller holds mu.
func (l *Listener) insert(c *limited) {
	c.inSource = l.sources[c.source].of(c.proven).PushBack(c)
	c.inAll = l.all.of(c.proven).PushBack(c)
}

// remove removes c from its lists; the caller holds mu.
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

// limited is a connection that deregisters itself when it is closed.
type limited struct {
	net.Conn
	limiter         *Listener
	source          netip.Addr
	proven          bool
	inAll, inSource *list.Element // nil once removed
	once            sync.Once

	deadline struct {
		sync.Mutex
		time time.Time // the write deadline set by the server; zero: none
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

// Write ends by the deadline that the server has set, and within WriteTime.
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
		return nil // the server's deadline is already in effect
	}
	return c.Conn.SetWriteDeadline(end)
}

// SyscallConn returns the socket, for its options.
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

// prove marks c as proven, so that it is closed last.
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

// Context is for http.Server.ConnContext; Prove needs it to find the connection of a request.
func Context(ctx context.Context, c net.Conn) context.Context {
	if over, ok := c.(*tls.Conn); ok {
		c = over.NetConn()
	}
	if own, ok := c.(*limited); ok {
		return context.WithValue(ctx, connKey{}, own)
	}
	return ctx
}

// NetConn returns the underlying connection, for example to find out its peer.
func (c *limited) NetConn() net.Conn { return c.Conn }

// Prove marks the connection of a request with valid credentials as proven: it is closed to make room only if no
// unproven connection is left. ctx is the request's.
func Prove(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*limited); ok {
		c.prove()
	}
}

// sourceOf returns a connection's source. Connections without an address share the zero address and its limit.
func sourceOf(c net.Conn, eachAddress bool) netip.Addr {
	from, err := netip.ParseAddrPort(c.RemoteAddr().String())
	if err != nil {
		return netip.Addr{}
	}
	switch addr := from.Addr().Unmap(); {
	case addr.IsLoopback():
		return netip.IPv6Loopback()
	case addr.Is4() || eachAddress || addr.IsLinkLocalUnicast(): // all hosts of a link share fe80::/64
		return addr
	default:
		return netip.PrefixFrom(addr, 64).Masked().Addr()
	}
}
