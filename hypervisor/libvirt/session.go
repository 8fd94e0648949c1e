package libvirt

import (
	"sync"

	"libvirt.org/go/libvirt"
)

// Keep-alives end a connection to an unresponsive libvirtd, and the calls that hang in it, after about 25
// seconds.
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
}

// lose makes the next call open another connection. It may run in libvirt's event loop and does not call into
// libvirt.
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
	_ = s.conn.UnregisterCloseCallback()
	_, _ = s.conn.Close()
	_ = loop.leave()
}
