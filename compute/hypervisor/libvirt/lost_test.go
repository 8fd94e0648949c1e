package libvirt_test

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/hvtest"
	"croft/compute/hypervisor/libvirt"
	"croft/internal/testing/libvirttest"
)

const libvirtSocket = "/run/libvirt/libvirt-sock"

func owned(info os.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }

// proxy is between a driver and libvirtd, and simulates failures of libvirtd without affecting the one that
// others use.
type proxy struct {
	socket string

	mu     sync.Mutex
	listen net.Listener
	conns  map[net.Conn]bool
	frozen chan struct{} // nil, or open while nothing is forwarded
	held   chan struct{} // has an entry for each held request
	wg     sync.WaitGroup
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	libvirttest.Start(t)
	p := &proxy{socket: filepath.Join(t.TempDir(), "sock"), conns: map[net.Conn]bool{}, held: make(chan struct{}, 128)}
	p.up(t)
	t.Cleanup(func() { p.thaw(); p.down(); p.wg.Wait() })
	return p
}

func (p *proxy) uri() string { return "qemu+unix:///system?socket=" + p.socket }

// up accepts connections again.
func (p *proxy) up(t *testing.T) {
	l, err := net.Listen("unix", p.socket)
	must(t, err)
	p.mu.Lock()
	p.listen = l
	p.mu.Unlock()
	p.wg.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", libvirtSocket)
			if err != nil {
				_ = near.Close()
				continue
			}
			p.pass(near, far, p.held)
			p.pass(far, near, make(chan struct{}, 1)) // answers are not reported
		}
	})
}

// down ends all connections and accepts no new ones, like a dead libvirtd.
func (p *proxy) down() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.listen.Close()
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

// freeze forwards nothing until thaw, like a hanging libvirtd. The channel it returns reports each held
// request.
func (p *proxy) freeze() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = make(chan struct{})
	return p.held
}

func (p *proxy) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen != nil {
		close(p.frozen)
		p.frozen = nil
	}
}

// keepAlive is the length of libvirt's keep-alive packets.
const keepAlive = 28

func (p *proxy) pass(from, to net.Conn, held chan<- struct{}) {
	p.mu.Lock()
	p.conns[from] = true
	p.mu.Unlock()
	p.wg.Go(func() {
		defer to.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := from.Read(buf)
			p.mu.Lock()
			frozen := p.frozen
			p.mu.Unlock()
			if frozen != nil {
				if n > keepAlive {
					select {
					case held <- struct{}{}:
					default:
					}
				}
				<-frozen
			}
			if n > 0 {
				if _, err := to.Write(buf[:n]); err != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
}

func TestWatchOutlivesLibvirtd(t *testing.T) {
	p := newProxy(t)
	d := open(t, libvirt.Config{URI: p.uri(), StopGrace: time.Second})
	m := hvtest.Machine(t)
	removed(t, d, m.ID)
	must(t, d.Define(t.Context(), m))
	wakes := watch(t, d, m.ID)
	until(t, d, m.ID, wakes, "it was there", func(compute.Domain) bool { return true })

	p.down()
	libvirttest.Virsh(t, "start", "croft-"+string(m.ID)) // the driver receives no event
	p.up(t)
	until(t, d, m.ID, wakes, "the connection was there again",
		func(one compute.Domain) bool { return one.Power == compute.PowerOn })
	kill(t, "croft-"+string(m.ID))
	until(t, d, m.ID, wakes, "the domain died after that", func(one compute.Domain) bool { return one.Crashed })
}

func TestCallsEndAlthoughLibvirtHangs(t *testing.T) {
	p := newProxy(t)
	d := open(t, libvirt.Config{URI: p.uri(), CallTimeout: 200 * time.Millisecond})
	list := func() error {
		_, err := d.List(t.Context())
		return err
	}
	// The first call opens the connection, which may take longer on a busy machine.
	for err := list(); err != nil; err = list() {
		if !errors.Is(err, croft.Unavailable) {
			t.Fatal(err)
		}
	}
	p.freeze()
	var wg sync.WaitGroup
	for range 60 { // more than may be inside libvirt at once
		wg.Go(func() {
			if err := list(); !errors.Is(err, croft.Unavailable) ||
				!strings.Contains(err.Error(), "did not answer within") {
				t.Errorf("got %v", err)
			}
		})
	}
	wg.Wait()
	p.thaw()
	for err := list(); err != nil; err = list() {
		if !errors.Is(err, croft.Unavailable) {
			t.Fatal(err)
		}
	}
}

func TestNobodyAtTheSocket(t *testing.T) {
	d := open(t, libvirt.Config{URI: "qemu+unix:///system?socket=" + filepath.Join(t.TempDir(), "none")})
	_, err := d.List(t.Context())
	if !errors.Is(err, croft.Unavailable) || !strings.Contains(err.Error(), "start libvirtd") {
		t.Errorf("got %v", err)
	}
}

func TestClosedDriverIsUnavailable(t *testing.T) {
	libvirttest.Start(t)
	d := open(t, libvirt.Config{})
	_, err := d.List(t.Context())
	must(t, err)
	must(t, d.Close())
	must(t, d.Close())
	if _, err := d.List(t.Context()); !errors.Is(err, croft.Unavailable) {
		t.Errorf("got %v", err)
	}
}

// TestHostWithoutLibvirt runs a test of this binary again, in a mount namespace where the library is an empty
// file.
func TestHostWithoutLibvirt(t *testing.T) {
	if os.Getenv("CROFT_TEST_NO_LIBVIRT") != "" {
		d := open(t, libvirt.Config{})
		for range 2 {
			_, err := d.List(t.Context())
			if !errors.Is(err, croft.Unavailable) || !strings.Contains(err.Error(), "install libvirt-daemon-system") {
				t.Errorf("got %v", err)
			}
		}
		return
	}
	self, err := os.Executable()
	must(t, err)
	const script = `for lib in $(ldconfig -p | sed -n 's/.*=> \(.*libvirt\.so\.0\)$/\1/p'); do
		mount --bind /dev/null "$(readlink -f "$lib")" || exit 1
	done
	exec "$0" -test.run '^TestHostWithoutLibvirt$'`
	cmd := exec.Command("unshare", "--mount", "sh", "-c", script, self)
	cmd.Env = append(os.Environ(), "CROFT_TEST_NO_LIBVIRT=1", "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}
