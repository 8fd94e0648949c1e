package libvirt_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/hvtest"
	"croft/compute/hypervisor/libvirt"
	"croft/internal/testing/libvirttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestContract(t *testing.T) {
	libvirttest.Start(t)
	hvtest.Suite{
		New: func(t *testing.T) compute.Hypervisor {
			return open(t, libvirt.Config{StopGrace: time.Second, Emulated: []croft.Arch{croft.ArchAArch64}})
		},
		Machine: hvtest.Machine,
		Kill: func(t *testing.T, _ compute.Hypervisor, id croft.InstanceID) {
			kill(t, "croft-"+string(id))
		},
		Pause: func(t *testing.T, _ compute.Hypervisor, id croft.InstanceID) {
			libvirttest.Virsh(t, "suspend", "croft-"+string(id))
		},
		Halt:    func(*testing.T, compute.Hypervisor, croft.InstanceID) {}, // the guest halts on its own
		Foreign: foreign,
		Late: func(t *testing.T) hvtest.Late {
			p := newProxy(t)
			return hvtest.Late{Hypervisor: open(t, libvirt.Config{URI: p.uri(), StopGrace: time.Second}),
				Hold: p.freeze, Release: p.thaw}
		},
	}.Run(t)
}

// open returns a driver that uses emulation, so that tests are the same everywhere.
func open(t *testing.T, c libvirt.Config) *libvirt.Driver {
	t.Helper()
	c.VirtType = libvirt.VirtQEMU
	d, err := libvirt.New(c)
	must(t, err)
	t.Cleanup(func() { must(t, d.Close()) })
	return d
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// kill ends the QEMU process of a domain.
func kill(t *testing.T, domain string) {
	t.Helper()
	b, err := os.ReadFile("/run/libvirt/qemu/" + domain + ".pid")
	must(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	must(t, err)
	must(t, syscall.Kill(pid, syscall.SIGKILL))
}

// foreign defines a domain with a name of croft's and no mark.
func foreign(t *testing.T) croft.InstanceID {
	t.Helper()
	id := croft.NewInstanceID()
	define(t, fmt.Sprintf(`<domain type="qemu"><name>croft-%s</name><uuid>%s</uuid><memory unit="MiB">32</memory>
		<os><type arch="x86_64">hvm</type></os></domain>`, id, id), string(id))
	return id
}

// define defines a domain with virsh and removes it at the end of the test.
func define(t *testing.T, xml, uuid string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "domain.xml")
	must(t, os.WriteFile(path, []byte(xml), 0o600))
	libvirttest.Virsh(t, "define", path)
	t.Cleanup(func() { libvirttest.Virsh(t, "undefine", uuid) })
}
