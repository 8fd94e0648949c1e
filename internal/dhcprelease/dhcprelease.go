// Package dhcprelease gives a DHCP lease back in the name of a guest that is gone.
// Such a guest cannot do so itself, libvirt has no call for it, and until its
// lease ends by itself, an hour later, nobody else gets the address: a few hundred
// short-lived guests would use up a network.
package dhcprelease

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"croft"
)

// The parts of a DHCP message that a release needs (RFC 2131, RFC 2132).
const (
	serverPort   = 67
	bootRequest  = 1
	ethernet     = 1
	cookie       = 0x63825363
	headerLength = 236
	leastLength  = 300 // of a BOOTP message; servers may drop shorter ones

	optionType   = 53
	optionServer = 54
	optionEnd    = 255
	typeRelease  = 7
)

// Send tells the DHCP server on this host that the client with mac gives addr back.
// DHCP has no answer to a release, so success means that it was sent.
func Send(ctx context.Context, server, addr netip.Addr, mac net.HardwareAddr) error {
	return send(ctx, netip.AddrPortFrom(server, serverPort), addr, mac)
}

func send(ctx context.Context, server netip.AddrPort, addr netip.Addr, mac net.HardwareAddr) error {
	if !server.Addr().Is4() || !addr.Is4() || len(mac) != 6 {
		return croft.Errorf(croft.Invalid, "release the lease of %s at %s: DHCP releases are for IPv4 and Ethernet", addr, mac)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "udp4", server.String())
	if err != nil {
		return fmt.Errorf("release the lease of %s: %w", addr, err)
	}
	defer conn.Close()
	if _, err := conn.Write(message(server.Addr(), addr, mac)); err != nil {
		return fmt.Errorf("release the lease of %s: %w", addr, err)
	}
	return nil
}

// message has no client identifier, so that the server finds the lease by the
// hardware address, whatever identifier the guest made up for itself.
func message(server, addr netip.Addr, mac net.HardwareAddr) []byte {
	m := make([]byte, headerLength, leastLength)
	m[0], m[1], m[2] = bootRequest, ethernet, byte(len(mac))
	copy(m[4:8], mac[2:])          // transaction
	copy(m[12:16], addr.AsSlice()) // client address
	copy(m[28:44], mac)            // hardware address
	m = binary.BigEndian.AppendUint32(m, cookie)
	m = append(m, optionType, 1, typeRelease, optionServer, 4)
	m = append(m, server.AsSlice()...)
	m = append(m, optionEnd)
	return m[:leastLength]
}
