package libvirt

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"libvirt.org/go/libvirt"
)

// releaseLeases releases the DHCP leases of interfaces whose domain is off, so that their addresses are free at once.
func releaseLeases(c *libvirt.Connect, nics []markNIC) error {
	var errs []error
	for _, nic := range nics {
		if nic.Network == "" {
			continue
		}
		byMAC, err := leases(c, nic.Network)
		if err != nil {
			return err
		}
		if len(byMAC[nic.MAC]) == 0 {
			continue
		}
		network, err := ensureNetwork(c, nic.Network)
		if err != nil {
			return err
		}
		for _, l := range byMAC[nic.MAC] {
			errs = append(errs, release(network, nic.MAC, l))
		}
	}
	return errors.Join(errs...)
}

// release tells a network's DHCP server, on behalf of the guest, that a lease has ended.
func release(n Network, mac string, l lease) error {
	hw, err := net.ParseMAC(mac)
	if err != nil {
		return err
	}
	if !n.Gateway.Is4() || !l.addr.Is4() {
		return nil // of another DHCP server or protocol
	}
	dialer := net.Dialer{Control: bindTo(n.Bridge)}
	conn, err := dialer.Dial("udp4", netip.AddrPortFrom(n.Gateway, 67).String())
	if err != nil {
		return fmt.Errorf("release %s: %w", l.addr, err)
	}
	defer conn.Close()
	if _, err := conn.Write(releaseMessage(hw, l, n.Gateway)); err != nil {
		return fmt.Errorf("release %s: %w", l.addr, err)
	}
	return nil
}

// releaseMessage returns a DHCPRELEASE (RFC 2131).
func releaseMessage(hw net.HardwareAddr, l lease, server netip.Addr) []byte {
	const (
		fixed       = 236 // bytes before the options
		least       = 300 // minimum size of a BOOTP message
		magicCookie = 0x63825363
	)
	m := make([]byte, fixed)
	m[0], m[1], m[2] = 1, 1, byte(len(hw)) // request, Ethernet
	copy(m[4:8], hw[len(hw)-4:])           // transaction ID: any number
	c, s := l.addr.As4(), server.As4()
	copy(m[12:16], c[:])
	copy(m[28:44], hw)
	m = binary.BigEndian.AppendUint32(m, magicCookie)
	m = append(m, 53, 1, 7) // message type: release
	m = append(m, 54, 4)    // server identifier
	m = append(m, s[:]...)
	if id, err := hex.DecodeString(strings.ReplaceAll(l.client, ":", "")); err == nil && 0 < len(id) && len(id) < 256 {
		m = append(m, 61, byte(len(id)))
		m = append(m, id...)
	}
	m = append(m, 255)
	return append(m, make([]byte, max(0, least-len(m)))...)
}

// bindTo binds a socket to one interface, by which the DHCP server there identifies the network of a message.
func bindTo(device string) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		var bindErr error
		if err := c.Control(func(fd uintptr) { bindErr = unix.BindToDevice(int(fd), device) }); err != nil {
			return err
		}
		return bindErr
	}
}
