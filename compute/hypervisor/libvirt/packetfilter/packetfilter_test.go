package packetfilter_test

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"croft"
	"croft/compute/hypervisor/libvirt/packetfilter"
)

var (
	table  = packetfilter.TableOf("2c5ea4c0-4067-41fe-8bad-9b1deb4d3b7d")
	rogue  = mac(1)
	victim = mac(2)

	rogue4, victim4, host4 = addr("10.9.0.11"), addr("10.9.0.12"), addr("10.9.0.1")
	rogue6, victim6, host6 = addr("fd09::5054:ff:fe00:1"), addr("fd09::5054:ff:fe00:2"), addr("fd09::1")
	local6                 = addr("fe80::5054:ff:fe00:1") // the rogue's
	none4, none6           = addr("0.0.0.0"), addr("::")
	all4, all6             = addr("255.255.255.255"), addr("ff02::1")

	broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
)

func mac(n byte) net.HardwareAddr { return net.HardwareAddr{0x52, 0x54, 0, 0, 0, n} }
func addr(s string) netip.Addr    { return netip.MustParseAddr(s) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lan is a bridge in a network namespace with one port per guest; the test holds the guests' ends.
type lan struct {
	bridge *netlink.Bridge
	ends   map[string]int // sockets at the guests' ends, by port name
	tries  int            // calls of passes
}

// newLAN moves the test's thread into its own network namespace, permanently.
func newLAN(t *testing.T, ports ...string) *lan {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("making a bridge needs root")
	}
	if _, err := exec.LookPath("nft"); err != nil {
		t.Fatal("nft is not installed: scripts/install-deps test")
	}
	runtime.LockOSThread() // the thread ends with the test's goroutine
	must(t, unix.Unshare(unix.CLONE_NEWNET))
	for _, kind := range []string{"ip", "ip6", "arp"} { // these drop malformed packets themselves
		if err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-"+kind+"tables", []byte("0"), 0); err != nil &&
			!os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
	no := false
	l := &lan{bridge: &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br"}, MulticastSnooping: &no},
		ends: map[string]int{}}
	must(t, netlink.LinkAdd(l.bridge))
	must(t, netlink.LinkSetUp(l.bridge))
	for _, name := range ports {
		end := "g" + name[1:]
		veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, MasterIndex: l.bridge.Index}, PeerName: end}
		must(t, netlink.LinkAdd(veth))
		must(t, netlink.LinkSetUp(veth))
		peer, err := netlink.LinkByName(end)
		must(t, err)
		must(t, netlink.LinkSetUp(peer))
		l.ends[name] = listen(t, peer)
	}
	for _, name := range ports { // a port that is not forwarding yet drops
		for {
			link, err := netlink.LinkByName(name)
			must(t, err)
			if p, err := netlink.LinkGetProtinfo(link); err == nil && link.Attrs().OperState == netlink.OperUp &&
				p.Learning {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	return l
}

// listen returns a packet socket on an interface.
func listen(t *testing.T, on netlink.Link) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL)))
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	must(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: on.Attrs().Index}))
	must(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 30}))
	return fd
}

func htons(n uint16) uint16 { return n<<8 | n>>8 }

// passes sends a frame from one guest and reports whether another receives it. A frame that always passes
// follows, so that a dropped frame needs no timeout.
func (l *lan) passes(t *testing.T, from, to string, frame []byte) (passed bool) {
	t.Helper()
	for stale := make([]byte, 2048); ; { // each end received the frames of earlier calls too
		if _, _, err := unix.Recvfrom(l.ends[to], stale, unix.MSG_DONTWAIT); err != nil {
			break
		}
	}
	l.tries++
	first, last := l.marker(0), l.marker(1)
	l.send(t, "cother", first)
	l.wait(t, to, first) // the bridge forwards
	l.send(t, from, frame)
	l.send(t, "cother", last)
	if binary.BigEndian.Uint16(frame[12:]) == 0x8100 { // packet sockets deliver a tag separately from the frame
		frame = append(append([]byte{}, frame[:12]...), frame[16:]...)
	}
	return l.wait(t, to, last, frame)
}

// marker returns a frame that always passes, for one call of passes.
func (l *lan) marker(n byte) []byte {
	payload := binary.BigEndian.AppendUint32([]byte{n}, uint32(l.tries))
	return ether(broadcast, mac(0xee), 0x88b5, append(payload, make([]byte, 45)...))
}

func (l *lan) send(t *testing.T, port string, frame []byte) {
	t.Helper()
	_, err := unix.Write(l.ends[port], frame)
	must(t, err)
}

// wait reads until the last frame and reports whether the other came before it.
func (l *lan) wait(t *testing.T, port string, last []byte, other ...[]byte) (came bool) {
	t.Helper()
	buffer := make([]byte, 2048)
	for {
		n, from, err := unix.Recvfrom(l.ends[port], buffer, 0)
		must(t, err)
		if at, ok := from.(*unix.SockaddrLinklayer); ok && at.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		if bytes.Equal(buffer[:n], last) {
			return came
		}
		came = came || len(other) > 0 && bytes.Equal(buffer[:n], other[0])
	}
}

func ether(to, from net.HardwareAddr, kind uint16, payload []byte) []byte {
	frame := append(append([]byte{}, to...), from...)
	return append(binary.BigEndian.AppendUint16(frame, kind), payload...)
}

// tagged adds an 802.1Q tag to a frame.
func tagged(frame []byte) []byte {
	return append(append(append([]byte{}, frame[:12]...), 0x81, 0, 0, 7), frame[12:]...)
}

func arp(op byte, from, sender net.HardwareAddr, senderIP, target netip.Addr) []byte {
	p := []byte{0, 1, 8, 0, 6, 4, 0, op}
	p = append(append(p, sender...), senderIP.AsSlice()...)
	p = append(append(p, make([]byte, 6)...), target.AsSlice()...)
	return ether(broadcast, from, 0x0806, append(p, make([]byte, 18)...))
}

func ipv4(from net.HardwareAddr, src, dst netip.Addr, proto byte, payload []byte) []byte {
	return fragment4(from, src, dst, proto, 0, payload)
}

func fragment4(from net.HardwareAddr, src, dst netip.Addr, proto byte, offset uint16, payload []byte) []byte {
	h := []byte{0x45, 0}
	h = binary.BigEndian.AppendUint16(h, uint16(20+len(payload)))
	h = binary.BigEndian.AppendUint16(h, 7)
	h = binary.BigEndian.AppendUint16(h, offset)
	h = append(h, 64, proto, 0, 0)
	h = append(append(h, src.AsSlice()...), dst.AsSlice()...)
	return ether(broadcast, from, 0x0800, append(h, payload...))
}

func udp(from, to uint16) []byte {
	p := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, from), to)
	return append(binary.BigEndian.AppendUint16(p, 40), append([]byte{0, 0}, make([]byte, 32)...)...)
}

// dhcp returns the datagram with which a DHCP client with this MAC asks through this relay.
func dhcp(client net.HardwareAddr, relay netip.Addr) []byte {
	m := make([]byte, 236, 300)
	copy(m, []byte{1, 1, 6}) // a request; Ethernet, and the length of its addresses
	copy(m[24:], relay.AsSlice())
	copy(m[28:], client)
	m = append(m, 99, 130, 83, 99, 53, 1, 1, 255) // cookie, discover, end
	head := udp(68, 67)[:8]
	binary.BigEndian.PutUint16(head[4:], uint16(8+len(m)))
	return append(head, m...)
}

// edited returns a copy of a message with another byte.
func edited(message []byte, at int, b byte) []byte {
	message = bytes.Clone(message)
	message[at] = b
	return message
}

func ipv6(from net.HardwareAddr, src, dst netip.Addr, next byte, payload []byte) []byte {
	h := []byte{0x60, 0, 0, 0}
	h = binary.BigEndian.AppendUint16(h, uint16(len(payload)))
	h = append(h, next, 255)
	h = append(append(h, src.AsSlice()...), dst.AsSlice()...)
	return ether(net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, from, 0x86dd, append(h, payload...))
}

// extended prepends extension headers of the given kinds to the payload; a fragment header says that this is
// the first fragment and more follow.
func extended(next byte, payload []byte, kinds ...byte) (byte, []byte) {
	for _, kind := range kinds {
		header := []byte{next, 0, 1, 4, 0, 0, 0, 0} // padding
		if kind == 44 {
			header = []byte{next, 0, 0, 1, 0, 0, 0, 9}
		}
		next, payload = kind, append(header, payload...)
	}
	return next, payload
}

func later(next byte, payload []byte) []byte {
	return append([]byte{next, 0, 0, 8, 0, 0, 0, 9}, payload...)
}

// nd returns a neighbour discovery message about a target.
func nd(kind byte, target netip.Addr) []byte {
	return append(append([]byte{kind, 0, 0, 0, 0, 0, 0, 0}, target.AsSlice()...), make([]byte, 16)...)
}

// frames returns what a guest may and may not send, at a port with croft's addresses and at an open one.
func frames() map[string]struct {
	frame       []byte
	strict, any bool
} {
	type c = struct {
		frame       []byte
		strict, any bool
	}
	six := func(src netip.Addr, next byte, payload []byte) []byte { return ipv6(rogue, src, all6, next, payload) }
	sixWith := func(src netip.Addr, next byte, payload []byte, kinds ...byte) []byte {
		next, payload = extended(next, payload, kinds...)
		return six(src, next, payload)
	}
	free4, free6 := addr("10.9.0.99"), addr("fd09::99")
	return map[string]c{
		"IPv4 from its own address":             {ipv4(rogue, rogue4, victim4, 17, udp(5000, 53)), true, true},
		"IPv4 from an address that is nobody's": {ipv4(rogue, free4, victim4, 17, udp(5000, 53)), false, true},
		"IPv4 from another's address": {ipv4(rogue, victim4, host4, 17, udp(5000, 53)), false,
			false},
		"IPv4 from the host's address": {ipv4(rogue, host4, victim4, 17, udp(5000, 53)), false,
			false},
		"IPv4 from another's address and MAC": {ipv4(victim, victim4, host4, 6, udp(5000, 80)), false,
			false},
		"IPv4 from its own address and another's MAC": {ipv4(victim, rogue4, host4, 6, udp(5000, 80)), false, false},
		"ICMP from its own address":                   {ipv4(rogue, rogue4, victim4, 1, udp(2048, 0)), true, true},
		"a later fragment from its own address": {fragment4(rogue, rogue4, victim4, 17, 185, udp(67, 68)),
			true, true},
		"a later fragment from another's address": {fragment4(rogue, victim4, host4, 17, 185, udp(67, 68)),
			false, false},
		"a question to a DHCP server": {ipv4(rogue, none4, all4, 17, dhcp(rogue, none4)), true, true},
		"a renewal":                   {ipv4(rogue, rogue4, host4, 17, dhcp(rogue, none4)), true, true},
		"a question to a DHCP server, from another's": {ipv4(rogue, victim4, host4, 17, dhcp(rogue, none4)), false,
			false},
		"a question for another's MAC":  {ipv4(rogue, none4, all4, 17, dhcp(victim, none4)), false, false},
		"a renewal for another's MAC":   {ipv4(rogue, rogue4, host4, 17, dhcp(victim, none4)), false, false},
		"a renewal for a MAC of nobody": {ipv4(rogue, rogue4, host4, 17, dhcp(mac(0x77), none4)), false, false},
		"a question through a relay":    {ipv4(rogue, rogue4, host4, 17, dhcp(rogue, host4)), false, false},
		"a question of another length": {
			ipv4(rogue, rogue4, host4, 17, edited(dhcp(rogue, none4), 10, 16)),
			false,
			false,
		},
		"a question of another hardware": {
			ipv4(rogue, rogue4, host4, 17, edited(dhcp(rogue, none4), 9, 6)),
			false,
			false,
		},
		"an answer to a DHCP server": {
			ipv4(rogue, rogue4, host4, 17, edited(dhcp(rogue, none4), 8, 2)),
			false,
			false,
		},
		"a question that is cut short": {ipv4(rogue, rogue4, host4, 17, udp(68, 67)), false, false},
		"a question for another's MAC, with more to come": {fragment4(rogue, rogue4, host4, 17, 0x2000,
			dhcp(victim, none4)), false, false},
		"a question whose MAC is still to come": {fragment4(rogue, rogue4, host4, 17, 0x2000,
			dhcp(victim, none4)[:24]), false, false},
		"no address, to anything else":                 {ipv4(rogue, none4, all4, 17, udp(5000, 53)), false, false},
		"the answer of a DHCP server":                  {ipv4(rogue, rogue4, all4, 17, udp(67, 68)), false, false},
		"the answer of a DHCP server, from the host's": {ipv4(rogue, host4, all4, 17, udp(67, 68)), false, false},
		"the answer of a DHCP server, with more to come": {fragment4(rogue, rogue4, all4, 17, 0x2000, udp(67, 68)),
			false, false},
		"a UDP header that is cut short": {fragment4(rogue, rogue4, all4, 17, 0x2000, nil), false,
			false},

		"ARP for its own address":                    {arp(1, rogue, rogue, rogue4, victim4), true, true},
		"an ARP answer for its own address":          {arp(2, rogue, rogue, rogue4, victim4), true, true},
		"an ARP answer for an address of nobody's":   {arp(2, rogue, rogue, free4, victim4), false, true},
		"an ARP answer for another's address":        {arp(2, rogue, rogue, victim4, host4), false, false},
		"an ARP answer for the host's address":       {arp(2, rogue, rogue, host4, victim4), false, false},
		"an ARP answer for another's MAC":            {arp(2, rogue, victim, rogue4, host4), false, false},
		"an ARP answer from another's MAC":           {arp(2, victim, rogue, rogue4, host4), false, false},
		"an ARP answer of another, whole":            {arp(2, victim, victim, victim4, host4), false, false},
		"a search for duplicates of its own address": {arp(1, rogue, rogue, none4, rogue4), true, true},
		"a search for duplicates of another's":       {arp(1, rogue, rogue, none4, victim4), false, false},
		"ARP of another kind": {ether(broadcast, rogue, 0x0806,
			append([]byte{0, 6, 8, 0, 6, 4, 0, 2}, make([]byte, 38)...)), false, false},

		"IPv6 from its own address":             {six(rogue6, 17, udp(5000, 53)), true, true},
		"IPv6 from its link-local address":      {six(local6, 17, udp(5000, 53)), true, true},
		"IPv6 from an address that is nobody's": {six(free6, 17, udp(5000, 53)), false, true},
		"IPv6 from another's address":           {six(victim6, 17, udp(5000, 53)), false, false},
		"IPv6 from the host's address":          {six(host6, 17, udp(5000, 53)), false, false},
		"IPv6 from another's address and MAC": {ipv6(victim, victim6, all6, 6, udp(5000, 80)), false,
			false},
		"a ping":                                          {six(rogue6, 58, nd(128, none6)), true, true},
		"a question to a DHCPv6 server":                   {six(local6, 17, udp(546, 547)), true, true},
		"the answer of a DHCPv6 server":                   {six(local6, 17, udp(547, 546)), false, false},
		"the same behind a header of options":             {sixWith(local6, 17, udp(547, 546), 60), false, false},
		"the same as a fragment":                          {sixWith(local6, 17, udp(547, 546), 44), false, false},
		"the same, its header in a later fragment":        {sixWith(local6, 17, nil, 60, 44), false, false},
		"a fragment of UDP":                               {sixWith(rogue6, 17, udp(5000, 53), 44), true, true},
		"a later fragment over IPv6":                      {six(rogue6, 44, later(17, udp(547, 546))), true, true},
		"a router advertisement":                          {six(local6, 58, nd(134, none6)), false, false},
		"a router advertisement behind options":           {sixWith(local6, 58, nd(134, none6), 0), false, false},
		"a router advertisement behind two headers":       {sixWith(local6, 58, nd(134, none6), 60, 0), false, false},
		"a router advertisement as a fragment":            {sixWith(local6, 58, nd(134, none6), 44), false, false},
		"the same, its header in a later fragment ":       {sixWith(local6, 58, nil, 60, 44), false, false},
		"a redirect":                                      {six(local6, 58, nd(137, host6)), false, false},
		"a header that ends in the middle":                {six(rogue6, 0, []byte{58, 9}), false, false},
		"a question for a router":                         {six(local6, 58, nd(133, none6)), true, true},
		"a question for a neighbour":                      {six(rogue6, 58, nd(135, victim6)), true, true},
		"a question for a neighbour, from another's":      {six(victim6, 58, nd(135, host6)), false, false},
		"an answer for its own address":                   {six(rogue6, 58, nd(136, rogue6)), true, true},
		"an answer for its link-local address":            {six(local6, 58, nd(136, local6)), true, true},
		"an answer for an address of nobody's":            {six(rogue6, 58, nd(136, free6)), false, true},
		"an answer for another's address":                 {six(rogue6, 58, nd(136, victim6)), false, false},
		"the same behind options":                         {sixWith(rogue6, 58, nd(136, victim6), 60), false, false},
		"the same as a fragment ":                         {sixWith(rogue6, 58, nd(136, victim6), 44), false, false},
		"an answer for the host's address":                {six(local6, 58, nd(136, host6)), false, false},
		"a search for duplicates of its IPv6 address":     {six(none6, 58, nd(135, rogue6)), true, true},
		"a search for duplicates of its link-local one":   {six(none6, 58, nd(135, local6)), true, true},
		"a search for duplicates of another's one":        {six(none6, 58, nd(135, victim6)), false, false},
		"a report of multicast groups, before an address": {sixWith(none6, 58, nd(143, none6), 0), true, true},
		"no IPv6 address, for anything else":              {six(none6, 17, udp(5000, 53)), false, false},

		"a question for members of multicast groups": {ipv4(rogue, rogue4, addr("224.0.0.1"), 2,
			[]byte{0x11, 100, 0, 0, 0, 0, 0, 0}), false, false},
		"a report of a multicast group": {ipv4(rogue, rogue4, addr("224.0.0.251"), 2,
			[]byte{0x16, 0, 0, 0, 224, 0, 0, 251}), true, true},
		"an advertisement of a multicast router": {ipv4(rogue, rogue4, addr("224.0.0.106"), 2,
			[]byte{0x30, 1, 0, 0, 0, 0, 0, 0}), false, false},
		"a greeting of a multicast router": {
			ipv4(rogue, rogue4, addr("224.0.0.13"), 103, make([]byte, 8)),
			false,
			false,
		},
		"a greeting of a multicast router over IPv6": {six(local6, 103, make([]byte, 8)), false, false},
		"a question for members over IPv6":           {sixWith(local6, 58, nd(130, none6), 0), false, false},
		"a report of multicast groups":               {sixWith(local6, 58, nd(143, none6), 0), true, true},
		"an advertisement of a router of IPv6":       {sixWith(local6, 58, nd(151, none6), 0), false, false},

		"another protocol":                    {ether(broadcast, rogue, 0x88cc, make([]byte, 50)), false, false},
		"IPv4 with a VLAN tag":                {tagged(ipv4(rogue, rogue4, victim4, 17, udp(5000, 53))), false, false},
		"a router advertisement with one":     {tagged(six(local6, 58, nd(134, none6))), false, false},
		"another's address with one":          {tagged(ipv4(rogue, victim4, host4, 17, udp(5000, 53))), false, false},
		"a frame of QEMU's for a new machine": {ether(broadcast, rogue, 0x8035, make([]byte, 50)), false, false},
	}
}

func own() []netip.Addr { return []netip.Addr{rogue4, rogue6, local6} }
func kept() []netip.Addr {
	return []netip.Addr{host4, host6, victim4, victim6, addr("fe80::1")}
}

// TestARogueGuest checks that a guest's packets pass only with its own addresses, whether assigned by croft or in a
// LAN.
func TestARogueGuest(t *testing.T) {
	port := table.PortName(rogue)
	l := newLAN(t, port, "cother", "cvictim")
	for name, c := range frames() {
		if !l.passes(t, port, "cvictim", c.frame) {
			t.Fatalf("without a filter, it does not pass: %s", name)
		}
	}
	for _, kind := range []struct {
		name string
		port packetfilter.Port
		want func(name string) bool
	}{
		{"addresses of croft's", packetfilter.Port{Name: port, MAC: rogue, Own: own(), Asks: true},
			func(n string) bool { return frames()[n].strict }},
		{"an open port", packetfilter.Port{Name: port, MAC: rogue, Open4: true, Open6: true},
			func(n string) bool { return frames()[n].any }},
		{"a port of somebody else", packetfilter.Port{Name: table.Prefix + "0", MAC: rogue, Own: own(), Asks: true},
			func(string) bool { return false }},
		{"no reservation yet", packetfilter.Port{Name: port, MAC: rogue, Own: own()}, func(n string) bool {
			return frames()[n].strict && n != "a question to a DHCP server"
		}},
	} {
		must(t, table.Replace(t.Context(), packetfilter.Rules{Ports: []packetfilter.Port{kind.port}, Kept: kept()}))
		for name, c := range frames() {
			if got := l.passes(t, port, "cvictim", c.frame); got != kind.want(name) {
				t.Errorf("%s: it passes %v: %s", kind.name, got, name)
			}
		}
	}
	must(t, table.Remove(t.Context()))
	for name, c := range frames() {
		if !l.passes(t, port, "cvictim", c.frame) {
			t.Errorf("the filter is gone, and it does not pass: %s", name)
		}
	}
}

// TestOthersAreLeftAlone checks that the table of one cloud does not affect guests of another, or foreign ones.
func TestOthersAreLeftAlone(t *testing.T) {
	other := packetfilter.TableOf("7e4f1a6e-6d4c-4f0e-9b65-0f6b9f3f8a10")
	theirs := other.PortName(rogue)
	l := newLAN(t, theirs, "cother", "cvictim")
	must(t, table.Replace(t.Context(), packetfilter.Rules{}))
	for name, c := range frames() {
		if !l.passes(t, theirs, "cvictim", c.frame) {
			t.Errorf("it does not pass: %s", name)
		}
	}
	rules := packetfilter.Rules{Ports: []packetfilter.Port{{Name: theirs, MAC: rogue, Own: own(), Asks: true}}}
	must(t, other.Replace(t.Context(), rules))
	must(t, table.Remove(t.Context()))
	if !other.Counts(t.Context(), rules) {
		t.Error("the rules of another cloud are gone")
	}
}

// TestRulesAreKnownAgain checks that removing or changing the table is detected.
func TestRulesAreKnownAgain(t *testing.T) {
	newLAN(t)
	rules := packetfilter.Rules{Ports: []packetfilter.Port{{Name: table.PortName(rogue), MAC: rogue, Own: own()}},
		Kept: kept()}
	if table.Counts(t.Context(), rules) {
		t.Error("rules count that nobody wrote")
	}
	for range 2 {
		must(t, table.Replace(t.Context(), rules))
		if !table.Counts(t.Context(), rules) {
			t.Error("rules that were written do not count")
		}
	}
	if other := (packetfilter.Rules{Ports: rules.Ports}); table.Counts(t.Context(), other) {
		t.Error("other rules count")
	}
	out, err := exec.Command("nft", "flush", "ruleset").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if table.Counts(t.Context(), rules) {
		t.Error("rules that somebody flushed count")
	}
}

// TestABridgeLearnsNothingUnfiltered: the kernel passes frames to the addresses of bridge protocols to no packet
// filter, and learns from them.
func TestABridgeLearnsNothingUnfiltered(t *testing.T) {
	port := table.PortName(rogue)
	l := newLAN(t, port, "cother", "cvictim")
	must(t,
		table.Replace(t.Context(),
			packetfilter.Rules{Ports: []packetfilter.Port{{Name: port, MAC: rogue, Own: own()}}}))
	at := func() (ports []int) {
		list, err := netlink.NeighListExecute(netlink.Ndmsg{Family: unix.AF_BRIDGE})
		must(t, err)
		for _, n := range list {
			if bytes.Equal(n.HardwareAddr, victim) {
				ports = append(ports, n.LinkIndex)
			}
		}
		return ports
	}
	lldp := ether(net.HardwareAddr{0x01, 0x80, 0xc2, 0, 0, 0x0e}, victim, 0x88cc, make([]byte, 50))
	for tries := 0; len(at()) == 0; tries++ {
		if tries == 1000 {
			t.Fatal("this kernel learns nothing from LLDP: the test shows nothing")
		}
		l.passes(t, port, "cvictim", lldp)
	}
	link, err := netlink.LinkByName(port)
	must(t, err)
	must(t, netlink.NeighDel(&netlink.Neigh{LinkIndex: link.Attrs().Index, Family: unix.AF_BRIDGE,
		Flags: netlink.NTF_MASTER, HardwareAddr: victim}))
	must(t, packetfilter.LearnNothingUnfiltered("br"))
	for range 100 {
		l.passes(t, port, "cvictim", lldp)
		l.passes(t, port, "cvictim", ipv4(victim, rogue4, host4, 17, udp(1, 2)))
	}
	if ports := at(); len(ports) != 0 {
		t.Errorf("it takes the victim to be at %v", ports)
	}
	if err := packetfilter.LearnNothingUnfiltered("br-none"); croft.KindOf(err) != croft.NotFound {
		t.Errorf("a bridge that is not there: %v", err)
	}
}

func TestNames(t *testing.T) {
	name := table.PortName(mac(7))
	if len(name) > 15 || !strings.HasPrefix(name, table.Prefix) || !strings.HasSuffix(name, "00000007") {
		t.Errorf("a port is named %q", name)
	}
	if other := packetfilter.TableOf("7e4f1a6e-6d4c-4f0e-9b65-0f6b9f3f8a10"); other.Prefix == table.Prefix ||
		other.Name == table.Name {
		t.Errorf("two clouds share %+v", other)
	}
}

// TestAHostThatCannotFilter checks that nft's message is reported.
func TestAHostThatCannotFilter(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "nft"), []byte("#!/bin/sh\necho Error: no such family >&2\nexit 1\n"),
		0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for what, err := range map[string]error{
		"try":     packetfilter.Supported(t.Context()),
		"replace": table.Replace(t.Context(), packetfilter.Rules{}),
		"remove":  table.Remove(t.Context()),
	} {
		if croft.KindOf(err) != croft.Unavailable || !strings.Contains(err.Error(), "no such family") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestAGuestSteersNoMulticast: a bridge that has seen a question for members of multicast groups forwards multicasts to
// members alone. A guest that asks gets no reports of other projects' guests, to which its question does not pass;
// those would no longer be found by neighbour discovery.
func TestAGuestSteersNoMulticast(t *testing.T) {
	port := table.PortName(rogue)
	l := newLAN(t, port, "cother", "cvictim")
	must(t, netlink.BridgeSetMcastSnoop(l.bridge, true))
	must(t, table.Replace(t.Context(), packetfilter.Rules{Ports: []packetfilter.Port{
		{Name: port, MAC: rogue, Own: own()},
	}}))
	sought := ipv6(mac(0xee), addr("fe80::ee"), addr("ff02::1:ff00:2"), 58, nd(135, victim6))
	copy(sought, []byte{0x33, 0x33, 0xff, 0, 0, 2})
	for range 20 {
		l.send(t, port, query(rogue, local6))
		if !l.passes(t, "cother", "cvictim", sought) {
			t.Fatal("a guest's question for members of multicast groups keeps others from being found")
		}
		time.Sleep(time.Millisecond)
	}
	must(t, table.Remove(t.Context()))
	for tries := 0; l.passes(t, "cother", "cvictim", sought); tries++ {
		if tries == 5000 {
			t.Fatal("this kernel takes no guest for a querier: the test shows nothing")
		}
		l.send(t, port, query(rogue, local6))
		time.Sleep(time.Millisecond)
	}
}

// query returns a general query of MLD, which wants its answers in a millisecond.
func query(from net.HardwareAddr, src netip.Addr) []byte {
	mld := make([]byte, 24)
	mld[0], mld[5] = 130, 1 // the type, and how long members may wait, in milliseconds
	sum := uint32(len(mld) + 58)
	add := func(b []byte) {
		for i := 0; i < len(b); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
	}
	add(src.AsSlice())
	add(all6.AsSlice())
	add(mld)
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(mld[2:], ^uint16(sum))
	frame := ipv6(from, src, all6, 0, append([]byte{58, 0, 5, 2, 0, 0, 1, 0}, mld...)) // with a router alert
	frame[14+7] = 1                                                                    // hop limit
	return frame
}
