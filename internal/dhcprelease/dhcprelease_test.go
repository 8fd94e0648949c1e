package dhcprelease

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"croft"
)

// want is the message that dnsmasq 2.89 took for a release: what RFC 2131 has in
// each field, one field a line.
var want = strings.Join([]string{
	"01010600",                      // request, Ethernet, six bytes of hardware address, no hops
	"c922baeb",                      // transaction
	"00000000",                      // seconds and flags
	"c0a87a07",                      // client address 192.168.122.7
	"00000000",                      // your address
	"00000000",                      // server address
	"00000000",                      // relay
	"5254c922baeb",                  // hardware address
	strings.Repeat("00", 10+64+128), // its padding, server name, file
	"63825363",                      // cookie
	"350107",                        // type: release
	"3604c0a87a01",                  // server 192.168.122.1
	"ff",                            // end
	strings.Repeat("00", 300-236-4-3-6-1),
}, "")

func TestSend(t *testing.T) {
	server, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	mac := net.HardwareAddr{0x52, 0x54, 0xc9, 0x22, 0xba, 0xeb}
	to := server.LocalAddr().(*net.UDPAddr).AddrPort()
	if err := send(t.Context(), to, netip.MustParseAddr("192.168.122.7"), mac); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 1000)
	n, _, err := server.ReadFrom(got)
	if err != nil {
		t.Fatal(err)
	}
	wanted := strings.Replace(want, "c0a87a01", "7f000001", 1) // the server of this test
	if text := hex.EncodeToString(got[:n]); text != wanted {
		t.Errorf("sent\n%s, want\n%s", text, wanted)
	}
}

func TestMessage(t *testing.T) {
	mac := net.HardwareAddr{0x52, 0x54, 0xc9, 0x22, 0xba, 0xeb}
	got := message(netip.MustParseAddr("192.168.122.1"), netip.MustParseAddr("192.168.122.7"), mac)
	wanted, err := hex.DecodeString(want)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, wanted) {
		t.Errorf("got\n%x, want\n%x", got, wanted)
	}
}

func TestWhatCannotBeReleased(t *testing.T) {
	v4, v6 := netip.MustParseAddr("192.168.122.1"), netip.MustParseAddr("fd00::1")
	mac := net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}
	for _, c := range []struct {
		name         string
		server, addr netip.Addr
		mac          net.HardwareAddr
	}{
		{"an IPv6 address", v4, v6, mac},
		{"a lease of an IPv6 server", v6, v4, mac},
		{"no hardware address", v4, v4, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := Send(t.Context(), c.server, c.addr, c.mac); !errors.Is(err, croft.Invalid) {
				t.Errorf("got %v, want Invalid", err)
			}
		})
	}
}
