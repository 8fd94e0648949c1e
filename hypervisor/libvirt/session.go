package libvirt

import (
	"sync"

	"libvirt.org/go/libvirt"
)

// Keep-alives end a connection to a libvirtd that has stopped answering after
// about 25 seconds, and with it the calls that hang in it.
const (
	keepAliveSeconds = 5
	keepAliveMisses  = 4
)

// session is one connection. Who uses it holds a reference; the connection is
// closed when the last is given back.
type session struct {
	conn *libvirt.Connect
	lost chan struct{} // closed when libvirt says that the connection is
	once sync.Once

	mu        sync.Mutex
	refs      int
	lifecycle int // the registration of the events
}

// lose makes the next call open another connection. It may be called from
// libvirt's event loop and does not call into libvirt.
func (s *session) lose() { s.once.Do(func() { close(s.lost) }) }

func (s *session) isLost() bool {
	select {
	case <-s.lost:
		return true
	default:
		return false
	}
}

// hold takes one more reference of a session that somebody holds already.
func (s *session) hold() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refs++
}

// drop gives a reference back. Errors of closing do not matter any more: what
// could be told has been told to the callers.
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
