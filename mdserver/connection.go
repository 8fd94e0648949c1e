package mdserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"croft"
)

// cardOf returns the address of the network card that an IP address is at, nil
// where nobody knows.
type cardOf func(netip.Addr) (net.HardwareAddr, error)

// connection is what the server knows of the connection that a request came by.
type connection struct {
	conn  net.Conn
	cards cardOf // nil where there is no bridge to ask

	once sync.Once
	card net.HardwareAddr // whose packets the connection was made of
	err  error
}

type connectionKey struct{}

func withConnection(ctx context.Context, c net.Conn, cards cardOf) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{conn: c, cards: cards})
}

// connectionOf returns an empty connection where the request came by none of ours.
func connectionOf(ctx context.Context) *connection {
	if c, ok := ctx.Value(connectionKey{}).(*connection); ok {
		return c
	}
	return &connection{}
}

// belongsTo is nil when the connection's packets come from a network card of the
// guest's. One guest may use the address of another, whose lease is the other's
// still, but only with its own card: that one is nobody, NotFound. The card is
// looked up once, while the kernel that has just answered it must know it.
func (c *connection) belongsTo(addr netip.Addr, g Guest) error {
	if c.cards == nil {
		return nil
	}
	c.once.Do(func() { c.card, c.err = c.cards(addr) })
	if c.err != nil {
		return fmt.Errorf("find the network card of %s: %w", addr, c.err)
	}
	if c.card == nil || slices.ContainsFunc(g.MACs, func(mac net.HardwareAddr) bool { return bytes.Equal(mac, c.card) }) {
		return nil
	}
	return croft.Errorf(croft.NotFound, "%s is instance %s's and was used by the network card %s: %w", addr, g.ID, c.card, errSpoofed)
}

// errSpoofed is worth a line in the log.
var errSpoofed = errors.New("that is not one of its own")

// oneHop keeps what is sent from now on from leaving the guests' network: a
// router, such as a container network within the guest, drops it.
func (c *connection) oneHop() error {
	sys, ok := c.conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sys.SyscallConn()
	if err != nil {
		return err
	}
	level, option := unix.IPPROTO_IP, unix.IP_TTL
	if local, err := netip.ParseAddrPort(c.conn.LocalAddr().String()); err == nil && !local.Addr().Unmap().Is4() {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS
	}
	var set error
	err = raw.Control(func(fd uintptr) { set = unix.SetsockoptInt(int(fd), level, option, 1) })
	return errors.Join(err, set)
}
