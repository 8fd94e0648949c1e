package libvirt

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/compute"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func fixedMachine() compute.Machine {
	const id = croft.InstanceID("6ba7b810-9dad-41d1-80b4-00c04fd430c8")
	return compute.Machine{
		ID: id, Partition: "2c5ea4c0-4067-41fe-8bad-9b1deb4d3b7d", Ordered: compute.Ordered{Generation: 3},
		Name: `web <1> & "two"`, VCPUs: 2, MemoryMiB: 512,
		Disk:    []compute.Layer{{Path: "/var/lib/croft/instances/x/disk.qcow2", Format: "qcow2"}},
		Console: "/var/lib/croft/instances/x/console.log",
		NICs:    []compute.NIC{{MAC: strings.ToUpper(id.MAC(0).String()), Network: "default"}},
	}
}

// windows makes a machine one for Windows 11.
func windows(m *compute.Machine) {
	m.Kind = croft.Machine{Firmware: croft.FirmwareUEFISecure, TPM: true, Display: croft.DisplayVNC,
		Devices: croft.DevicesPlain, OS: croft.OSWindows}
	m.NVRAM = "/var/lib/croft/instances/x/nvram.fd"
}

func TestDomainXML(t *testing.T) {
	emulated := definition{Virt: VirtQEMU, CacheMiB: 128}
	for name, c := range map[string]struct {
		definition
		change func(*compute.Machine)
	}{
		"kvm":  {definition{Virt: VirtKVM, CacheMiB: 128}, func(*compute.Machine) {}},
		"qemu": {emulated, func(*compute.Machine) {}},
		"seed": {emulated, func(m *compute.Machine) {
			m.Seed, m.Source = "/var/lib/croft/instances/x/seed.iso", croft.MetadataNoCloud
		}},
		"agent": {emulated, func(m *compute.Machine) { m.Agent = true }},
		"bridge": {emulated, func(m *compute.Machine) {
			m.NICs = append(m.NICs, compute.NIC{MAC: m.ID.MAC(1).String(), Bridge: "br0"})
		}},
		"chain": {emulated, func(m *compute.Machine) {
			m.Disk = append(m.Disk,
				compute.Layer{Path: "/var/lib/croft/images/middle", Format: "qcow2"},
				compute.Layer{Path: "/var/lib/croft/images/base", Format: "raw", Shared: true})
		}},
		"readers": {definition{Virt: VirtQEMU, CacheMiB: 128, Readers: "+0:+64055"}, func(m *compute.Machine) {
			m.Disk = append(m.Disk, compute.Layer{Path: "/var/lib/croft/instances/x/base.raw", Format: "raw",
				Shared: true})
		}},
		"filtered": {definition{Virt: VirtQEMU, CacheMiB: 128, Ports: map[string]string{
			fixedMachine().ID.MAC(0).String(): "cr12345aabbccdd",
		}}, func(*compute.Machine) {}},
		"uefi": {emulated, func(m *compute.Machine) {
			m.Kind.Firmware, m.NVRAM = croft.FirmwareUEFI, "/var/lib/croft/instances/x/nvram.fd"
		}},
		"secure": {emulated, func(m *compute.Machine) {
			m.Kind = croft.Machine{Firmware: croft.FirmwareUEFISecure, TPM: true, Display: croft.DisplayVNC}
			m.NVRAM = "/var/lib/croft/instances/x/nvram.fd"
		}},
		"aarch64": {emulated, func(m *compute.Machine) {
			m.Kind = croft.Machine{Arch: croft.ArchAArch64, Firmware: croft.FirmwareUEFI, TPM: true,
				Display: croft.DisplayVNC, ISO: "debian.iso"}
			m.CD, m.NVRAM = "/var/lib/croft/instances/x/cd.iso", "/var/lib/croft/instances/x/nvram.fd"
		}},
		"cd": {emulated, func(m *compute.Machine) {
			m.Kind.ISO, m.CD = "debian.iso", "/var/lib/croft/instances/x/cd.iso"
		}},
		"network": {emulated, func(m *compute.Machine) {
			m.Kind, m.NVRAM = croft.Machine{ISO: "debian.iso", Boot: "network,cd,disk", Firmware: croft.FirmwareUEFI},
				"/var/lib/croft/instances/x/nvram.fd"
		}},
		"windows": {definition{Virt: VirtKVM}, windows},
		"plain": {emulated, func(m *compute.Machine) {
			m.Kind, m.Seed = croft.Machine{Devices: croft.DevicesPlain}, "/var/lib/croft/instances/x/seed.iso"
		}},
		"passthrough": {definition{Virt: VirtKVM}, func(m *compute.Machine) {
			m.PCI = []compute.PCI{{Class: "CUSTOM_PCI_10DE_2230", Addresses: []string{"0000:3b:00.0", "0000:3b:00.1"}},
				{Class: "CUSTOM_PCI_NIC", Addresses: []string{"0001:e1:1f.7"}}}
		}},
		"bare": {emulated, func(m *compute.Machine) { m.NICs, m.Console = nil, "" }},
	} {
		t.Run(name, func(t *testing.T) {
			m := fixedMachine()
			c.change(&m)
			got, _, err := c.define(m, newMark(m))
			if err != nil {
				t.Fatal(err)
			}
			golden := filepath.Join("testdata", name+".xml")
			if *update {
				if err := os.WriteFile(golden, []byte(got+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got+"\n"); diff != "" {
				t.Errorf("run with -update if this is wanted (-want +got):\n%s", diff)
			}
		})
	}
}

func TestDigestTellsDefinitionsApart(t *testing.T) {
	f := definition{Virt: VirtQEMU, CacheMiB: 128}
	digest := func(f definition, m compute.Machine) string {
		_, d, err := f.define(m, newMark(m))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	same := digest(f, fixedMachine())
	if same != digest(f, fixedMachine()) {
		t.Error("the same definition has two digests")
	}
	for name, change := range map[string]func(*compute.Machine, *definition){
		"generation": func(m *compute.Machine, _ *definition) { m.Generation++ },
		"memory":     func(m *compute.Machine, _ *definition) { m.MemoryMiB++ },
		"seed":       func(m *compute.Machine, _ *definition) { m.Seed = "/seed" },
		"MAC":        func(m *compute.Machine, _ *definition) { m.NICs[0].MAC = m.ID.MAC(1).String() },
		"virt type":  func(_ *compute.Machine, f *definition) { f.Virt = VirtKVM },
	} {
		m, f := fixedMachine(), f
		change(&m, &f)
		if digest(f, m) == same {
			t.Errorf("another %s does not change the digest", name)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	for name, change := range map[string]func(*compute.Machine){
		"an ID that is no UUID": func(m *compute.Machine) { m.ID = "x" },
		"an ID in another form than its own": func(m *compute.Machine) {
			m.ID = croft.InstanceID(strings.ToUpper(string(m.ID)))
		},
		"no partition":                        func(m *compute.Machine) { m.Partition = "" },
		"no processor":                        func(m *compute.Machine) { m.VCPUs = 0 },
		"no memory":                           func(m *compute.Machine) { m.MemoryMiB = 0 },
		"no disk":                             func(m *compute.Machine) { m.Disk = nil },
		"UEFI without a file":                 func(m *compute.Machine) { m.Kind.Firmware = croft.FirmwareUEFI },
		"a relative CD":                       func(m *compute.Machine) { m.Kind.ISO, m.CD = "x", "cd" },
		"a CD without a drive":                func(m *compute.Machine) { m.CD = "/cd" },
		"a relative disk":                     func(m *compute.Machine) { m.Disk[0].Path = "disk" },
		"a disk of a format that is not ours": func(m *compute.Machine) { m.Disk[0].Format = "vmdk" },
		"an interface on nothing":             func(m *compute.Machine) { m.NICs[0].Network = "" },
		"an interface without a MAC":          func(m *compute.Machine) { m.NICs[0].MAC = "" },
	} {
		t.Run(name, func(t *testing.T) {
			m := fixedMachine()
			change(&m)
			if err := check(m); !errors.Is(err, croft.Invalid) {
				t.Errorf("got %v", err)
			}
		})
	}
	if err := check(fixedMachine()); err != nil {
		t.Errorf("a good machine: %v", err)
	}
}

func TestMarkComesBackAsItWas(t *testing.T) {
	m := fixedMachine()
	m.NICs = append(m.NICs, compute.NIC{MAC: "52:54:00:00:00:01", Bridge: "br0"})
	k := newMark(m)
	// libvirt returns the element without its namespace, or with it as written.
	for _, text := range []string{
		`<instance partition="2c5ea4c0-4067-41fe-8bad-9b1deb4d3b7d" generation="3"><nic mac="` + m.ID.MAC(0).String() +
			`" network="default"/><nic mac="52:54:00:00:00:01" bridge="br0"/></instance>`,
		`<c:instance xmlns:c="https://croft/1" partition="2c5ea4c0-4067-41fe-8bad-9b1deb4d3b7d" generation="3"><c:nic mac="` + m.ID.MAC(0).String() + `" network="default"/><c:nic mac="52:54:00:00:00:01" bridge="br0"/></c:instance>`,
	} {
		got, err := parseMark(text)
		if err != nil {
			t.Fatal(err)
		}
		if got.Partition != k.Partition || got.Generation != 3 || !cmp.Equal(got.NICs, k.NICs) {
			t.Errorf("got %+v, want %+v", got, k)
		}
	}
}

func TestBadMarksAreErrors(t *testing.T) {
	for name, text := range map[string]string{
		"another element":         `<other partition="p" generation="1"/>`,
		"no partition":            `<instance generation="1"/>`,
		"a generation of letters": `<instance partition="p" generation="x"/>`,
		"half an element":         `<instance partition="p"`,
		"nothing":                 ``,
	} {
		t.Run(name, func(t *testing.T) {
			if k, err := parseMark(text); err == nil {
				t.Errorf("it was read as %+v", k)
			}
		})
	}
}

func FuzzParseMark(f *testing.F) {
	f.Add(`<instance xmlns="https://croft/1" partition="p" generation="1"><nic mac="m" network="n"/></instance>`)
	f.Add(`<instance generation="-1"/>`)
	f.Fuzz(func(t *testing.T, text string) {
		if k, err := parseMark(text); err == nil && k.Partition == "" {
			t.Errorf("a mark without partition was read from %q", text)
		}
	})
}
