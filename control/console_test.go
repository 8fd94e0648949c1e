package control_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"croft/control"
)

// A client that is frozen, or whose machine lost power, would keep the console for good: the kernel of a frozen one
// answers for it.
func TestAClientThatAnswersNoPingIsGone(t *testing.T) {
	for _, c := range []struct {
		name  string
		reads bool
	}{{"one that reads stays", true}, {"one that is frozen is gone", false}} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				client, server := sockets(ctx, t)
				go func() { _, _ = io.Copy(io.Discard, websocket.NetConn(ctx, server, websocket.MessageBinary)) }()
				if c.reads {
					go func() { _, _ = io.Copy(io.Discard, websocket.NetConn(ctx, client, websocket.MessageBinary)) }()
				}
				gone := false
				looked := make(chan struct{})
				go func() {
					control.LookForClient(ctx, server, func() { gone = true })
					close(looked)
				}()
				time.Sleep(10 * time.Minute)
				cancel()
				<-looked
				if gone == c.reads {
					t.Errorf("after ten minutes it is gone: %v, want %v", gone, !c.reads)
				}
				_, _ = client.CloseNow(), server.CloseNow() // the test is over
				synctest.Wait()
			})
		})
	}
}

// sockets returns the two ends of a WebSocket over a pipe in memory.
func sockets(ctx context.Context, t *testing.T) (client, server *websocket.Conn) {
	t.Helper()
	near, far := net.Pipe()
	accepted := make(chan *websocket.Conn, 1)
	l := &single{conn: make(chan net.Conn, 1), done: make(chan struct{})}
	l.conn <- far
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	through := &http.Client{Transport: &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return near, nil }}}
	client, _, err := websocket.Dial(ctx, "ws://croft", &websocket.DialOptions{HTTPClient: through})
	if err != nil {
		t.Fatal(err)
	}
	return client, <-accepted
}

// single is a listener that has one connection.
type single struct {
	conn chan net.Conn
	done chan struct{}
}

func (l *single) Accept() (net.Conn, error) {
	select {
	case c := <-l.conn:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *single) Close() error { close(l.done); return nil }

func (l *single) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "unix"} }
