package libvirt

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"libvirt.org/go/libvirt"

	"croft"
	"croft/internal/turns"
)

// maxCalls limits the concurrent calls inside libvirt, including those that never return.
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
	s.hold() // the caller's reference, beside the connection's
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

// close ends the session and waits for a limited time for calls inside libvirt. Later calls return
// Unavailable.
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

// unreachable adds to an error of opening what the operator can do about it.
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
	return croft.Errorf(croft.Unavailable, "libvirt does not answer at %s: start libvirtd (%w)", n.uri,
		words(err))
}
