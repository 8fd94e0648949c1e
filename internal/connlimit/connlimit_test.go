package connlimit_test

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"croft/internal/connlimit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// from is a connection that comes from an address.
type from struct {
	net.Conn
	address net.Addr
}

func (f from) RemoteAddr() net.Addr { return f.address }

// queue is a listener that accepts what it is given.
type queue chan net.Conn

func (q queue) Accept() (net.Conn, error) { return <-q, nil }
func (q queue) Close() error              { return nil }
func (q queue) Addr() net.Addr            { return &net.TCPAddr{} }

func TestOverABoundTheOldestIsClosed(t *testing.T) {
	for _, c := range []struct {
		name   string
		from   []byte // the last byte of each caller's address, in order
		closed []int  // which of them
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
