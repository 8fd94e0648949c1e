package linklocal_test

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"croft"
	"croft/mdserver/linklocal"
)

func TestNeighbour(t *testing.T) {
	b := newBridge(t, 71)
	link, err := netlink.LinkByName(b.name)
	must(t, err)
	card := net.HardwareAddr{0x52, 0x54, 1, 2, 3, 4}
	add := func(addr string, state int) {
		must(t, netlink.NeighSet(&netlink.Neigh{LinkIndex: link.Attrs().Index, IP: net.ParseIP(addr), State: state,
			HardwareAddr: card}))
	}
	add("10.253.71.7", unix.NUD_REACHABLE)
	add("10.253.71.8", unix.NUD_STALE)
	add("10.253.71.9", unix.NUD_FAILED)
	for addr, want := range map[string]net.HardwareAddr{"10.253.71.7": card, "10.253.71.8": card, "10.253.71.9": nil,
		"10.253.71.10": nil, "fd00::1": nil} {
		if got, err := linklocal.Neighbour(b.name, netip.MustParseAddr(addr)); err != nil ||
			got.String() != want.String() {
			t.Errorf("%s is at %q, %v; want %q", addr, got, err, want)
		}
	}
	if _, err := linklocal.Neighbour("clb-none", netip.MustParseAddr("10.0.0.1")); !errors.Is(err, croft.NotFound) {
		t.Errorf("on no interface: %v", err)
	}
}

func TestPort(t *testing.T) {
	b, other := newBridge(t, 73), newBridge(t, 74)
	port := strings.Replace(b.name, "clb", "clv", 1)
	link, err := netlink.LinkByName(port)
	must(t, err)
	card := net.HardwareAddr{0x52, 0x54, 1, 2, 3, 4}
	entry := &netlink.Neigh{LinkIndex: link.Attrs().Index, Family: unix.AF_BRIDGE, Flags: netlink.NTF_MASTER,
		State: unix.NUD_REACHABLE, HardwareAddr: card}
	must(t, netlink.NeighSet(entry))
	for _, c := range []struct {
		what, bridge, want string
		card               net.HardwareAddr
	}{
		{"a card that was heard", b.name, port, card},
		{"one that was heard on another bridge", other.name, "", card},
		{"one that nobody heard", b.name, "", net.HardwareAddr{2, 0, 0, 0, 0, 9}},
	} {
		if got, err := linklocal.Port(c.bridge, c.card); err != nil || got != c.want {
			t.Errorf("%s is at %q, %v; want %q", c.what, got, err, c.want)
		}
	}
	if _, err := linklocal.Port("clb-none", card); !errors.Is(err, croft.NotFound) {
		t.Errorf("on no bridge: %v", err)
	}
}

func TestIPv6(t *testing.T) {
	if text, err := os.ReadFile("/proc/sys/net/ipv6/conf/default/disable_ipv6"); err != nil ||
		strings.TrimSpace(string(text)) != "0" {
		t.Skip("this kernel has no IPv6")
	}
	b := newBridge(t, 72)
	at := netip.MustParseAddrPort("[fd00:ec2::254]:80")
	if has, err := linklocal.HasIPv6(b.name, at.Addr()); has || err != nil {
		t.Fatalf("a bridge without IPv6 has it: %v, %v", has, err)
	}
	link, err := netlink.LinkByName(b.name)
	must(t, err)
	own, err := netlink.ParseAddr("fd53:72::1/64")
	must(t, err)
	must(t, netlink.AddrAdd(link, own))
	if has, err := linklocal.HasIPv6(b.name, at.Addr()); !has || err != nil {
		t.Fatalf("a bridge with IPv6 has none: %v, %v", has, err)
	}
	l, err := linklocal.Listen(t.Context(), b.name, at)
	must(t, err)
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			io.WriteString(c, "hello")
			c.Close()
		}
	}()
	c, err := linklocal.Dialer(b.name).DialContext(t.Context(), "tcp", at.String())
	must(t, err)
	defer c.Close()
	if text, err := io.ReadAll(c); string(text) != "hello" {
		t.Errorf("it answers %q, %v", text, err)
	}
}
