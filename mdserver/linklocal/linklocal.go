// Package linklocal listens at an address that it adds to a network interface while the listener is open,
// such as the metadata address on the guests' bridge. Listeners and dialers are bound to the interface, so
// that several interfaces can serve the same address and port.
package linklocal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"croft"
)

// Listen adds at.Addr() to the interface, if it is missing, and listens there. Closing the listener removes the address
// iff Listen added it. If the address or the interface disappears otherwise, Accept returns an Unavailable error.
//
// NotFound: there is no such interface. Invalid: the process lacks the permission. An address in use is
// reported as syscall.EADDRINUSE, of kind Conflict.
func Listen(ctx context.Context, device string, at netip.AddrPort) (net.Listener, error) {
	h, err := acquire(device, at.Addr())
	if err != nil {
		return nil, err
	}
	lc := net.ListenConfig{Control: bindTo(device)}
	l, err := lc.Listen(ctx, "tcp", at.String())
	if err != nil {
		return nil, errors.Join(listenError(device, at, err), h.release())
	}
	held := &listener{Listener: l, hold: h, lost: make(chan struct{}), done: make(chan struct{})}
	if err := held.watch(); err != nil {
		return nil, errors.Join(err, held.Close())
	}
	return held, nil
}

// Dialer makes connections that leave through the interface. On the host itself, they reach the listener on the
// interface.
func Dialer(device string) *net.Dialer { return &net.Dialer{Control: bindTo(device)} }

func bindTo(device string) func(string, string, syscall.RawConn) error {
	return func(_, _ string, raw syscall.RawConn) error {
		var bind error
		err := raw.Control(func(fd uintptr) { bind = unix.BindToDevice(int(fd), device) })
		return errors.Join(err, bind)
	}
}

func listenError(device string, at netip.AddrPort, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return croft.Errorf(croft.Conflict, "listen on %s of %s: %w", at, device, err)
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES):
		return croft.Errorf(croft.Invalid,
			"listen on %s of %s: this needs root (or CAP_NET_ADMIN and CAP_NET_BIND_SERVICE): %w", at, device, err)
	}
	return croft.Errorf(croft.Unavailable, "listen on %s of %s: %w", at, device, err)
}

// hold is the presence of an address on an interface.
type hold struct {
	device string
	link   netlink.Link
	addr   *netlink.Addr
	added  bool // by acquire, so release removes it
}

func acquire(device string, addr netip.Addr) (*hold, error) {
	link, err := netlink.LinkByName(device)
	if _, absent := errors.AsType[netlink.LinkNotFoundError](err); absent {
		return nil, croft.Errorf(croft.NotFound, "put %s on %s: there is no such network interface; "+
			"start the network it belongs to, or name another", addr, device)
	}
	if err != nil {
		return nil, croft.Errorf(croft.Unavailable, "put %s on %s: %w", addr, device, err)
	}
	ip := &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())}
	h := &hold{device: device, link: link, addr: &netlink.Addr{IPNet: ip, Scope: unix.RT_SCOPE_LINK}}
	if addr.Is6() {
		// Disable duplicate address detection, because nothing can listen during it.
		h.addr.Scope, h.addr.Flags = unix.RT_SCOPE_UNIVERSE, unix.IFA_F_NODAD
	}
	present, err := h.present()
	if err != nil || present {
		return h, err
	}
	switch err := netlink.AddrAdd(link, h.addr); {
	case err == nil:
		h.added = true
	case errors.Is(err, syscall.EEXIST): // another process added it first
	case errors.Is(err, syscall.EPERM):
		return nil, croft.Errorf(croft.Invalid, "put %s on %s: this needs root (or CAP_NET_ADMIN): %w", addr, device,
			err)
	default:
		return nil, croft.Errorf(croft.Unavailable, "put %s on %s: %w", addr, device, err)
	}
	return h, nil
}

// present reports whether the interface has the address, with any prefix length.
func (h *hold) present() (bool, error) {
	addrs, err := netlink.AddrList(h.link, netlink.FAMILY_ALL)
	if err != nil {
		return false, croft.Errorf(croft.Unavailable, "list the addresses of %s: %w", h.device, err)
	}
	for _, a := range addrs {
		if a.IP.Equal(h.addr.IP) {
			return true, nil
		}
	}
	return false, nil
}

// is reports whether the update is about the address.
func (h *hold) is(u netlink.AddrUpdate) bool {
	return u.LinkIndex == h.link.Attrs().Index && u.LinkAddress.IP.Equal(h.addr.IP)
}

// release removes the address iff acquire added it; a missing address is no error.
func (h *hold) release() error {
	if !h.added {
		return nil
	}
	h.added = false
	err := netlink.AddrDel(h.link, h.addr)
	if err == nil || errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.ENODEV) {
		return nil
	}
	return fmt.Errorf("take %s from %s: %w", h.addr.IP, h.device, err)
}

// listener owns a hold, and a goroutine that watches it.
type listener struct {
	net.Listener
	hold    *hold
	lost    chan struct{} // closed when the address is lost, before the listener is closed
	done    chan struct{} // closed by Close; ends the watch
	watcher sync.WaitGroup
	once    sync.Once
	err     error // of Close
}

// watch closes the listener when the address leaves the interface: a listener bound to an interface that was
// recreated would never receive anything.
func (l *listener) watch() error {
	updates := make(chan netlink.AddrUpdate, 16)
	if err := netlink.AddrSubscribe(updates, l.done); err != nil {
		return croft.Errorf(croft.Unavailable, "watch the addresses of %s: %w", l.hold.device, err)
	}
	l.watcher.Go(func() {
		lose := sync.OnceFunc(func() {
			close(l.lost)
			l.Listener.Close()
		})
		for u := range updates {
			if !u.NewAddr && l.hold.is(u) {
				l.hold.added = false // an address that is added later belongs to another program
				lose()
			}
		}
		select {
		case <-l.done:
		default: // the kernel dropped the subscription: events may be missing
			lose()
		}
	})
	if present, err := l.hold.present(); err != nil || !present {
		return cmp.Or(err, l.lostError()) // lost before the watch started
	}
	return nil
}

func (l *listener) lostError() error {
	return croft.Errorf(croft.Unavailable, "listen on %s: the address was taken from %s", l.Addr(), l.hold.device)
}

// Accept returns the next connection.
func (l *listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		return c, nil
	}
	select {
	case <-l.lost:
		return nil, l.lostError()
	default:
		return nil, err
	}
}

// Close ends the listener and releases the address.
func (l *listener) Close() error {
	l.once.Do(func() {
		err := l.Listener.Close()
		if errors.Is(err, net.ErrClosed) {
			err = nil // the watch closed it first
		}
		close(l.done)
		l.watcher.Wait()
		l.err = errors.Join(err, l.hold.release())
	})
	return l.err
}
