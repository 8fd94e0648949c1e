package nft_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"croft/grid/ipam/nft"
)

// world has three machines as network namespaces: out, node, which forwards, and job.
//
//	out 192.0.2.2, 2001:db8:1::2
//	 |
//	node 192.0.2.1, 2001:db8:1::1, and at the other side 10.0.0.1, 2001:db8:2::1
//	 |
//	job 10.0.0.5 to 7 and 99, 2001:db8:2::5 to 7 and 99
//
// On node itself are 10.0.0.9 and 2001:db8:2::9, too. All neighbours are known beforehand, so packets keep their order.
type world struct{ id string }

// name returns the name of a machine's namespace.
func (w *world) name(machine string) string {
	return fmt.Sprintf("ct%d%s-%s", os.Getpid(), w.id, machine)
}

var worlds int

func newWorld(t testing.TB) *world {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("making network namespaces needs root")
	}
	for _, program := range []string{"nft", "ip"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed: scripts/install-deps test", program)
		}
	}
	worlds++
	w := &world{fmt.Sprint("-", worlds)}
	for _, machine := range []string{"out", "node", "job"} {
		if out, err := exec.Command("ip", "netns", "add", w.name(machine)).CombinedOutput(); err != nil {
			t.Skipf("this machine makes no network namespaces: %s", out)
		}
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", w.name(machine)).Run() })
	}
	w.ip(t, "node", `
link set lo up
link add eo address 02:00:00:00:00:01 type veth peer name e address 02:00:00:00:00:02 netns `+w.name("out")+`
link add ej address 02:00:00:00:00:03 type veth peer name e address 02:00:00:00:00:04 netns `+w.name("job")+`
addr add 192.0.2.1/24 dev eo
addr add 2001:db8:1::1/64 dev eo nodad
addr add 10.0.0.1/24 dev ej
addr add 2001:db8:2::1/64 dev ej nodad
addr add 10.0.0.9/32 dev lo
addr add 2001:db8:2::9/128 dev lo nodad
link set eo up
link set ej up
neigh replace 192.0.2.2 lladdr 02:00:00:00:00:02 dev eo
neigh replace 2001:db8:1::2 lladdr 02:00:00:00:00:02 dev eo`)
	w.ip(t, "out", `
link set e up
addr add 192.0.2.2/24 dev e
addr add 2001:db8:1::2/64 dev e nodad
route add default via 192.0.2.1
route add default via 2001:db8:1::1
neigh replace 192.0.2.1 lladdr 02:00:00:00:00:01 dev e
neigh replace 2001:db8:1::1 lladdr 02:00:00:00:00:01 dev e`)
	w.ip(t, "job", `
link set e up
neigh replace 10.0.0.1 lladdr 02:00:00:00:00:03 dev e
neigh replace 2001:db8:2::1 lladdr 02:00:00:00:00:03 dev e`)
	for _, last := range []string{"5", "6", "7", "99"} {
		w.ip(t, "job", "addr add 10.0.0."+last+"/24 dev e\naddr add 2001:db8:2::"+last+"/64 dev e nodad")
		w.ip(t, "node", "neigh replace 10.0.0."+last+" lladdr 02:00:00:00:00:04 dev ej\n"+
			"neigh replace 2001:db8:2::"+last+" lladdr 02:00:00:00:00:04 dev ej")
	}
	w.ip(t, "job", "route add default via 10.0.0.1\nroute add default via 2001:db8:2::1")
	w.in(t, "node", func() {
		for _, file := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
			if err := os.WriteFile("/proc/sys/net/"+file, []byte("1"), 0); err != nil {
				t.Fatal(err)
			}
		}
	})
	return w
}

// ip runs lines of ip commands on a machine.
func (w *world) ip(t testing.TB, machine, lines string) {
	t.Helper()
	cmd := exec.Command("ip", "-n", w.name(machine), "-batch", "-")
	cmd.Stdin = strings.NewReader(lines + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("ip on %s: %s", machine, out)
	}
}

// in runs a function on a machine: its sockets and the programs that it starts are in the machine's namespace.
func (w *world) in(t testing.TB, machine string, do func()) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	back, err := os.Open("/proc/thread-self/ns/net")
	must(t, err)
	defer back.Close()
	there, err := os.Open("/run/netns/" + w.name(machine))
	must(t, err)
	defer there.Close()
	must(t, unix.Setns(int(there.Fd()), unix.CLONE_NEWNET))
	defer func() { must(t, unix.Setns(int(back.Fd()), unix.CLONE_NEWNET)) }()
	do()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// load replaces the table of node.
func (w *world) load(t testing.TB, table nft.Table) {
	t.Helper()
	text := script(t, table)
	for _, flags := range [][]string{{"-c", "-f", "-"}, {"-f", "-"}} {
		cmd := exec.Command("ip", append([]string{"netns", "exec", w.name("node"), "nft"}, flags...)...)
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("nft %s: %v: %.2000s\n%.4000s", flags, err, out, text)
		}
	}
}

// packet is a packet that one machine sends to another.
type packet struct {
	from, to   string // machines
	src, dst   string
	proto      string
	port       uint16
	sourcePort uint16 // 0: any
}

func (p packet) String() string {
	return fmt.Sprintf("%s from %s (%s) to %s (%s) port %d", p.proto, p.src, p.from, p.dst, p.to, p.port)
}

func address(t testing.TB, text string, port uint16) (unix.Sockaddr, int) {
	t.Helper()
	a, err := netip.ParseAddr(text)
	must(t, err)
	if a.Is4() {
		return &unix.SockaddrInet4{Addr: a.As4(), Port: int(port)}, unix.AF_INET
	}
	return &unix.SockaddrInet6{Addr: a.As16(), Port: int(port)}, unix.AF_INET6
}

// send sends one packet, with the payload if its protocol is udp or icmp.
func (w *world) send(t testing.TB, p packet, payload string) {
	t.Helper()
	w.in(t, p.from, func() {
		kind, proto := unix.SOCK_DGRAM, 0
		to, fam := address(t, p.dst, p.port)
		switch p.proto {
		case nft.TCP:
			kind = unix.SOCK_STREAM | unix.SOCK_NONBLOCK
		case nft.ICMP:
			kind, proto = unix.SOCK_RAW, unix.IPPROTO_ICMP
			to, _ = address(t, p.dst, 0)
			if fam == unix.AF_INET6 {
				proto = unix.IPPROTO_ICMPV6
			}
		}
		fd, err := unix.Socket(fam, kind|unix.SOCK_CLOEXEC, proto)
		must(t, err)
		defer unix.Close(fd)
		from, _ := address(t, p.src, p.sourcePort)
		must(t, unix.Bind(fd, from))
		switch p.proto {
		case nft.TCP:
			if err = unix.Connect(fd, to); err == unix.EINPROGRESS {
				err = nil
			}
		case nft.ICMP:
			err = unix.Sendto(fd, echo(fam, payload), 0, to)
		default:
			err = unix.Sendto(fd, []byte(payload), 0, to)
		}
		if err != nil && err != unix.EPERM { // EPERM: the output chain drops the packet
			t.Fatalf("%v: %v", p, err)
		}
	})
}

// echo is an echo request. The kernel computes the checksum of IPv6's.
func echo(fam int, payload string) []byte {
	b := append([]byte{8, 0, 0, 0, 0, 1, 0, 1}, payload...)
	if fam == unix.AF_INET6 {
		b[0] = 128
		return b
	}
	if len(b)%2 == 1 {
		b = append(b, 0)
	}
	var sum uint32
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(b[2:], ^uint16(sum+sum>>16))
	return b
}

// listen opens a socket that receives copies of all packets that arrive at a machine.
func (w *world) listen(t testing.TB, machine string) int {
	t.Helper()
	fd := -1
	w.in(t, machine, func() {
		var err error
		fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL)))
		must(t, err)
		must(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 60}))
	})
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func htons(n uint16) uint16 { return n<<8 | n>>8 }

var sent int

// passes sends a packet to a machine that node forwards for, and reports whether it arrives. Another packet follows
// that always passes, so that a dropped one needs no time.
func (w *world) passes(t testing.TB, fd int, p packet) bool {
	t.Helper()
	sent++
	mark, end := fmt.Sprintf("packet %d.", sent), fmt.Sprintf("end %d.", sent)
	w.send(t, p, mark)
	last := packet{from: p.from, src: "192.0.2.2", dst: "10.0.0.99", proto: nft.UDP, port: 9}
	if p.from == "job" {
		last.src, last.dst = last.dst, last.src
	} else if p.from == "node" {
		last.src, last.dst = "192.0.2.1", "192.0.2.2"
	}
	w.send(t, last, end)
	passed := false
	b := make([]byte, 2048)
	for {
		n, from, err := unix.Recvfrom(fd, b, 0)
		if err != nil {
			t.Fatalf("%v: waiting for the packet after it: %v", p, err)
		}
		if link, ok := from.(*unix.SockaddrLinklayer); ok && link.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		switch got := b[:n]; {
		case bytes.Contains(got, []byte(end)):
			return passed
		case bytes.Contains(got, []byte(mark)) || p.proto == nft.TCP && opens(got, p):
			passed = true
		}
	}
}

// opens reports whether a packet is the first one of a TCP connection.
func opens(b []byte, p packet) bool {
	header, at, dst := 20, 9, 16
	if b[0]>>4 == 6 {
		header, at, dst = 40, 6, 24
	}
	if len(b) < header+20 || b[at] != unix.IPPROTO_TCP {
		return false
	}
	a, _ := netip.AddrFromSlice(b[dst:header])
	return a.String() == p.dst && binary.BigEndian.Uint16(b[header+2:]) == p.port && b[header+13]&0x12 == 0x02
}
