// Package wire is a TCP proxy that tests insert before a server to cut, hold and slow down its connections.
package wire

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

// Wire forwards connections to one server, initially without faults.
type Wire struct {
	target   string
	listener net.Listener
	work     sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond
	cut     bool
	held    bool
	ended   bool
	waiting int // pieces held back by Hold
	delay   time.Duration
	ends    map[net.Conn]struct{}
}

// New starts a wire to host:port. It ends with the test.
func New(t testing.TB, target string) *Wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &Wire{target: target, listener: l, ends: map[net.Conn]struct{}{}}
	w.changed = sync.NewCond(&w.mu)
	w.work.Go(w.accept)
	t.Cleanup(func() {
		w.set(func() { w.ended = true })
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		w.Drop()
		w.work.Wait()
	})
	return w
}

// Address returns the address to which clients connect instead of the server's address.
func (w *Wire) Address() string { return w.listener.Addr().String() }

// Drop breaks all connections; new ones are accepted.
func (w *Wire) Drop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.ends {
		c.Close() // the reader sees the close
	}
}

// Cut breaks all connections, and new ones immediately, until Mend.
func (w *Wire) Cut() {
	w.set(func() { w.cut = true })
	w.Drop()
}

// Mend undoes Cut.
func (w *Wire) Mend() { w.set(func() { w.cut = false }) }

// Hold holds back all data in both directions until Flow.
func (w *Wire) Hold() { w.set(func() { w.held = true }) }

// Flow undoes Hold.
func (w *Wire) Flow() { w.set(func() { w.held = false }) }

// Slow delays each piece in both directions.
func (w *Wire) Slow(delay time.Duration) { w.set(func() { w.delay = delay }) }

// WaitHeld returns when a piece is held back.
func (w *Wire) WaitHeld() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.waiting == 0 {
		w.changed.Wait()
	}
}

func (w *Wire) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	w.changed.Broadcast()
}

func (w *Wire) accept() {
	for {
		near, err := w.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			w.work.Go(func() { w.carry(near) })
		}
	}
}

// carry forwards both directions until one end closes.
func (w *Wire) carry(near net.Conn) {
	defer near.Close()
	if !w.keep(near) {
		return
	}
	defer w.forget(near)
	far, err := net.Dial("tcp", w.target)
	if err != nil {
		return
	}
	defer far.Close()
	if !w.keep(far) {
		return
	}
	defer w.forget(far)
	var back sync.WaitGroup
	back.Go(func() { w.pass(far, near) })
	w.pass(near, far)
	back.Wait()
}

// keep registers an end of a connection, so that it can be broken. False: connections are broken now.
func (w *Wire) keep(c net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends[c] = struct{}{}
	return !w.cut && !w.ended
}

func (w *Wire) forget(c net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.ends, c)
}

func (w *Wire) pass(from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	piece := make([]byte, 64<<10)
	for {
		n, err := from.Read(piece)
		if err != nil {
			return
		}
		w.linger()
		if _, err := to.Write(piece[:n]); err != nil {
			return
		}
	}
}

// linger waits while pieces are held back or delayed.
func (w *Wire) linger() {
	w.mu.Lock()
	delay := w.delay
	w.waiting++
	w.changed.Broadcast()
	for w.held && !w.ended {
		w.changed.Wait()
	}
	w.waiting--
	w.mu.Unlock()
	if delay > 0 {
		<-time.After(delay)
	}
}
