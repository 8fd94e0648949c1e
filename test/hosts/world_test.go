package hosts

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"croft/internal/testing/libvirttest"
)

// patience bounds every wait of a test; it is not a performance requirement.
const patience = 5 * time.Minute

// token is the administrator's token at Placement.
const token = "three-hosts"

// A world has three hosts on one switch, and on the machine itself an etcd cluster of three members, Placement, and the
// users of schedule.
type world struct {
	t         *testing.T // of the step in progress
	root      *testing.T // for everything that outlives a step
	dir       string
	bridge    string
	subnet    netip.Prefix
	members   []*member
	etcd      string   // endpoints, separated by commas
	placement string   // host:port
	access    []string // environment variables by which users find both
	operator  string   // directory of certificates for etcd; empty: not needed
	hosts     []*host
	shared    string // directory of the shared storage nfs1 of all hosts; empty: none
}

// newWorld starts everything and returns when all hosts take requests.
func newWorld(t *testing.T) *world {
	t.Helper()
	libvirttest.Start(t) // it also removes causes of delays in the hosts' libvirt
	w := newCenter(t)
	for i, name := range []string{"a", "b", "c"} {
		w.hosts = append(w.hosts, w.newHost(name, 11+i))
	}
	for _, h := range w.hosts {
		h.start()
	}
	for _, h := range w.hosts {
		h.waitUntilReady()
	}
	return w
}

// newCenter starts the servers that the hosts share.
func newCenter(t *testing.T) *world {
	t.Helper()
	w := newSwitch(t)
	w.startMembers()
	w.find(w.endpoints(), w.address(1, 8778))
	placement := w.croft("placement", "--listen", w.placement, "--etcd", w.etcd)
	placement.Env = append(placement.Env, "CROFT_PLACEMENT_TOKEN="+token)
	w.begin("placement", placement).waitUntilReady("http://" + w.placement + "/readyz")
	return w
}

// newSwitch returns a world with an empty switch.
func newSwitch(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, root: t, dir: libvirttest.Dir(t), bridge: fmt.Sprintf("ch%d", os.Getpid())}
	w.layBridge()
	return w
}

// find sets the addresses of etcd and Placement.
func (w *world) find(etcd, placement string) {
	w.etcd, w.placement = etcd, placement
	w.access = []string{"CROFT_ETCD_ENDPOINTS=" + etcd, "CROFT_PLACEMENT_ENDPOINT=http://" + placement,
		"CROFT_PLACEMENT_TOKEN=" + token}
}

// layBridge creates the switch that connects the hosts' links.
func (w *world) layBridge() {
	w.t.Helper()
	sweep()
	for n := range 256 {
		w.subnet = netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 214, byte(n), 0}), 24)
		if !subnetUsed(w.t, w.subnet) {
			break
		}
	}
	must(w.t, "ip", "link", "add", w.bridge, "type", "bridge")
	w.t.Cleanup(func() { _ = exec.Command("ip", "link", "del", w.bridge).Run() })
	must(w.t, "ip", "address", "add", w.at(1)+"/24", "dev", w.bridge)
	must(w.t, "ip", "link", "set", w.bridge, "up")
}

// sweep removes the switches of killed runs.
func sweep() {
	links, _ := net.Interfaces()
	for _, l := range links {
		var pid int
		if n, _ := fmt.Sscanf(l.Name, "ch%d", &pid); n == 1 && l.Name == fmt.Sprintf("ch%d", pid) &&
			syscall.Kill(pid, 0) == syscall.ESRCH {
			_ = exec.Command("ip", "link", "del", l.Name).Run()
		}
	}
}

func subnetUsed(t *testing.T, subnet netip.Prefix) bool {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Overlaps(subnet) {
			return true
		}
	}
	return false
}

// at returns the n-th address of the switch's subnet; the machine itself has the first.
func (w *world) at(n int) string {
	a := w.subnet.Addr().As4()
	a[3] = byte(n)
	return netip.AddrFrom4(a).String()
}

func (w *world) address(n, port int) string { return fmt.Sprintf("%s:%d", w.at(n), port) }

// croft returns a croft command run without settings.
func (w *world) croft(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(binaries, "croft"), args...)
	cmd.Env, cmd.Dir = append(plainEnvironment(), "HOME="+w.dir), w.dir
	return cmd
}

// A result is a command's output and exit code.
type result struct {
	stdout, stderr string
	exit           int
}

func (r result) String() string {
	return fmt.Sprintf("exit code %d\nstdout: %s\nstderr: %s", r.exit, r.stdout, r.stderr)
}

// user runs croft or schedule as a user of the cloud. The race detector would delay the command's exit by a second.
func (w *world) user(name string, args ...string) result {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(ctx, filepath.Join(binaries, name), args...)
	cmd.Env = append(append(plainEnvironment(), "HOME="+w.dir, "GORACE=atexit_sleep_ms=0"), w.access...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = w.dir, &out, &errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() < 0) {
		w.t.Errorf("%s %q: %v\n%s", name, args, err, errs.String())
	}
	return result{out.String(), errs.String(), cmd.ProcessState.ExitCode()}
}

func (w *world) schedule(args ...string) result {
	w.t.Helper()
	return w.user("schedule", args...)
}

// must is schedule for commands that must succeed; it returns stdout without its newline.
func (w *world) must(args ...string) string {
	w.t.Helper()
	r := w.schedule(args...)
	if r.exit != 0 {
		w.t.Fatalf("schedule %q: %v", args, r)
	}
	return strings.TrimSpace(r.stdout)
}

// request requests a guest, on h unless that is nil, with more flags.
func (w *world) request(name string, h *host, flags ...string) result {
	w.t.Helper()
	query := "resources=VCPU:1,MEMORY_MB:96,DISK_GB:1"
	if h != nil {
		query += "&in_tree=" + h.id()
	}
	return w.schedule(append([]string{query, guestImage, "--name", name}, flags...)...)
}

// A status is the part of schedule -o json that the tests read.
type status struct {
	ID, Name, State, Error string
	HostID                 string `json:"host_id"`
}

func (w *world) show(name string) status {
	w.t.Helper()
	var st status
	if text := w.must("show", name, "-o", "json"); json.Unmarshal([]byte(text), &st) != nil {
		w.t.Fatalf("schedule show -o json printed no JSON:\n%s", text)
	}
	return st
}

// gone waits until no record of an instance is left.
func (w *world) gone(name string) {
	w.t.Helper()
	eventually(w.t, name+" is gone", func(context.Context) error {
		if r := w.schedule("show", name); r.exit != 3 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
}

// eventually polls until ask returns no error; after patience it fails the test with the last error. It asks less and
// less often, since a command costs as much of the processor as a guest that boots meanwhile.
func eventually(t *testing.T, what string, ask func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for pause := 50 * time.Millisecond; ; pause = min(pause*3/2, time.Second) {
		err := ask(ctx)
		if err == nil {
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			t.Fatalf("%s: waited %v in vain: %v", what, patience, err)
		}
	}
}
