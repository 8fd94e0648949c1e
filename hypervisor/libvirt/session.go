package libvirt

import (
	"sync"

	"libvirt.org/go/libvirt"

	"croft"
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

// session returns the connection, opening one where there is none, with a
// reference that the caller drops. It may block for as long as libvirt does.
func (d *Driver) session() (*session, error) {
	if s, err := d.live(); s != nil || err != nil {
		return s, err
	}
	d.opening.Lock()
	defer d.opening.Unlock()
	if s, err := d.live(); s != nil || err != nil {
		return s, err
	}
	s, err := d.open()
	if err != nil {
		return nil, err
	}
	s.hold() // the caller's, beside the driver's
	d.metrics.opened.Inc()
	d.mu.Lock()
	old := d.current
	d.current = s
	closed := d.closed
	if closed {
		d.current = nil
	}
	d.mu.Unlock()
	if closed {
		s.drop() // the driver's: Close has come and gone
	}
	if old != nil {
		old.drop()
	}
	return s, nil
}

// live returns the connection if there is one that is not known to be lost.
func (d *Driver) live() (*session, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, croft.Errorf(croft.Unavailable, "the connection to libvirt has been closed")
	}
	if d.current == nil || d.current.isLost() {
		return nil, nil
	}
	d.current.hold()
	return d.current, nil
}

func (d *Driver) open() (*session, error) {
	if err := loop.join(); err != nil {
		return nil, d.unreachable(err)
	}
	conn, err := libvirt.NewConnect(d.config.URI)
	if err != nil {
		_ = loop.leave()
		return nil, d.unreachable(err)
	}
	s := &session{conn: conn, lost: make(chan struct{}), refs: 1}
	if err := d.listen(s); err != nil {
		_, _ = conn.Close()
		_ = loop.leave()
		return nil, d.unreachable(err)
	}
	return s, nil
}

// listen registers the callbacks, which run in libvirt's event loop and so must
// neither block nor call into libvirt.
func (d *Driver) listen(s *session) error {
	err := s.conn.RegisterCloseCallback(func(*libvirt.Connect, libvirt.ConnectCloseReason) {
		d.owners.invalidate()
		s.lose()
	})
	if err != nil {
		return err
	}
	s.lifecycle, err = s.conn.DomainEventLifecycleRegister(nil,
		func(_ *libvirt.Connect, dom *libvirt.Domain, _ *libvirt.DomainEventLifecycle) {
			d.owners.invalidate()
			if id, ok := instanceOf(dom); ok {
				d.changed.Put(id)
			}
		})
	if err == nil {
		err = s.conn.SetKeepAlive(keepAliveSeconds, keepAliveMisses)
	}
	if err != nil {
		_ = s.conn.UnregisterCloseCallback()
	}
	return err
}
