package libvirt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"libvirt.org/go/libvirt"

	"croft"
	"croft/internal/meter"
	"croft/internal/turns"
)

// maxCalls limits the concurrent calls inside libvirt, including calls that never return.
const maxCalls = 24

// connection calls libvirt. The first call opens a session; after a loss, the next call opens another.
type connection struct {
	uri     string
	timeout time.Duration // per call
	turns   turns.Turns[croft.InstanceID]
	slots   chan struct{} // one per call inside libvirt
	metrics *metrics

	// Callbacks run in libvirt's event loop: they must not block or call into libvirt.
	onLost   func()
	onDomain func(*libvirt.Domain)
	// of a network's start or stop
	onNetwork func()

	opening sync.Mutex // held while a session is opened

	mu      sync.Mutex // guards the fields below
	calls   sync.WaitGroup
	closed  bool
	current *session
}

// enter waits until earlier calls about the instance have ended, then for one of the maxCalls slots. leave
// releases both.
func (n *connection) enter(ctx context.Context, what task) (leave func(), err error) {
	end := func() {}
	if what.instance != "" {
		if end, err = n.turns.Take(ctx, what.instance); err != nil {
			return nil, fmt.Errorf("an earlier call about it has not ended: %w", err)
		}
	}
	select {
	case n.slots <- struct{}{}:
		return func() { <-n.slots; end() }, nil
	case <-ctx.Done():
		end()
		return nil, context.Cause(ctx)
	}
}

// spawn runs f in a goroutine that close waits for.
func (n *connection) spawn(f func()) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return croft.Errorf(croft.Unavailable, "the connection to libvirt has been closed")
	}
	n.calls.Go(f)
	return nil
}

// session returns the connection, opening one if necessary, with a reference that the caller drops. It may
// block for as long as libvirt does.
func (n *connection) session() (*session, error) {
	if s, err := n.live(); s != nil || err != nil {
		return s, err
	}
	n.opening.Lock()
	defer n.opening.Unlock()
	if s, err := n.live(); s != nil || err != nil {
		return s, err
	}
	s, err := n.open()
	if err != nil {
		return nil, err
	}
	s.hold() // the caller's reference, in addition to the connection's
	n.metrics.opened.Inc()
	n.mu.Lock()
	old := n.current
	n.current = s
	closed := n.closed
	if closed {
		n.current = nil
	}
	n.mu.Unlock()
	if closed {
		s.drop() // the connection's reference: close ran meanwhile
	}
	if old != nil {
		old.drop()
	}
	return s, nil
}

// live returns the current connection unless it is known to be lost.
func (n *connection) live() (*session, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, croft.Errorf(croft.Unavailable, "the connection to libvirt has been closed")
	}
	if n.current == nil || n.current.isLost() {
		return nil, nil
	}
	n.current.hold()
	return n.current, nil
}

func (n *connection) open() (*session, error) {
	if err := loop.join(); err != nil {
		return nil, n.unreachable(err)
	}
	conn, err := libvirt.NewConnect(n.uri)
	if err != nil {
		_ = loop.leave()
		return nil, n.unreachable(err)
	}
	s := &session{conn: conn, lost: make(chan struct{}), refs: 1}
	if err := n.listen(s); err != nil {
		_, _ = conn.Close()
		_ = loop.leave()
		return nil, n.unreachable(err)
	}
	return s, nil
}

// listen registers the callbacks, which run in libvirt's event loop and must not block or call into libvirt.
func (n *connection) listen(s *session) error {
	err := s.conn.RegisterCloseCallback(func(*libvirt.Connect, libvirt.ConnectCloseReason) {
		n.onLost()
		s.lose()
	})
	if err != nil {
		return err
	}
	s.lifecycle, err = s.conn.DomainEventLifecycleRegister(nil,
		func(_ *libvirt.Connect, dom *libvirt.Domain, _ *libvirt.DomainEventLifecycle) { n.onDomain(dom) })
	if err == nil {
		s.networks, err = s.conn.NetworkEventLifecycleRegister(nil,
			func(*libvirt.Connect, *libvirt.Network, *libvirt.NetworkEventLifecycle) { n.onNetwork() })
	}
	if err == nil {
		err = s.conn.SetKeepAlive(keepAliveSeconds, keepAliveMisses)
	}
	if err != nil {
		_ = s.conn.UnregisterCloseCallback()
	}
	return err
}

// lostSignal returns a channel that is closed when the connection c is lost.
func (n *connection) lostSignal(c *libvirt.Connect) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.current != nil && n.current.conn == c {
		return n.current.lost
	}
	lost := make(chan struct{}) // already replaced
	close(lost)
	return lost
}

// close ends the session and waits for a limited time for calls inside libvirt. Later calls return Unavailable.
func (n *connection) close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return nil
	}
	n.closed = true
	last := n.current
	n.current = nil
	n.mu.Unlock()

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if last != nil {
			last.drop()
		}
		n.calls.Wait()
	}()
	timer := time.NewTimer(20 * time.Second)
	defer timer.Stop()
	select {
	case <-ended:
		return nil
	case <-timer.C:
		return croft.Errorf(croft.Unavailable, "close the connection to libvirt at %s: it does not answer", n.uri)
	}
}

// unreachable adds advice for the operator to an error of opening a connection.
func (n *connection) unreachable(err error) error {
	e, _ := errors.AsType[libvirt.Error](err)
	switch {
	case strings.Contains(e.Message, "libvirt.so"): // dlopen errors have no code
		return croft.Errorf(croft.Unavailable, "libvirt is not installed here: install libvirt-daemon-system (%s)",
			e.Message)
	case is(err, libvirt.ERR_AUTH_FAILED, libvirt.ERR_AUTH_UNAVAILABLE, libvirt.ERR_OPERATION_DENIED,
		libvirt.ERR_AUTH_CANCELLED):
		return croft.Errorf(croft.Unavailable,
			"libvirt at %s refuses this user: run as root or join the group libvirt (%s)", n.uri, e.Message)
	}
	return croft.Errorf(croft.Unavailable, "libvirt does not answer at %s: start libvirtd (%w)", n.uri, words(err))
}

// metrics counts the calls to libvirt.
type metrics struct {
	meter.Set
	calls  *prometheus.HistogramVec
	opened prometheus.Counter
}

func newMetrics(slots chan struct{}) *metrics {
	m := &metrics{}
	m.calls = m.Seconds("croft_libvirt_call_seconds",
		"Calls of libvirt, by call and outcome, including the wait for a free call.", meter.Work,
		"call", "result")
	m.opened = m.Counter("croft_libvirt_connections_opened_total",
		"Connections to libvirt. More than one of a process were lost.")
	m.Now("croft_libvirt_calls", "Calls inside libvirt, including those that never return.",
		func() float64 { return float64(len(slots)) })
	m.Now("croft_libvirt_calls_limit", "How many calls may be inside libvirt.",
		func() float64 { return float64(cap(slots)) })
	return m
}

// Keep-alives end a connection to an unresponsive libvirtd, and the calls that hang in it, after about 25 seconds.
const (
	keepAliveSeconds = 5
	keepAliveMisses  = 4
)

// session is one reference-counted connection; dropping the last reference closes it.
type session struct {
	conn *libvirt.Connect
	lost chan struct{} // closed when libvirt reports the loss of the connection
	once sync.Once

	mu        sync.Mutex
	refs      int
	lifecycle int // ID of the event registration
	networks  int
}

// lose makes the next call open another connection. It may run in libvirt's event loop and does not call into libvirt.
func (s *session) lose() { s.once.Do(func() { close(s.lost) }) }

func (s *session) isLost() bool {
	select {
	case <-s.lost:
		return true
	default:
		return false
	}
}

// hold adds a reference; the caller must know that one is held.
func (s *session) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refs++
}

// drop releases a reference. Errors of closing are ignored: the callers have their results.
func (s *session) drop() {
	s.mu.Lock()
	s.refs--
	last := s.refs == 0
	s.mu.Unlock()
	if !last {
		return
	}
	s.lose()
	_ = s.conn.DomainEventDeregister(s.lifecycle)
	_ = s.conn.NetworkEventDeregister(s.networks)
	_ = s.conn.UnregisterCloseCallback()
	_, _ = s.conn.Close()
	_ = loop.leave()
}

// loop is libvirt's event loop, one per process. It runs while it has users; without it neither events nor
// keep-alives arrive.
var loop eventLoop

type eventLoop struct {
	mu         sync.Mutex
	registered bool
	users      int
	stop       *atomic.Bool
	running    sync.WaitGroup
}

// join starts the loop for the first user. It must precede opening a connection; its error is the first sign
// that libvirt is not installed.
func (l *eventLoop) join() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.registered {
		quiet()
		if err := libvirt.EventRegisterDefaultImpl(); err != nil {
			return err
		}
		l.registered = true
	}
	l.users++
	if l.users > 1 {
		return nil
	}
	stop := new(atomic.Bool)
	l.stop = stop
	l.running.Go(func() {
		for !stop.Load() {
			// An error is a failed poll(2): the next iteration retries.
			_ = libvirt.EventRunDefaultImpl()
		}
	})
	return nil
}

// leave ends the loop when its last user leaves.
func (l *eventLoop) leave() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.users--
	if l.users > 0 {
		return nil
	}
	l.stop.Store(true)
	// A timer that is due at once interrupts the loop's poll.
	timer, err := libvirt.EventAddTimeout(0, func(int) {})
	if err != nil {
		return fmt.Errorf("end libvirt's event loop: %w", err)
	}
	l.running.Wait()
	return libvirt.EventRemoveTimeout(timer)
}
