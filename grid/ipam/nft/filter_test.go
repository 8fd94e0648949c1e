package nft_test

import (
	"fmt"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"croft/grid/ipam/nft"
)

func rulesOf(t *testing.T) nft.Table {
	return nft.Table{Cluster: cluster, Managed: set(t,
		"10.0.0.5 | 10.0.0.6 | 10.0.0.9 | 2001:db8:2::5 | 2001:db8:2::9"),
		SSH: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:22")},
		Rules: []nft.Rule{
			{Name: "web", From: set(t, "192.0.2.0/24 | 2001:db8:1::/64"), To: set(t,
				"10.0.0.5 | 2001:db8:2::5 | 10.0.0.9"),
				Protocol: nft.TCP, Ports: []nft.Ports{{First: 80, Last: 80}, {First: 8000, Last: 8010}}, Log: true},
			{Name: "dns", From: set(t, "10.0.0.0/24 | 2001:db8:2::5"), To: set(t, "all4 | all6"), Protocol: nft.UDP,
				Ports: []nft.Ports{{First: 53, Last: 53}}},
			{Name: "ping", From: set(t, "all4 | 2001:db8:1::/64"), To: set(t, "10.0.0.5 | 2001:db8:2::5"),
				Protocol: nft.ICMP},
			{Name: "all", From: set(t, "192.0.2.2"), To: set(t, "10.0.0.6"), Protocol: nft.Any},
		}}
}

// TestPacketsPassAsRulesSay sends real packets through a machine with the table.
func TestPacketsPassAsRulesSay(t *testing.T) {
	w := newWorld(t)
	seen := map[string]int{"job": w.listen(t, "job"), "out": w.listen(t, "out")}
	for _, c := range []struct {
		name     string
		src, dst string
		proto    string
		port     uint16
		want     bool
	}{
		{"an allowed port", "192.0.2.2", "10.0.0.5", nft.TCP, 80, true},
		{"the end of an allowed range", "192.0.2.2", "10.0.0.5", nft.TCP, 8010, true},
		{"a port beyond it", "192.0.2.2", "10.0.0.5", nft.TCP, 8011, false},
		{"the port of another protocol", "192.0.2.2", "10.0.0.5", nft.UDP, 80, false},
		{"echo", "192.0.2.2", "10.0.0.5", nft.ICMP, 0, true},
		{"an allowed port of IPv6", "2001:db8:1::2", "2001:db8:2::5", nft.TCP, 80, true},
		{"another port of IPv6", "2001:db8:1::2", "2001:db8:2::5", nft.TCP, 81, false},
		{"echo of IPv6", "2001:db8:1::2", "2001:db8:2::5", nft.ICMP, 0, true},
		{"every port", "192.0.2.2", "10.0.0.6", nft.UDP, 9999, true},
		{"every protocol", "192.0.2.2", "10.0.0.6", nft.ICMP, 0, true},
		{"what is not managed", "192.0.2.2", "10.0.0.7", nft.UDP, 9999, true},
		{"what is not managed, of IPv6", "2001:db8:1::2", "2001:db8:2::6", nft.TCP, 1, true},
		{"an allowed way out", "10.0.0.5", "192.0.2.2", nft.UDP, 53, true},
		{"an allowed way out of IPv6", "2001:db8:2::5", "2001:db8:1::2", nft.UDP, 53, true},
		{"another way out", "10.0.0.5", "192.0.2.2", nft.UDP, 54, false},
		{"another way out of IPv6", "2001:db8:2::5", "2001:db8:1::2", nft.TCP, 53, false},
		{"echo that no rule allows", "10.0.0.5", "192.0.2.2", nft.ICMP, 0, false},
		{"echo of IPv6 that no rule allows", "2001:db8:2::5", "2001:db8:1::2", nft.ICMP, 0, false},
		{"a way out from what is not managed", "10.0.0.7", "192.0.2.2", nft.TCP, 54, true},
	} {
		p := packet{from: "out", to: "job", src: c.src, dst: c.dst, proto: c.proto, port: c.port}
		if strings.HasPrefix(c.src, "10.") || strings.HasPrefix(c.src, "2001:db8:2") {
			p.from, p.to = "job", "out"
		}
		w.load(t, nft.Table{Cluster: cluster})
		if !w.passes(t, seen[p.to], p) {
			t.Fatalf("without rules: %s: %v does not pass", c.name, p)
		}
		w.load(t, rulesOf(t))
		if got := w.passes(t, seen[p.to], p); got != c.want {
			t.Errorf("%s: %v passes: %v", c.name, p, got)
		}
	}
}

// TestConnectionsWorkAndEndWithTheirRule: replies pass, and removing a rule ends the connections that it allowed.
func TestConnectionsWorkAndEndWithTheirRule(t *testing.T) {
	w := newWorld(t)
	table := rulesOf(t)
	w.load(t, table)
	job, out := w.listen(t, "job"), w.listen(t, "out")
	there := packet{from: "job", to: "out", src: "10.0.0.5", dst: "192.0.2.2", proto: nft.UDP, port: 53,
		sourcePort: 4000}
	back := packet{from: "out", to: "job", src: "192.0.2.2", dst: "10.0.0.5", proto: nft.UDP, port: 4000,
		sourcePort: 53}
	if w.passes(t, job, back) {
		t.Error("an answer passes to which nobody asked")
	}
	if !w.passes(t, out, there) || !w.passes(t, job, back) {
		t.Error("a question and its answer do not pass")
	}
	table.Rules = table.Rules[:1]
	w.load(t, table)
	if w.passes(t, out, there) {
		t.Error("the rule is gone, and its connection goes on")
	}
}

// TestTheMachineItself: packets from and to the machine's own managed addresses are filtered. Packets of ssh to the
// machine, and packets from an address to itself, are not.
func TestTheMachineItself(t *testing.T) {
	w := newWorld(t)
	table := rulesOf(t)
	try := func(p packet) bool { return w.arrives(t, p) }
	for _, c := range []struct {
		name string
		p    packet
		want bool
	}{
		{"an allowed port", packet{from: "out", src: "192.0.2.2", dst: "10.0.0.9", port: 80}, true},
		{"another port", packet{from: "out", src: "192.0.2.2", dst: "10.0.0.9", port: 81}, false},
		{"an IPv6 port that no rule allows", packet{from: "out", src: "2001:db8:1::2", dst: "2001:db8:2::9", port: 80},
			false},
		{"ssh to the machine", packet{from: "out", src: "192.0.2.2", dst: "192.0.2.1", port: 22}, true},
		{"ssh to the machine from a managed address", packet{from: "job", src: "10.0.0.5", dst: "192.0.2.1", port: 22},
			true},
		{"anything else there from a managed address", packet{from: "job", src: "10.0.0.5", dst: "192.0.2.1", port: 23},
			false},
		{"to itself", packet{from: "node", src: "10.0.0.9", dst: "10.0.0.9", port: 81}, true},
		{"to itself by IPv6", packet{from: "node", src: "2001:db8:2::9", dst: "2001:db8:2::9", port: 81}, true},
		{"from elsewhere on the machine", packet{from: "node", src: "192.0.2.1", dst: "10.0.0.9", port: 81}, false},
		{"allowed from elsewhere on the machine", packet{from: "node", src: "192.0.2.1", dst: "10.0.0.9", port: 80},
			true},
	} {
		c.p.to, c.p.proto = "node", nft.TCP
		w.load(t, nft.Table{Cluster: cluster})
		if !try(c.p) {
			t.Fatalf("without rules: %s does not pass", c.name)
		}
		w.load(t, table)
		if got := try(c.p); got != c.want {
			t.Errorf("%s passes: %v", c.name, got)
		}
	}
	// If only a name of the machine is known, ssh passes at all of its addresses. No connection may start from its
	// port.
	table.SSH, table.SSHPort = nil, 22
	w.load(t, table)
	if !try(packet{from: "job", to: "node", src: "10.0.0.5", dst: "192.0.2.1", port: 22, proto: nft.TCP}) {
		t.Error("ssh does not pass")
	}
	out := w.listen(t, "out")
	if w.passes(t, out, packet{from: "node", to: "out", src: "10.0.0.9", dst: "192.0.2.2", proto: nft.TCP, port: 7,
		sourcePort: 22}) {
		t.Error("a connection from the port of ssh passes")
	}
}

// arrives connects over TCP to a listener on node and reports whether that sees the connection begin: a connection
// whose first packet is dropped is told from one that is slow by the counters of the table.
func (w *world) arrives(t *testing.T, p packet) bool {
	t.Helper()
	var server, client int
	to, fam := address(t, p.dst, p.port)
	from, _ := address(t, p.src, 0)
	socket := func(machine string, at unix.Sockaddr) (fd int) {
		w.in(t, machine, func() {
			var err error
			fd, err = unix.Socket(fam, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			must(t, err)
			must(t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
			must(t, unix.Bind(fd, at))
		})
		return fd
	}
	server = socket(p.to, to)
	defer unix.Close(server)
	must(t, unix.Listen(server, 1))
	client = socket(p.from, from)
	defer unix.Close(client)
	before := w.dropped(t)
	if err := unix.Connect(client, to); err != nil && err != unix.EINPROGRESS {
		return false // the output chain refuses it
	}
	for {
		poll := []unix.PollFd{{Fd: int32(client), Events: unix.POLLOUT}}
		if n, _ := unix.Poll(poll, 20); n > 0 && poll[0].Revents&unix.POLLOUT != 0 {
			return poll[0].Revents&unix.POLLERR == 0
		}
		if w.dropped(t) != before {
			return false
		}
	}
}

// dropped returns the counter of packets that the table dropped.
func (w *world) dropped(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("ip", "netns", "exec", w.name("node"), "nft", "list", "ruleset").CombinedOutput()
	must(t, err)
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "counter packets") && strings.Contains(line, "drop") {
			return line
		}
	}
	return ""
}

func TestLargeSetsAreLoaded(t *testing.T) {
	w := newWorld(t)
	job := w.listen(t, "job")
	table := nft.Table{Cluster: cluster, Managed: set(t, "10.0.0.5"), Rules: []nft.Rule{
		{Name: "many", From: many(t, 10_000), To: set(t, "10.0.0.5"), Protocol: nft.UDP}}}
	p := packet{from: "out", to: "job", src: "192.0.2.2", dst: "10.0.0.5", proto: nft.UDP, port: 1}
	w.load(t, table)
	if w.passes(t, job, p) {
		t.Error("it passes, and is in no prefix")
	}
	from := fmt.Sprintf("11.%d.%d.1", 9_999>>8, 9_999&255)
	w.ip(t, "out", "addr add "+from+"/32 dev e")
	w.ip(t, "node", "route add "+from+"/32 via 192.0.2.2")
	p.src = from
	if !w.passes(t, job, p) {
		t.Errorf("it is in the last of 10,000 prefixes, and does not pass")
	}
}
