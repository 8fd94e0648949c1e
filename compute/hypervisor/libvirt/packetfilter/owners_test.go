package packetfilter_test

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"

	"croft"
	"croft/compute/hypervisor/libvirt/packetfilter"
)

func tcp(from, to uint16, flags byte) []byte {
	p := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, from), to)
	return append(p, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 1, 0, 0, 0, 0, 0)
}

const fin, syn, rst, synAck, ack = 0x01, 0x02, 0x04, 0x12, 0x10

// TestGuestsOfDifferentOwners tries each kind of packet between guests: of one owner, of two owners where one opens
// ports, of another cloud on the same host, and computers beyond the host. "br" is the host, as their router.
func TestGuestsOfDifferentOwners(t *testing.T) {
	friend, stranger, closed := mac(3), mac(4), mac(5)
	friend4, stranger4, closed4 := addr("10.9.0.13"), addr("10.9.0.14"), addr("10.9.0.15")
	other := packetfilter.TableOf("7e4f1a6e-6d4c-4f0e-9b65-0f6b9f3f8a10")
	a, b, sibling := table.PortName(rogue), table.PortName(victim), table.PortName(friend)
	c, foreign := table.PortName(closed), other.PortName(stranger)
	l := newLAN(t, a, b, sibling, c, foreign, "cother", "clan")
	l.ends["br"] = listen(t, l.bridge)
	opened := []croft.OpenPort{{Protocol: "tcp", Port: 80}, {Protocol: "udp", Port: 53}}
	rules := packetfilter.Rules{
		Ports: []packetfilter.Port{
			{Name: a, MAC: rogue, Own: []netip.Addr{rogue4, rogue6, local6}, Asks: true, Owner: "red"},
			{Name: sibling, MAC: friend, Own: []netip.Addr{friend4}, Owner: "red"},
			{Name: b, MAC: victim, Own: []netip.Addr{victim4, victim6}, Owner: "blue", Reached: opened},
			{Name: c, MAC: closed, Own: []netip.Addr{closed4}, Owner: "green"},
		},
		Others: []packetfilter.Port{{Name: foreign, MAC: stranger, Own: []netip.Addr{stranger4}, Owner: "other/red"}},
	}
	must(t, table.Replace(t.Context(), rules))
	if !table.Counts(t.Context(), rules) {
		t.Error("the table is not as it was written")
	}
	four := func(from net.HardwareAddr, src, dst netip.Addr, proto byte, payload []byte) []byte {
		return ipv4(from, src, dst, proto, payload)
	}
	for _, x := range []struct {
		what     string
		from, to string
		frame    []byte
		want     bool
	}{
		{"a friend gets anything", a, sibling, four(rogue, rogue4, friend4, 17, udp(5000, 4000)), true},
		{"a friend gets ARP", a, sibling, arp(1, rogue, rogue, rogue4, friend4), true},
		{"a friend gets ICMP", a, sibling, four(rogue, rogue4, friend4, 1, udp(2048, 0)), true},
		{"a friend gets fragments", a, sibling, fragment4(rogue, rogue4, friend4, 17, 185, udp(1, 2)), true},
		{"a friend is reached through the host", a, "br", four(rogue, rogue4, friend4, 6, tcp(5000, 22, syn)), true},

		{"a closed port", a, b, four(rogue, rogue4, victim4, 6, tcp(5000, 22, syn)), false},
		{"a closed port, answered before it is asked", b, a,
			four(victim, victim4, rogue4, 6, tcp(22, 5000, ack)), false},
		{"an open port", a, b, four(rogue, rogue4, victim4, 6, tcp(5000, 80, syn)), true},
		{"its answer", b, a, four(victim, victim4, rogue4, 6, tcp(80, 5000, synAck)), true},
		{"its answer's end", b, a, four(victim, victim4, rogue4, 6, tcp(80, 5000, ack)), true},
		{"a connection from the open port", b, a, four(victim, victim4, rogue4, 6, tcp(80, 22, syn)), false},
		{"the refusal of its open port", b, a, four(victim, victim4, rogue4, 6, tcp(80, 5000, rst)), true},
		{"a scan from the open port with FIN", b, a, four(victim, victim4, rogue4, 6, tcp(80, 22, fin)), false},
		{"a scan from the open port without flags", b, a, four(victim, victim4, rogue4, 6, tcp(80, 22, 0)), false},
		{"a scan from the open port with FIN, PSH and URG", b, a, four(victim, victim4, rogue4, 6, tcp(80, 22, 0x29)),
			false},
		{"the open port over IPv6", a, b, ipv6(rogue, rogue6, victim6, 6, tcp(5000, 80, syn)), true},
		{"a closed port over IPv6", a, b, ipv6(rogue, rogue6, victim6, 6, tcp(5000, 81, syn)), false},
		{"the answer over IPv6", b, a, ipv6(victim, victim6, rogue6, 6, tcp(80, 5000, synAck)), true},

		{"UDP from an open port that was not asked", b, a, four(victim, victim4, rogue4, 17, udp(53, 5000)), false},
		{"an open port of UDP", a, b, four(rogue, rogue4, victim4, 17, udp(5000, 53)), true},
		{"its answer over UDP", b, a, four(victim, victim4, rogue4, 17, udp(53, 5000)), true},
		{"an answer to another port", b, a, four(victim, victim4, rogue4, 17, udp(53, 5001)), false},
		{"an open port of UDP over IPv6", a, b, ipv6(rogue, rogue6, victim6, 17, udp(5000, 53)), true},
		{"its answer over UDP and IPv6", b, a, ipv6(victim, victim6, rogue6, 17, udp(53, 5000)), true},
		{"a port that is open for UDP, over TCP", a, b, four(rogue, rogue4, victim4, 6, tcp(5000, 53, syn)), false},
		{"ICMP", a, b, four(rogue, rogue4, victim4, 1, udp(2048, 0)), false},
		{"a later fragment", a, b, fragment4(rogue, rogue4, victim4, 17, 185, udp(5000, 53)), false},
		{"another protocol of IP", a, b, four(rogue, rogue4, victim4, 47, udp(5000, 80)), false},

		{"ARP to a guest with open ports", a, b, arp(1, rogue, rogue, rogue4, victim4), true},
		{"ARP from a guest with open ports", b, a, arp(2, victim, victim, victim4, rogue4), true},
		{"ARP to a guest without open ports", a, c, arp(1, rogue, rogue, rogue4, closed4), false},
		{"neighbour discovery to a guest with open ports", a, b,
			ipv6(rogue, rogue6, victim6, 58, nd(135, victim6)), true},
		{"neighbour discovery to one without", a, c, ipv6(rogue, rogue6, all6, 58, nd(135, victim6)), false},
		{"a broadcast", a, b, four(rogue, rogue4, all4, 17, udp(5000, 4000)), false},
		{"a DHCP request does not reach other guests", a, b, four(rogue, none4, all4, 17, dhcp(rogue, none4)), false},
		{"multicast DNS", a, b, four(rogue, rogue4, addr("224.0.0.251"), 17, udp(5353, 5353)), false},
		{"anything to a guest without open ports", a, c, four(rogue, rogue4, closed4, 6, tcp(5000, 80, syn)), false},

		{"through the host to an open port", a, "br", four(rogue, rogue4, victim4, 6, tcp(5000, 80, syn)), true},
		{"through the host to a closed port", a, "br", four(rogue, rogue4, victim4, 6, tcp(5000, 22, syn)), false},
		{"through the host with ICMP", a, "br", four(rogue, rogue4, victim4, 1, udp(2048, 0)), false},
		{"through the host over IPv6", a, "br", ipv6(rogue, rogue6, victim6, 6, tcp(5000, 22, syn)), false},
		{"an answer through the host", b, "br", four(victim, victim4, rogue4, 6, tcp(80, 5000, synAck)), true},
		{"through the host to another cloud's guest", a, "br",
			four(rogue, rogue4, stranger4, 6, tcp(5000, 80, syn)), false},
		{"the host: DHCP", a, "br", four(rogue, none4, all4, 17, dhcp(rogue, none4)), true},
		{"the host: DNS", a, "br", four(rogue, rogue4, host4, 17, udp(5000, 53)), true},
		{"the host: metadata", a, "br", four(rogue, rogue4, addr("169.254.169.254"), 6, tcp(5000, 80, syn)), true},
		{"the host: ARP", a, "br", arp(1, rogue, rogue, rogue4, host4), true},
		{"the host over IPv6", a, "br", ipv6(rogue, rogue6, host6, 6, tcp(5000, 80, syn)), true},
		{"the world beyond the host", a, "br", four(rogue, rogue4, addr("192.0.2.1"), 6, tcp(5000, 22, syn)), true},
		{"computers of the LAN", a, "clan", four(rogue, rogue4, addr("10.9.0.77"), 6, tcp(5000, 22, syn)), true},
		{"ARP into the LAN", a, "clan", arp(1, rogue, rogue, rogue4, addr("10.9.0.77")), true},
		{"from computers of the LAN", "cother", a,
			four(mac(0xee), addr("10.9.0.77"), rogue4, 6, tcp(5000, 22, syn)), true},

		{"from another cloud's guest", foreign, a, four(stranger, stranger4, rogue4, 6, tcp(5000, 22, syn)), false},
		{"from another cloud's guest to an open port", foreign, b,
			four(stranger, stranger4, victim4, 6, tcp(5000, 80, syn)),
			true},
	} {

		if got := l.passes(t, x.from, x.to, x.frame); got != x.want {
			t.Errorf("%s: it passes: %v, want %v", x.what, got, x.want)
		}
	}
}

// TestAGuestThatAsksTooMuchLeavesRoomForOthers: the filter remembers a limited number of UDP packets to open ports,
// whose answers may pass. One guest cannot fill that memory with packets from many ports.
func TestAGuestThatAsksTooMuchLeavesRoomForOthers(t *testing.T) {
	friend4 := addr("10.9.0.13")
	a, b, sibling := table.PortName(rogue), table.PortName(victim), table.PortName(mac(3))
	l := newLAN(t, a, b, sibling, "cother")
	must(t, table.Replace(t.Context(), packetfilter.Rules{Ports: []packetfilter.Port{
		{Name: a, MAC: rogue, Own: []netip.Addr{rogue4, rogue6}, Owner: "red"},
		{Name: sibling, MAC: mac(3), Own: []netip.Addr{friend4}, Owner: "green"},
		{Name: b, MAC: victim, Own: []netip.Addr{victim4, victim6}, Owner: "blue",
			Reached: []croft.OpenPort{{Protocol: "udp", Port: 53}, {Protocol: "udp", Port: 54}}},
	}}))
	ask := func() bool { return l.passes(t, sibling, b, ipv4(mac(3), friend4, victim4, 17, udp(5000, 53))) }
	answer := func() bool { return l.passes(t, b, sibling, ipv4(victim, victim4, friend4, 17, udp(53, 5000))) }
	for from := 1; from < 65536; from++ {
		for _, to := range []uint16{53, 54} {
			if from != 67 && from != 547 { // no guest sends as a DHCP server
				l.send(t, a, ipv4(rogue, rogue4, victim4, 17, udp(uint16(from), to)))
			}
		}
	}
	if !ask() || !answer() {
		t.Error("a guest neither asks an open port nor is answered, because another guest asked from many ports")
	}
	for range 5000 { // one conversation is not limited
		l.send(t, sibling, ipv4(mac(3), friend4, victim4, 17, udp(5000, 53)))
	}
	if !ask() || !answer() {
		t.Error("a long conversation with an open port is cut off")
	}
}
