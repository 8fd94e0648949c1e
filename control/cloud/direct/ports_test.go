package direct

import (
	"io"
	"net"
	"net/netip"
	"testing"

	"croft"
)

func TestAPortOfAGuestIsConnectedTo(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		conn, err := l.Accept()
		if err == nil {
			_, _ = io.WriteString(conn, "SSH-2.0-guest\r\n")
			_ = conn.Close()
		}
	}()
	port := l.Addr().(*net.TCPAddr).Port
	st := croft.Status{Observation: &croft.Observation{State: croft.StateRunning,
		Addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}}
	said := ""
	err = ports{}.Connect(t.Context(), st, port, func(guest io.ReadWriteCloser) error {
		text, err := io.ReadAll(guest)
		said = string(text)
		return err
	})
	if err != nil || said != "SSH-2.0-guest\r\n" {
		t.Errorf("it said %q, %v", said, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := (ports{}).Connect(t.Context(), st, port, nil); croft.KindOf(err) != croft.Unavailable {
		t.Errorf("a port that does not answer: %v", err)
	}
	st.Observation.State = croft.StateStopped
	if err := (ports{}).Connect(t.Context(), st, port, nil); croft.KindOf(err) != croft.NotFound {
		t.Errorf("a guest that is off: %v", err)
	}
}
