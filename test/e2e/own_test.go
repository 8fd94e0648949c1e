package e2e

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"croft/internal/testing/libvirttest"
)

// Names of everything that a run creates outside its process contain its process ID, so that a later run can remove
// what a killed run left behind.
var (
	ownedDir     = regexp.MustCompile(`^croft-e2e-(\d+)-`)
	ownedNetwork = regexp.MustCompile(`^ce(\d+)n\d+$`)
)

// ownPrefix is the prefix of this run's directories.
func ownPrefix() string { return fmt.Sprintf("croft-e2e-%d-", os.Getpid()) }

// stateDir returns a directory that libvirt's QEMU can enter, unlike TempDir. It is removed with the test.
func stateDir(t *testing.T) string {
	t.Helper()
	dir := newStateDir(t)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// newStateDir is stateDir for a directory that outlives the test.
func newStateDir(t *testing.T) string {
	t.Helper()
	sweep()
	dir, err := os.MkdirTemp("", ownPrefix()+"state-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// newNetwork creates a libvirt network, removed with the test. Its name is also the bridge's.
func newNetwork(t *testing.T) string {
	t.Helper()
	name := startNetwork(t)
	t.Cleanup(func() { removeNetwork(name) })
	return name
}

// startNetwork is newNetwork for a network that outlives the test.
func startNetwork(t *testing.T) string {
	t.Helper()
	libvirttest.Start(t)
	file := filepath.Join(t.TempDir(), "network.xml")
	var err error
	for n := range 256 {
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 213, byte(n), 0}), 24)
		if subnetUsed(t, subnet) {
			continue
		}
		name := fmt.Sprintf("ce%dn%d", os.Getpid(), n)
		if err := os.WriteFile(file, []byte(networkXML(name, n)), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err = virsh("net-create", file); err == nil { // else another run used this number first
			return name
		}
	}
	t.Fatalf("no network could be made, at last: %v", err)
	return ""
}

// networkXML: without no-ping, dnsmasq probes for three seconds before each new lease.
func networkXML(name string, n int) string {
	return fmt.Sprintf(`<network xmlns:dnsmasq="http://libvirt.org/schemas/network/dnsmasq/1.0">
<name>%[1]s</name><bridge name="%[1]s" stp="off" delay="0"/><forward mode="nat"/>
<ip address="10.213.%[2]d.1" prefix="24"><dhcp><range start="10.213.%[2]d.2" end="10.213.%[2]d.250"/></dhcp></ip>
<dnsmasq:options><dnsmasq:option value="no-ping"/></dnsmasq:options></network>`, name, n)
}

func subnetUsed(t *testing.T, subnet netip.Prefix) bool {
	t.Helper()
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(addrs, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && p.Overlaps(subnet)
	})
}

func removeNetwork(name string) {
	_, _ = virsh("net-destroy", name)
	for _, left := range []string{".status", ".macs"} {
		_ = os.Remove(filepath.Join("/var/lib/libvirt/dnsmasq", name+left))
	}
}

// removeDomains removes the domains that use a file below dir, in any state that a failed test left them in.
func removeDomains(dir string) {
	names, _ := virsh("list", "--all", "--name")
	for _, name := range strings.Fields(names) {
		if xml, _ := virsh("dumpxml", name); strings.HasPrefix(name, "croft-") && strings.Contains(xml, dir+"/") {
			_, _ = virsh("destroy", name)
			_, _ = virsh("undefine", name)
		}
	}
}

// sweep removes what killed runs left. Errors are ignored: another run may be sweeping too.
var sweep = sync.OnceFunc(func() {
	dirs, _ := os.ReadDir(os.TempDir())
	for _, d := range dirs {
		if dead(ownedDir, d.Name()) {
			dir := filepath.Join(os.TempDir(), d.Name())
			removeDomains(dir)
			_ = os.RemoveAll(dir)
		}
	}
	networks, _ := virsh("net-list", "--name")
	for _, name := range strings.Fields(networks) {
		if dead(ownedNetwork, name) {
			removeNetwork(name)
		}
	}
})

// dead reports whether name belongs to a run whose process is gone.
func dead(pattern *regexp.Regexp, name string) bool {
	m := pattern.FindStringSubmatch(name)
	if m == nil {
		return false
	}
	pid, err := strconv.Atoi(m[1])
	return err == nil && syscall.Kill(pid, 0) == syscall.ESRCH
}

func virsh(args ...string) (string, error) {
	out, err := exec.Command("virsh", append([]string{"--quiet", "--connect", libvirttest.URI},
		args...)...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("virsh %v: %w: %s", args, err, out)
	}
	return string(out), nil
}
