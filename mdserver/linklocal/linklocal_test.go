package linklocal_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"croft"
	"croft/mdserver/linklocal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var metadata = netip.MustParseAddrPort("169.254.169.254:80")

// bridge is a host bridge with a subnet and one guest in a network namespace, whose default route is the
// bridge.
type bridge struct {
	name  string
	guest int // file descriptor of the guest's network namespace
}

func newBridge(t *testing.T, subnet int) bridge {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("making a bridge needs root")
	}
	b := bridge{name: fmt.Sprintf("clb%d-%d", subnet, os.Getpid()%10000)}
	link := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: b.name}}
	must(t, netlink.LinkAdd(link))
	t.Cleanup(func() { netlink.LinkDel(link) })
	must(t, netlink.AddrAdd(link, address(t, fmt.Sprintf("10.253.%d.1/24", subnet))))
	must(t, netlink.LinkSetUp(link))

	end := fmt.Sprintf("clv%d-%d", subnet, os.Getpid()%10000)
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: end, MasterIndex: link.Index}, PeerName: end + "g"}
	must(t, netlink.LinkAdd(veth))
	t.Cleanup(func() { netlink.LinkDel(veth) })
	must(t, netlink.LinkSetUp(veth))

	b.guest = newNamespace(t)
	peer, err := netlink.LinkByName(end + "g")
	must(t, err)
	must(t, netlink.LinkSetNsFd(peer, b.guest))
	must(t, b.inGuest(func() error {
		inside, err := netlink.NewHandle()
		if err != nil {
			return err
		}
		defer inside.Close()
		eth, err := inside.LinkByName(end + "g")
		if err != nil {
			return err
		}
		return errors.Join(
			inside.AddrAdd(eth, address(t, fmt.Sprintf("10.253.%d.2/24", subnet))),
			inside.LinkSetUp(eth),
			inside.RouteAdd(&netlink.Route{LinkIndex: eth.Attrs().Index, Gw: net.IPv4(10, 253, byte(subnet), 1)}))
	}))
	return b
}

// newNamespace creates a network namespace that lives as long as its descriptor.
func newNamespace(t *testing.T) int {
	t.Helper()
	fd := make(chan int, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if unix.Unshare(unix.CLONE_NEWNET) != nil {
			fd <- -1
			return
		}
		n, _ := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		fd <- n
	}()
	n := <-fd
	if n < 0 {
		t.Fatal("cannot make a network namespace")
	}
	t.Cleanup(func() { unix.Close(n) })
	return n
}

// inGuest runs f on a thread in the guest's network namespace.
func (b bridge) inGuest(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Setns(b.guest, unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// hears returns the text that the guest reads from the metadata address.
func (b bridge) hears(t *testing.T) string {
	t.Helper()
	var heard []byte
	must(t, b.inGuest(func() error {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", metadata.String())
		if err != nil {
			return err
		}
		defer conn.Close()
		heard, err = io.ReadAll(conn)
		return err
	}))
	return string(heard)
}

func (b bridge) has(t *testing.T, addr netip.Addr) bool {
	t.Helper()
	link, err := netlink.LinkByName(b.name)
	must(t, err)
	addrs, err := netlink.AddrList(link, netlink.FAMILY_V4)
	must(t, err)
	for _, a := range addrs {
		if a.IP.Equal(addr.AsSlice()) {
			return true
		}
	}
	return false
}

// speak answers every connection with one word and its peer's address.
func speak(t *testing.T, l net.Listener, word string) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(conn, "%s to %s", word, netip.MustParseAddrPort(conn.RemoteAddr().String()).Addr())
			conn.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-done
	})
}

func TestTwoBridgesServeOneAddressSideBySide(t *testing.T) {
	one, two := newBridge(t, 1), newBridge(t, 2)
	for word, b := range map[string]bridge{"one": one, "two": two} {
		l, err := linklocal.Listen(t.Context(), b.name, metadata)
		must(t, err)
		speak(t, l, word)
	}
	for b, want := range map[bridge]string{one: "one to 10.253.1.2", two: "two to 10.253.2.2"} {
		if got := b.hears(t); got != want {
			t.Errorf("the guest of %s heard %q, want %q", b.name, got, want)
		}
		conn, err := linklocal.Dialer(b.name).DialContext(t.Context(), "tcp", metadata.String())
		must(t, err)
		heard, err := io.ReadAll(conn)
		conn.Close()
		if want := want[:3] + " to 169.254.169.254"; string(heard) != want || err != nil {
			t.Errorf("the host heard %q, %v from %s, want %q", heard, err, b.name, want)
		}
	}
}

func TestCloseTakesAwayOnlyWhatListenAdded(t *testing.T) {
	b := newBridge(t, 3)
	for _, theirs := range []bool{false, true} {
		if theirs {
			link, err := netlink.LinkByName(b.name)
			must(t, err)
			must(t, netlink.AddrAdd(link, address(t, "169.254.169.254/16")))
		}
		l, err := linklocal.Listen(t.Context(), b.name, metadata)
		must(t, err)
		if !b.has(t, metadata.Addr()) {
			t.Errorf("put there by others %v: the address is not there while the listener is open", theirs)
		}
		must(t, l.Close())
		must(t, l.Close())
		if got := b.has(t, metadata.Addr()); got != theirs {
			t.Errorf("put there by others %v: the address is there after Close: %v", theirs, got)
		}
	}
}

func TestListenReportsWhatIsInTheWay(t *testing.T) {
	b := newBridge(t, 4)
	l, err := linklocal.Listen(t.Context(), b.name, metadata)
	must(t, err)
	defer l.Close()

	if _, err := linklocal.Listen(t.Context(), b.name, metadata); !errors.Is(err, syscall.EADDRINUSE) ||
		!errors.Is(err, croft.Conflict) {
		t.Errorf("the port is taken: %v", err)
	}
	if !b.has(t, metadata.Addr()) {
		t.Error("the second listener took the first one's address away")
	}
	if _, err := linklocal.Listen(t.Context(), "no-such-bridge", metadata); !errors.Is(err, croft.NotFound) {
		t.Errorf("there is no such bridge: %v", err)
	}
}

func TestAcceptEndsWhenTheAddressGoesAway(t *testing.T) {
	for name, away := range map[string]func(netlink.Link) error{
		"the address is deleted": func(l netlink.Link) error {
			return netlink.AddrDel(l, address(t, "169.254.169.254/32"))
		},
		"the interface is deleted": netlink.LinkDel,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBridge(t, 5)
			l, err := linklocal.Listen(t.Context(), b.name, metadata)
			must(t, err)
			accepted := make(chan error)
			go func() {
				_, err := l.Accept()
				accepted <- err
			}()
			link, err := netlink.LinkByName(b.name)
			must(t, err)
			must(t, away(link))
			if err := <-accepted; !errors.Is(err, croft.Unavailable) {
				t.Errorf("Accept ended with %v", err)
			}
			must(t, l.Close())
		})
	}
}

func TestCloseEndsAccept(t *testing.T) {
	b := newBridge(t, 6)
	l, err := linklocal.Listen(context.Background(), b.name, metadata)
	must(t, err)
	accepted := make(chan error)
	go func() {
		_, err := l.Accept()
		accepted <- err
	}()
	must(t, l.Close())
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept ended with %v", err)
	}
}

func address(t *testing.T, cidr string) *netlink.Addr {
	t.Helper()
	a, err := netlink.ParseAddr(cidr)
	must(t, err)
	return a
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
