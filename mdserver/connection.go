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
	"croft/mdserver/linklocal"
)

// place is the location of an IP address on the guests' bridge.
type place struct {
	card net.HardwareAddr // MAC to which the kernel sends for the address; nil: unknown
	port string           // bridge port at which this MAC was last seen; empty: unknown
}

// placeOf finds the place of an address.
type placeOf func(netip.Addr) (place, error)

// placesOn returns a function that finds the MAC and the bridge port of an address.
func placesOn(bridge string) placeOf {
	return func(addr netip.Addr) (p place, err error) {
		if p.card, err = linklocal.Neighbour(bridge, addr); err != nil || p.card == nil {
			return p, err
		}
		p.port, err = linklocal.Port(bridge, p.card)
		return p, err
	}
}

// connection is what the server knows about a request's connection.
type connection struct {
	conn   net.Conn
	places placeOf // nil: there is no bridge

	once  sync.Once
	place place // where the connection's packets came from
	err   error
}

type connectionKey struct{}

func withConnection(ctx context.Context, c net.Conn, places placeOf) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{conn: c, places: places})
}

// connectionOf returns the request's connection, or an empty one if the connection was not accepted by serve.
func connectionOf(ctx context.Context) *connection {
	if c, ok := ctx.Value(connectionKey{}).(*connection); ok {
		return c
	}
	return &connection{}
}

// belongsTo returns nil if the connection's packets come from one of the guest's network cards, at the bridge port to
// which the host has connected that card. A guest may use another guest's address, and even its MAC, but not its port:
// it gets NotFound. Unavailable: the kernel does not know the card or its port, so the request is not answered. The
// place is looked up once per connection, at a time when the kernel must know it, because it has just sent an answer to
// the card.
func (c *connection) belongsTo(addr netip.Addr, g Guest) error {
	if c.places == nil {
		return nil
	}
	c.once.Do(func() { c.place, c.err = c.places(addr) })
	switch {
	case c.err != nil:
		return fmt.Errorf("find the network card of %s: %w", addr, c.err)
	case c.place.card == nil:
		return croft.Errorf(croft.Unavailable, "the kernel does not know which network card %s is at", addr)
	case !slices.ContainsFunc(g.MACs, func(mac net.HardwareAddr) bool { return bytes.Equal(mac, c.place.card) }):
		return croft.Errorf(croft.NotFound, "%s is instance %s's and was used by the network card %s: %w", addr, g.ID,
			c.place.card, errSpoofed)
	case c.place.port == "":
		return croft.Errorf(croft.Unavailable, "the bridge does not know which of its ports the network card %s is at",
			c.place.card)
	case g.Ports[c.place.card.String()] != c.place.port:
		return croft.Errorf(croft.NotFound,
			"%s is instance %s's and was used, with its network card's address, at port %s of the bridge: %w",
			addr, g.ID, c.place.port, errSpoofed)
	}
	return nil
}

// errSpoofed is the error of a guest that uses the address of another guest. It is logged.
var errSpoofed = errors.New("that is not one of its own")

// oneHop prevents later packets from leaving the guests' network: a router, such as a container network in
// the guest, drops them.
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
