package connlimit_test

import (
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"croft/internal/connlimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// prove does the same as a server after a request on c with valid credentials.
func prove(c net.Conn) { connlimit.Prove(connlimit.Context(context.Background(), c)) }

// from is a connection from an address.
type from struct {
	net.Conn
	address net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.address }

// queue is a listener that accepts the connections put into it.
type queue chan net.Conn

func (q queue) Accept() (net.Conn, error) { return <-q, nil }
func (q queue) Close() error              { return nil }
func (q queue) Addr() net.Addr            { return &net.TCPAddr{} }

func TestOverABoundTheOldestIsClosed(t *testing.T) {
	for _, c := range []struct {
		name   string
		from   []byte // the last byte of each caller's address, in order
		closed []int  // indices of the closed ones
	}{
		{"within the bounds none is", []byte{1, 1, 2}, nil},
		{"of one source its own oldest is", []byte{1, 2, 1, 1}, []int{0}},
		{"of many the oldest of all is", []byte{1, 2, 3, 4, 5}, []int{0}},
		{"who floods loses its own alone", []byte{2, 1, 1, 1, 1, 1}, []int{1, 2, 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var open, dropped atomic.Int64
			q := make(queue, 1)
			l := connlimit.New(q, connlimit.Limits{PerSource: 2, Total: 4,
				Opened: func() { open.Add(1) }, Ended: func() { open.Add(-1) }, Dropped: func() { dropped.Add(1) }})
			var ours []net.Conn
			closed := map[int]bool{}
			for _, last := range c.from {
				near, far := net.Pipe()
				t.Cleanup(func() { _ = far.Close() })
				q <- from{near, &net.TCPAddr{IP: net.IPv4(192, 0, 2, last), Port: 1}}
				conn, err := l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				ours = append(ours, conn)
			}
			for _, i := range c.closed {
				closed[i] = true
			}
			for i, conn := range ours {
				err := conn.SetDeadline(time.Now())
				if is := err != nil; is != closed[i] {
					t.Errorf("connection %d is closed: %v", i, is)
				}
			}
			if int(dropped.Load()) != len(c.closed) || int(open.Load()) != len(c.from)-len(c.closed) {
				t.Errorf("told of %d dropped and %d open", dropped.Load(), open.Load())
			}
			for _, conn := range ours {
				_ = conn.Close()
			}
			l.Wait()
		})
	}
}

// accepted accepts connections from addresses, with the limits 2 and 4, and returns them.
func accepted(t *testing.T, limits connlimit.Limits, proven bool, addresses ...string) (*connlimit.Listener,
	func(address string, proven bool) net.Conn, []net.Conn) {
	t.Helper()
	q := make(queue, 1)
	l := connlimit.New(q, limits)
	accept := func(address string, proven bool) net.Conn {
		near, far := net.Pipe()
		t.Cleanup(func() { _ = far.Close() })
		q <- from{near, &net.TCPAddr{IP: net.ParseIP(address), Port: 1}}
		conn, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if proven {
			prove(conn)
		}
		return conn
	}
	var all []net.Conn
	for _, a := range addresses {
		all = append(all, accept(a, proven))
	}
	return l, accept, all
}

func isOpen(c net.Conn) bool { return c.SetDeadline(time.Now()) == nil }

func TestThoseThatProvedWhoTheyAreGoLast(t *testing.T) {
	limits := connlimit.Limits{PerSource: 3, Total: 6}
	_, accept, agents := accepted(t, limits, true, "192.0.2.1", "192.0.2.1", "192.0.2.2")
	flood := []string{"2001:db8:0:1::1", "2001:db8:0:2::1", "2001:db8:0:3::1", "2001:db8:0:4::1", "192.0.2.1",
		"192.0.2.1", "192.0.2.1"}
	for range 20 {
		for _, address := range flood {
			accept(address, false)
		}
	}
	for i, c := range agents {
		if !isOpen(c) {
			t.Errorf("connection %d of an agent was closed for a flood", i)
		}
	}
}

func TestWhereAllAreKnownTheOneWithTheMostLosesItsOldest(t *testing.T) {
	limits := connlimit.Limits{PerSource: 3, Total: 6}
	_, accept, all := accepted(t, limits, true, "192.0.2.1", "192.0.2.2", "192.0.2.3", "192.0.2.3", "192.0.2.3",
		"192.0.2.4")
	fresh := accept("127.0.0.1", false)
	for i, c := range append(all, fresh) {
		if want := i != 2; isOpen(c) != want {
			t.Errorf("connection %d is open: %v, want %v", i, !want, want)
		}
	}
}

func TestThoseThatProvedWhoTheyAreNeedNotCount(t *testing.T) {
	limits := connlimit.Limits{PerSource: 1, Total: 2, UnprovenOnly: true}
	_, accept, members := accepted(t, limits, true, "192.0.2.1", "192.0.2.1", "192.0.2.1", "192.0.2.2", "192.0.2.3")
	first := accept("192.0.2.1", false)
	for range 5 {
		for _, address := range []string{"192.0.2.1", "192.0.2.2", "192.0.2.4"} {
			accept(address, false)
		}
	}
	for i, c := range members {
		if !isOpen(c) {
			t.Errorf("connection %d of a member was closed", i)
		}
	}
	if isOpen(first) {
		t.Error("what has not proven who it is is not bounded")
	}
}

func TestTheEndClosesWhatIsOpen(t *testing.T) {
	l, accept, all := accepted(t, connlimit.Limits{PerSource: 9, Total: 9}, false, "192.0.2.1", "192.0.2.2")
	prove(accept("192.0.2.3", false))
	l.End()
	for i, c := range all {
		if isOpen(c) {
			t.Errorf("connection %d is open", i)
		}
	}
}

func TestWhatIsWrittenHasToBeReadInTime(t *testing.T) {
	for _, c := range []struct {
		name  string
		own   time.Duration // deadline set by the server; 0: none
		takes time.Duration
	}{
		{"by the bound", 0, time.Minute},
		{"by an earlier deadline", time.Second, time.Second},
		{"by the bound, before a later deadline", time.Hour, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, accept, _ := accepted(t, connlimit.Limits{PerSource: 9, Total: 9, WriteTime: time.Minute}, false)
				conn := accept("192.0.2.1", false)
				if c.own > 0 {
					_ = conn.SetDeadline(time.Now().Add(c.own))
				}
				began := time.Now()
				_, err := conn.Write([]byte("x"))
				if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took != c.takes {
					t.Errorf("it took %s: %v", took, err)
				}
			})
		})
	}
}

func TestWhatOneSourceIs(t *testing.T) {
	for _, c := range []struct {
		name  string
		a, b  string
		each  bool
		isOne bool
	}{
		{"two addresses of IPv4", "192.0.2.1", "192.0.2.2", false, false},
		{"one address as IPv4 and in IPv6", "192.0.2.1", "::ffff:192.0.2.1", false, true},
		{"two addresses of a /64", "2001:db8::1", "2001:db8::ffff:1", false, true},
		{"two /64", "2001:db8:0:1::1", "2001:db8:0:2::1", false, false},
		{"two addresses of a /64, on a link", "2001:db8::1", "2001:db8::2", true, false},
		{"two neighbours", "fe80::1", "fe80::2", false, false},
		{"loopback in both versions", "127.0.0.1", "::1", false, true},
		{"loopback by another address", "127.0.0.1", "127.9.9.9", false, true},
	} {
		_, _, all := accepted(t, connlimit.Limits{PerSource: 1, Total: 9, EachAddress: c.each}, false, c.a, c.b)
		if isOne := !isOpen(all[0]); isOne != c.isOne {
			t.Errorf("%s are one source: %v", c.name, isOne)
		}
	}
}

func TestAllListenersTakeLessThanHalfOfTheDescriptors(t *testing.T) {
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before) })
	for _, may := range []uint64{256, 600, 1024, 20_000} {
		if may > before.Max {
			continue
		}
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: may, Max: before.Max}); err != nil {
			t.Fatal(err)
		}
		is, etcd := connlimit.OfProcess(), connlimit.OfEtcd()
		if all := is.Total*7 + etcd.Total; all >= int(may)/2 || all < int(may)/3 || is.PerSource > is.Total/2 ||
			is.PerSource < 1 {
			t.Errorf("of %d listeners take %d: etcd %+v, each other %+v", may, all, etcd, is)
		}
	}
}
