package instances

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"croft"
)

func TestAViewerIsAwaitedOnlyOnLocalAddresses(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(t.TempDir(), "screen")
	for _, address := range []string{"127.0.0.1:0", "localhost:0", socket} {
		l, err := listenLocally(t.Context(), address)
		if err != nil {
			t.Fatalf("%s: %v", address, err)
		}
		go func() {
			if conn, err := net.Dial(l.Addr().Network(), dialed(l, address)); err == nil {
				_ = conn.Close()
			}
		}()
		conn, err := l.Accept()
		if err != nil {
			t.Errorf("%s: %v", address, err)
			continue
		}
		_, _ = conn.Close(), l.Close()
	}
	if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", info, err)
	}
	for _, address := range []string{"0.0.0.0:5901", "192.0.2.1:5901", "5901", "example.org:1", "", socket,
		"/no/dir/s"} {
		if l, err := listenLocally(t.Context(), address); !errors.Is(err, croft.Invalid) {
			t.Errorf("%q: %v, %v", address, l, err)
		}
	}
}

// dialed returns the address at which a client reaches a listener.
func dialed(l net.Listener, address string) string {
	if l.Addr().Network() == "unix" {
		return address
	}
	return l.Addr().String()
}

func TestAScreenEndsWithItsViewerAndTheViewerWithTheScreen(t *testing.T) {
	t.Parallel()
	for _, leaves := range []string{"viewer", "screen"} {
		viewer, near := net.Pipe()
		screen, far := net.Pipe()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = relay(t.Context(), near, far)
		}()
		go func() { _, _ = screen.Write([]byte("RFB")) }()
		text := make([]byte, 3)
		if _, err := io.ReadFull(viewer, text); err != nil || string(text) != "RFB" {
			t.Errorf("the viewer gets %q, %v", text, err)
		}
		other := viewer
		if leaves == "viewer" {
			_ = viewer.Close()
			other = screen
		} else {
			_ = screen.Close()
		}
		if n, err := other.Read(text); err == nil {
			t.Errorf("when the %s leaves, the other side reads %d bytes", leaves, n)
		}
		<-ended
	}
}
