package libvirt_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/hvtest"
	"croft/compute/hypervisor/libvirt"
	"croft/compute/hypervisor/libvirt/packetfilter"
	"croft/internal/testing/libvirttest"
	"croft/internal/testing/patient"
	"croft/mdserver"
)

// guest is a machine with the small guest on an overlay, on the default network.
func guest(t *testing.T) compute.Machine {
	t.Helper()
	base := libvirttest.Guest(t)
	m := hvtest.Machine(t)
	overlay := filepath.Join(filepath.Dir(m.Disk[0].Path), "overlay")
	out, err := exec.Command("qemu-img", "create", "-q", "-f", "qcow2", "-F", "qcow2", "-b", base, overlay,
		"1G").CombinedOutput()
	if err != nil {
		t.Fatalf("qemu-img: %v: %s", err, out)
	}
	must(t, os.Chmod(overlay, 0o600))
	m.Disk = []compute.Layer{{Path: overlay, Format: "qcow2"}, {Path: base, Format: "qcow2", Shared: true}}
	m.MemoryMiB = 256
	m.NICs = []compute.NIC{{MAC: m.ID.MAC(0).String(), Network: libvirt.DefaultNetwork}}
	return m
}

// unreadable fails the test if a file is world-readable.
func unreadable(t *testing.T, path string) {
	t.Helper()
	const nobody = 65534
	cmd := exec.Command("head", "-c1", path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "Permission denied") {
		t.Errorf("any user reads %s: %v %s", path, err, out)
	}
}

// removed removes a machine at the end of the test.
func removed(t *testing.T, d *libvirt.Driver, id croft.InstanceID) {
	t.Cleanup(func() { must(t, d.Remove(context.WithoutCancel(t.Context()), id)) })
}

// watch returns the channel with the wake-ups of one instance.
func watch(t *testing.T, d *libvirt.Driver, id croft.InstanceID) <-chan struct{} {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	wakes := make(chan struct{}, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = d.Watch(ctx, func(woken croft.InstanceID) {
			if woken != id {
				return
			}
			select {
			case wakes <- struct{}{}:
			default:
			}
		})
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return wakes
}

// until waits for wake-ups until the domain is as wanted.
func until(t *testing.T, d *libvirt.Driver, id croft.InstanceID, wakes <-chan struct{}, what string,
	ok func(compute.Domain) bool) compute.Domain {
	t.Helper()
	patience := time.NewTimer(2 * time.Minute)
	defer patience.Stop()
	for {
		select {
		case <-wakes:
		case <-patience.C:
			t.Fatalf("no wake when %s", what)
		}
		one, err := d.Get(t.Context(), id)
		if croft.KindOf(err) == croft.Unavailable {
			continue
		}
		must(t, err)
		if ok(one) {
			return one
		}
	}
}

func hasAddress(d compute.Domain) bool { return len(d.Addresses) > 0 }

func TestGuestHasItsAddressFromBootToRemoval(t *testing.T) {
	libvirttest.Start(t)
	d := open(t, libvirt.Config{StopGrace: time.Minute})
	m := guest(t)
	removed(t, d, m.ID)
	wakes := watch(t, d, m.ID)
	must(t, d.Define(t.Context(), m))
	must(t, d.Start(t.Context(), m.ID))
	first := until(t, d, m.ID, wakes, "it got its address", hasAddress).Addresses
	owner, err := d.Owner(t.Context(), first[0])
	if err != nil || owner != m.ID {
		t.Errorf("the owner of %s is %q, %v", first[0], owner, err)
	}
	if info, err := os.Stat(m.Disk[1].Path); err != nil || owned(info) != uint32(os.Getuid()) {
		t.Errorf("the shared image went over to user %d, %v", owned(info), err)
	}

	must(t, d.Stop(t.Context(), m.ID))
	if got := libvirttest.Virsh(t, "domstate", "--reason", string(m.ID)); !strings.Contains(got, "(shutdown)") {
		t.Errorf("it did not power off by itself: %s", got)
	}
	if owner, err := d.Owner(t.Context(), first[0]); croft.KindOf(err) != croft.NotFound {
		t.Errorf("off, %s still has an owner: %q, %v", first[0], owner, err)
	}

	must(t, d.Start(t.Context(), m.ID))
	second := until(t, d, m.ID, wakes, "it got its address again", hasAddress).Addresses
	if !slices.Equal(first, second) {
		t.Errorf("it had %v, and after a stop %v", first, second)
	}
	must(t, d.Remove(t.Context(), m.ID))
	mac := m.NICs[0].MAC
	leaseGone(t, mac)
	if text := libvirttest.Virsh(t, "net-dumpxml", "--inactive", "default"); strings.Contains(text, mac) {
		t.Errorf("the address is still reserved:\n%s", text)
	}
}

// TestGuestIsFilteredFromItsFirstPacket checks that the packet filter exists before the guest, returns after a flush,
// and is removed with the last guest.
func TestGuestIsFilteredFromItsFirstPacket(t *testing.T) {
	libvirttest.Start(t)
	m := hvtest.Machine(t)
	m.Partition = croft.PartitionID(croft.NewInstanceID())
	m.NICs = []compute.NIC{{MAC: m.ID.MAC(0).String(), Network: libvirt.DefaultNetwork}}
	d := open(t, libvirt.Config{StopGrace: time.Millisecond, Partition: m.Partition})
	removed(t, d, m.ID)
	table := packetfilter.TableOf(m.Partition)
	port := table.PortName(m.ID.MAC(0))
	rules := func() string {
		out, _ := exec.Command("nft", "list", "table", "bridge", table.Name).CombinedOutput()
		return string(out)
	}
	must(t, d.Define(t.Context(), m))
	must(t, d.Start(t.Context(), m.ID))
	one, err := d.Get(t.Context(), m.ID)
	must(t, err)
	want := fmt.Sprintf("%q . %s", port, one.Reserved[0])
	if got := rules(); !strings.Contains(got, want) || !strings.Contains(got, m.NICs[0].MAC) {
		t.Errorf("the rules have no %s:\n%s", want, got)
	}
	ports, err := d.Ports(t.Context(), m.ID)
	if err != nil || ports[m.NICs[0].MAC] != port {
		t.Errorf("its ports are %v, %v; want %s", ports, err, port)
	}
	if _, err := net.InterfaceByName(port); err != nil {
		t.Error(err)
	}

	out, err := exec.Command("nft", "delete", "table", "bridge", table.Name).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	watch(t, d, m.ID) // as a starting agent does
	for patience := time.Now().Add(time.Minute); !strings.Contains(rules(), want); {
		if time.Now().After(patience) {
			t.Fatalf("the rules do not come back:\n%s", rules())
		}
		time.Sleep(10 * time.Millisecond)
	}
	must(t, d.Remove(t.Context(), m.ID))
	if got := rules(); !strings.Contains(got, "No such file") {
		t.Errorf("the last guest is gone, and its rules are not:\n%s", got)
	}
}

// TestAnAddressIsReservedWithoutAStart checks that a defined and stopped guest, or one whose start was interrupted,
// gets its reservation and its name once an agent watches. Both are mended, and vanish with the guest.
func TestAnAddressIsReservedWithoutAStart(t *testing.T) {
	libvirttest.Start(t)
	m := hvtest.Machine(t)
	m.Partition = croft.PartitionID(croft.NewInstanceID())
	m.NICs = []compute.NIC{{MAC: m.ID.MAC(0).String(), Network: libvirt.DefaultNetwork}}
	m.Ordered = compute.Ordered{Generation: 1, Project: croft.Project("p" + string(m.ID[:8])), Name: "web"}
	full := "web.p" + string(m.ID[:8]) + ".croft"
	d := open(t, libvirt.Config{StopGrace: time.Millisecond, Partition: m.Partition})
	removed(t, d, m.ID)
	must(t, d.Define(t.Context(), m))
	one, err := d.Get(t.Context(), m.ID)
	must(t, err)
	watch(t, d, m.ID)
	reserved := fmt.Sprintf("<host mac='%s' name='vm-%s' ip='%s'/>", m.NICs[0].MAC,
		strings.ReplaceAll(m.NICs[0].MAC, ":", ""), one.Reserved[0])
	soon := func(what string, is func(text string) bool) {
		t.Helper()
		patient.Until(t, what, func() bool { return is(libvirttest.Virsh(t, "net-dumpxml", "default")) })
	}
	both := func(text string) bool { return strings.Contains(text, reserved) && strings.Contains(text, full) }
	neither := func(text string) bool { return !strings.Contains(text, m.NICs[0].MAC) && !strings.Contains(text, full) }
	soon("its address is reserved, with its name", both)

	// An older version of croft, or somebody else, has changed both.
	libvirttest.Virsh(t, "net-update", "default", "modify", "ip-dhcp-host",
		fmt.Sprintf("<host mac='%s' ip='%s'/>", m.NICs[0].MAC, one.Reserved[0]), "--live", "--config")
	libvirttest.Virsh(t, "net-update", "default", "delete", "dns-host", fmt.Sprintf("<host ip='%s'/>", one.Reserved[0]),
		"--live", "--config")
	soon("both are mended", both)
	must(t, d.Remove(t.Context(), m.ID))
	soon("both are gone", neither)

	// A domain that is removed past croft keeps no name.
	must(t, d.Define(t.Context(), m))
	soon("it has both again", both)
	libvirttest.Virsh(t, "undefine", string(m.ID))
	soon("its name is gone", func(text string) bool { return !strings.Contains(text, full) })
	must(t, d.Remove(t.Context(), m.ID))
	soon("both are gone", neither)
}

// TestAGuestThatCannotBeFilteredDoesNotStart checks that no guest runs unfiltered if nft does nothing.
func TestAGuestThatCannotBeFilteredDoesNotStart(t *testing.T) {
	libvirttest.Start(t)
	d := open(t, libvirt.Config{StopGrace: time.Millisecond})
	m := hvtest.Machine(t)
	m.NICs = []compute.NIC{{MAC: m.ID.MAC(0).String(), Network: libvirt.DefaultNetwork}}
	removed(t, d, m.ID)
	must(t, d.Define(t.Context(), m))
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "nft"), []byte("#!/bin/sh\necho Error: no such family >&2\nexit 1\n"),
		0o755))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	if err := d.Start(t.Context(), m.ID); croft.KindOf(err) != croft.Unavailable ||
		!strings.Contains(err.Error(), "no such family") {
		t.Errorf("it starts: %v", err)
	}
	if one, err := d.Get(t.Context(), m.ID); err != nil || one.Power != compute.PowerOff {
		t.Errorf("it is %v, %v", one.Power, err)
	}
}

// TestABridgeThatIsNotThere checks that the error names the bridge.
func TestABridgeThatIsNotThere(t *testing.T) {
	libvirttest.Start(t)
	d := open(t, libvirt.Config{})
	m := hvtest.Machine(t)
	m.NICs = []compute.NIC{{MAC: m.ID.MAC(0).String(), Bridge: "br-none"}}
	removed(t, d, m.ID)
	if err := d.Define(t.Context(), m); croft.KindOf(err) != croft.NotFound ||
		!strings.Contains(err.Error(), "br-none") {
		t.Errorf("got %v", err)
	}
}

// leaseGone waits for dnsmasq to process the release, for which it sends no acknowledgement.
func leaseGone(t *testing.T, mac string) {
	t.Helper()
	end := time.Now().Add(time.Minute)
	for strings.Contains(libvirttest.Virsh(t, "net-dhcp-leases", "default"), mac) {
		if time.Now().After(end) {
			t.Errorf("the lease of %s is still there", mac)
			return
		}
	}
}

// network defines an inactive network of three addresses and removes it at the end of the test. One of a test that was
// killed has the same addresses, so it goes first.
func network(t *testing.T) string {
	t.Helper()
	libvirttest.Start(t)
	for _, left := range strings.Fields(libvirttest.Virsh(t, "net-list", "--all", "--name")) {
		if strings.HasPrefix(left, "croft-test-") {
			removeNetwork(t, left)
		}
	}
	name := "croft-test-" + string(croft.NewInstanceID())[:8]
	path := filepath.Join(t.TempDir(), "network.xml")
	must(t,
		os.WriteFile(path, fmt.Appendf(nil, `<network><name>%s</name><ip address="10.213.7.1" netmask="255.255.255.248">
		<dhcp><range start="10.213.7.2" end="10.213.7.4"/></dhcp></ip></network>`, name), 0o600))
	libvirttest.Virsh(t, "net-define", path)
	t.Cleanup(func() { removeNetwork(t, name) })
	return name
}

func removeNetwork(t *testing.T, name string) {
	t.Helper()
	if strings.Contains(libvirttest.Virsh(t, "net-list", "--name"), name) {
		libvirttest.Virsh(t, "net-destroy", name)
	}
	libvirttest.Virsh(t, "net-undefine", name)
}

func TestNetworkIsStarted(t *testing.T) {
	name := network(t)
	d := open(t, libvirt.Config{})
	if _, active, err := d.FindNetwork(t.Context(), name); err != nil || active {
		t.Fatalf("before: active %v, %v", active, err)
	}
	var wg sync.WaitGroup
	for range 4 { // agents and people may do so concurrently
		wg.Go(func() {
			n, err := d.Network(t.Context(), name)
			if err != nil || n.Name != name || n.Bridge == "" || n.Gateway != netip.MustParseAddr("10.213.7.1") ||
				n.Subnet.Bits() != 29 {
				t.Errorf("got %+v, %v", n, err)
			}
		})
	}
	wg.Wait()
	if _, active, err := d.FindNetwork(t.Context(), name); err != nil || !active {
		t.Errorf("after: active %v, %v", active, err)
	}
	if _, err := d.Network(t.Context(), "croft-no-such"); croft.KindOf(err) != croft.NotFound {
		t.Errorf("a network that is not there: %v", err)
	}
}

func TestAddressesOfANetworkRunOut(t *testing.T) {
	name := network(t)
	d := open(t, libvirt.Config{StopGrace: time.Millisecond})
	var machines []compute.Machine
	for range 4 {
		m := hvtest.Machine(t)
		m.NICs = []compute.NIC{{MAC: m.ID.MAC(0).String(), Network: name}}
		removed(t, d, m.ID)
		machines = append(machines, m)
	}
	var wg sync.WaitGroup
	errs := make([]error, len(machines))
	for i, m := range machines { // the definition picks the address
		wg.Go(func() { errs[i] = d.Define(t.Context(), m) })
	}
	wg.Wait()
	refused := slices.IndexFunc(errs, func(err error) bool { return err != nil })
	if refused < 0 || croft.KindOf(errs[refused]) != croft.NoCapacity {
		t.Fatalf("four machines on three addresses: %v", errs)
	}
	for i, err := range errs {
		if i != refused && err != nil {
			t.Errorf("one of three: %v", err)
		}
	}
	for i, m := range machines {
		if i != refused {
			must(t, d.Start(t.Context(), m.ID)) // the start reserves it in libvirt
		}
	}
	text := libvirttest.Virsh(t, "net-dumpxml", name)
	if n := strings.Count(text, "<host "); n != 3 {
		t.Errorf("%d addresses are reserved:\n%s", n, text)
	}
	must(t, d.Remove(t.Context(), machines[(refused+1)%4].ID))
	must(t, d.Define(t.Context(), machines[refused]))
	must(t, d.Start(t.Context(), machines[refused].ID))

	// Removing a domain from outside frees its address nevertheless.
	byHand := machines[refused]
	libvirttest.Virsh(t, "destroy", string(byHand.ID))
	libvirttest.Virsh(t, "undefine", string(byHand.ID))
	must(t, d.Remove(t.Context(), byHand.ID))
	if text := libvirttest.Virsh(t, "net-dumpxml", name); strings.Contains(text, byHand.NICs[0].MAC) {
		t.Errorf("its address is still reserved:\n%s", text)
	}
}

func TestDamagedMarkIsReportedAndNotTouched(t *testing.T) {
	libvirttest.Start(t)
	var log bytes.Buffer
	d := open(t, libvirt.Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	id := foreign(t)
	libvirttest.Virsh(t, "metadata", string(id), "https://croft/1", "--config", "--key", "croft", "--set",
		`<instance generation="many"/>`)
	for range 2 {
		list, err := d.List(t.Context())
		must(t, err)
		if slices.ContainsFunc(list, func(one compute.Domain) bool { return one.ID == id }) {
			t.Error("it is listed")
		}
	}
	if n := strings.Count(log.String(), string(id)); n != 1 {
		t.Errorf("it was logged %d times:\n%s", n, log.String())
	}
	if _, err := d.Get(t.Context(), id); croft.KindOf(err) != croft.Conflict {
		t.Errorf("get: %v", err)
	}
	if err := d.Remove(t.Context(), id); croft.KindOf(err) != croft.Conflict {
		t.Errorf("remove: %v", err)
	}
	libvirttest.Virsh(t, "dominfo", string(id))
}

func TestVersion(t *testing.T) {
	libvirttest.Start(t)
	got, err := open(t, libvirt.Config{}).Version(t.Context())
	must(t, err)
	var a, b, c int
	if n, err := fmt.Sscanf(got, "libvirt %d.%d.%d, QEMU ", &a, &b, &c); n != 3 {
		t.Errorf("got %q: %v", got, err)
	}
}

// TestConsoleOfAGuest types into the shell on the small guest's console.
func TestConsoleOfAGuest(t *testing.T) {
	libvirttest.Start(t)
	d := open(t, libvirt.Config{})
	m := guest(t)
	m.Seed = filepath.Join(filepath.Dir(m.Disk[0].Path), "seed.iso") // else the guest looks for metadata for a minute
	var seed bytes.Buffer
	must(t, mdserver.WriteSeed(&seed, mdserver.Guest{ID: m.ID, Name: "typed"}))
	must(t, os.WriteFile(m.Seed, seed.Bytes(), 0o600))
	removed(t, d, m.ID)
	must(t, d.Define(t.Context(), m))
	if _, err := d.OpenConsole(t.Context(), m.ID, false); croft.KindOf(err) != croft.Conflict {
		t.Errorf("the console of one that is off: %v, want Conflict", err)
	}
	must(t, d.Start(t.Context(), m.ID))
	c, err := d.OpenConsole(t.Context(), m.ID, false)
	must(t, err)
	if _, err := d.OpenConsole(t.Context(), m.ID, false); croft.KindOf(err) != croft.Conflict {
		t.Errorf("a second one on the console: %v, want Conflict", err)
	}
	var said bytes.Buffer
	listen := func(words string) {
		t.Helper()
		b := make([]byte, 1024)
		for !strings.Contains(said.String(), words) {
			n, err := c.Read(b)
			said.Write(b[:n])
			if err != nil {
				t.Fatalf("%v before it said %q:\n%s", err, words, said.String())
			}
		}
	}
	listen("Please press Enter")
	_, err = c.Write([]byte("\r"))
	must(t, err)
	listen("# ")
	_, err = c.Write([]byte("echo $((6*7))-is-typed\r"))
	must(t, err)
	listen("42-is-typed")
	former := c
	c, err = d.OpenConsole(t.Context(), m.ID, true)
	must(t, err)
	if _, err := io.Copy(io.Discard, former); err != nil {
		t.Errorf("taken over, the former console says %v", err)
	}
	must(t, former.Close()) // and this leaves the present one attached
	_, err = c.Write([]byte("echo $((6*8))-is-typed\r"))
	must(t, err)
	listen("48-is-typed")
	must(t, c.Close())
	must(t, c.Close())
	for _, path := range []string{m.Seed, m.Disk[0].Path, m.Console} {
		unreadable(t, path)
	}
	c, err = d.OpenConsole(t.Context(), m.ID, false)
	must(t, err)
	must(t, d.Remove(t.Context(), m.ID))
	if _, err := io.Copy(io.Discard, c); err != nil {
		t.Errorf("at the guest's end the console says %v", err)
	}
	must(t, c.Close())
}

// TestAGuestLeasesItsChosenAddress: a lease holds the address while its guest runs, also one that is not croft's. Then
// the guest that chose the address gets it by DHCP, at each start, and over a restart of the agent.
func TestAGuestLeasesItsChosenAddress(t *testing.T) {
	if testing.Short() {
		t.Skip("boots two guests")
	}
	libvirttest.Start(t)
	foreign := guest(t)
	mac := foreign.NICs[0].MAC
	define(t, fmt.Sprintf(`<domain type="qemu"><name>test-%[1]s</name><uuid>%[1]s</uuid><memory unit="MiB">256</memory>
		<os><type arch="x86_64">hvm</type></os><devices><disk type="file"><driver name="qemu" type="qcow2"/>
		<source file="%[2]s"/><target dev="vda" bus="virtio"/></disk><interface type="network"><mac address="%[3]s"/>
		<source network="default"/><model type="virtio"/></interface></devices></domain>`, foreign.ID, foreign.Disk[0].Path,
		mac), string(foreign.ID))
	libvirttest.Virsh(t, "start", string(foreign.ID))
	on := true
	t.Cleanup(func() {
		if on {
			libvirttest.Virsh(t, "destroy", string(foreign.ID))
		}
	})
	address := ""
	patient.Until(t, "it has a lease", func() bool {
		for line := range strings.Lines(libvirttest.Virsh(t, "net-dhcp-leases", "default")) {
			if words := strings.Fields(line); slices.Contains(words, mac) {
				address, _, _ = strings.Cut(words[4], "/")
			}
		}
		return address != ""
	})

	d := open(t, libvirt.Config{StopGrace: time.Minute})
	m := guest(t)
	m.NICs[0].Address = address
	removed(t, d, m.ID)
	if err := d.Define(t.Context(), m); croft.KindOf(err) != croft.Conflict || !strings.Contains(err.Error(), address) {
		t.Fatalf("a guest that runs has leased %s: %v", address, err)
	}
	libvirttest.Virsh(t, "destroy", string(foreign.ID))
	on = false
	must(t, d.Define(t.Context(), m))
	leaseGone(t, mac)

	leases := func(d *libvirt.Driver) {
		t.Helper()
		wakes := watch(t, d, m.ID)
		must(t, d.Start(t.Context(), m.ID))
		got := until(t, d, m.ID, wakes, "it got its address", hasAddress).Addresses
		if len(got) != 1 || got[0].String() != address {
			t.Errorf("it leased %v, and chose %s", got, address)
		}
	}
	leases(d)
	must(t, d.Stop(t.Context(), m.ID))
	again := open(t, libvirt.Config{StopGrace: time.Minute})
	other := hvtest.Machine(t)
	other.NICs = []compute.NIC{{MAC: other.ID.MAC(0).String(), Network: libvirt.DefaultNetwork, Address: address}}
	removed(t, d, other.ID)
	if err := again.Define(t.Context(), other); croft.KindOf(err) != croft.Conflict {
		t.Errorf("a guest that is off has chosen %s: %v", address, err)
	}
	leases(again)
}
