package pci_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/compute/pci"
	"croft/compute/pci/pcitest"
)

func device(address, ids, code, group string) pci.Device {
	vendor, product, _ := strings.Cut(ids, ":")
	return pci.Device{Address: address, Vendor: vendor, Product: product, Code: code, Group: group}
}

// graphics are two cards of which each has a sound function, a bridge above the second, a network card with two virtual
// functions, and a device that the machine itself needs.
func graphics() []pci.Device {
	virtual := func(address, group string) pci.Device {
		d := device(address, "8086:154c", "020000", group)
		d.PF = "0000:5e:00.0"
		return d
	}
	gpu := pcitest.GPU("0000:3b:00.0", "10")
	return []pci.Device{
		device("0000:00:1f.0", "8086:a1c1", "060100", "9"),
		device("0000:00:1f.4", "8086:a1a3", "0c0500", "9"),
		gpu, device("0000:3b:00.1", "10de:1aef", "040300", "10"),
		device("0000:86:00.0", "8086:2030", "060400", "11"),
		device("0000:87:00.0", "10de:2230", "030000", "11"), device("0000:87:00.1", "10de:1aef", "040300", "11"),
		device("0000:5e:00.0", "8086:1572", "020000", "12"),
		virtual("0000:5e:02.0", "13"), virtual("0000:5e:02.1", "14"),
	}
}

func TestDevicesAreReadAsLinuxShowsThem(t *testing.T) {
	t.Parallel()
	s := pcitest.New(t, graphics()...)
	want := graphics()
	want[7].VFs = 2
	slices.SortFunc(want, func(a, b pci.Device) int { return strings.Compare(a.Address, b.Address) })
	got, err := pci.Read(s.Root)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
	s.Remove("0000:3b:00.0")
	if err := os.Mkdir(filepath.Join(s.Root, "bus/pci/devices/0000:ff:00.0"), 0o755); err != nil { // half gone
		t.Fatal(err)
	}
	if got, err := pci.Read(s.Root); err != nil || len(got) != len(want)-1 {
		t.Errorf("after a device was removed: %+v, %v", got, err)
	}
	if got, err := pci.Read(t.TempDir()); got != nil || err != nil {
		t.Errorf("without PCI: %v, %v", got, err)
	}
}

func TestOnlyWholeGroupsThatTheSettingsNameAreOffered(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		entries string
		units   string // class and addresses
		refused []string
	}{
		"nothing is selected": {"", "", nil},
		"a card with its sound function, behind a bridge or not": {"10de:2230 10de:1aef",
			"CUSTOM_PCI_10DE_2230=0000:3b:00.0+0000:3b:00.1 CUSTOM_PCI_10DE_2230=0000:87:00.0+0000:87:00.1", nil},
		"the class of the first entry counts": {"10de:1aef=CUSTOM_PCI_SOUND 10de:2230",
			"CUSTOM_PCI_SOUND=0000:3b:00.0+0000:3b:00.1 CUSTOM_PCI_SOUND=0000:87:00.0+0000:87:00.1", nil},
		"a group that is not selected as a whole": {"10de:2230", "", []string{
			"the PCI device 0000:3b:00.0 (10de:2230) is not offered: its IOMMU group 10 has 0000:3b:00.1 (10de:1aef) too",
			"the PCI device 0000:87:00.0 (10de:2230) is not offered: its IOMMU group 11 has 0000:87:00.1 (10de:1aef) too"}},
		"one card by its address, under a class of the operator": {"0000:3b:00.0=CUSTOM_PCI_GPU 0000:3b:00.1",
			"CUSTOM_PCI_GPU=0000:3b:00.0+0000:3b:00.1", nil},
		"virtual functions by their IDs": {"8086:154c",
			"CUSTOM_PCI_8086_154C=0000:5e:02.0 CUSTOM_PCI_8086_154C=0000:5e:02.1", nil},
		"virtual functions of a device": {"vfs:0000:5e:00.0=CUSTOM_PCI_NET",
			"CUSTOM_PCI_NET=0000:5e:02.0 CUSTOM_PCI_NET=0000:5e:02.1", nil},
		"a device that has virtual functions": {"8086:1572", "", []string{"0000:5e:00.0 has 2 virtual functions"}},
		"the kind of a device": {"8086:154c:0200",
			"CUSTOM_PCI_8086_154C=0000:5e:02.0 CUSTOM_PCI_8086_154C=0000:5e:02.1", nil},
		"another kind of device": {"8086:154c:0300", "", []string{
			"no PCI device of this machine is 8086:154c:0300, which the setting pci selects"}},
		"a device that is not there": {"0000:ff:00.0 10de:9999", "", []string{
			"no PCI device of this machine is 0000:ff:00.0", "no PCI device of this machine is 10de:9999"}},
		"a bridge":                      {"0000:86:00.0 8086:2030", "", []string{"it is a bridge"}},
		"what the machine itself needs": {"0000:00:1f.4", "", []string{"has 0000:00:1f.0 (8086:a1c1) too"}},
		"an address in capital letters": {"0000:3B:00.0 0000:3B:00.1",
			"CUSTOM_PCI_10DE_2230=0000:3b:00.0+0000:3b:00.1", nil},
		"a bridge beside a card, selected": {"8086:2030 10de:2230 10de:1aef",
			"CUSTOM_PCI_10DE_2230=0000:3b:00.0+0000:3b:00.1 CUSTOM_PCI_10DE_2230=0000:87:00.0+0000:87:00.1", []string{"it is a bridge"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			selectors, err := pci.ParseSelectors(strings.Fields(c.entries))
			if err != nil {
				t.Fatal(err)
			}
			check(t, pci.Source{Root: pcitest.New(t, graphics()...).Root, Selectors: selectors}, c.units, c.refused)
		})
	}
}

// check compares what a source offers and refuses.
func check(t *testing.T, s pci.Source, want string, reasons []string) {
	t.Helper()
	units, refused, err := s.Units()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, u := range units {
		got = append(got, fmt.Sprintf("%s=%s", u.Class, strings.Join(u.Addresses(), "+")))
	}
	if strings.Join(got, " ") != want {
		t.Errorf("it offers %q, want %q", got, want)
	}
	ok := len(refused) == len(reasons)
	for i, r := range refused {
		ok = ok && strings.Contains(r.Reason, reasons[i])
	}
	if !ok {
		t.Errorf("it refuses %+v, want %q", refused, reasons)
	}
}

func TestDevicesWithoutAnIOMMUAreNotOffered(t *testing.T) {
	t.Parallel()
	selectors, err := pci.ParseSelectors([]string{"10de:2230"})
	if err != nil {
		t.Fatal(err)
	}
	none := []string{"0000:3b:00.0 (10de:2230) is not offered: no IOMMU limits what it can reach",
		"0000:87:00.0 (10de:2230) is not offered: no IOMMU limits what it can reach"}
	s := pcitest.New(t, pcitest.GPU("0000:3b:00.0", ""), pcitest.GPU("0000:87:00.0", ""))
	check(t, pci.Source{Root: s.Root, Selectors: selectors}, "", none)
	s = pcitest.New(t, pcitest.GPU("0000:3b:00.0", "0"), pcitest.GPU("0000:87:00.0", "1"))
	check(t, pci.Source{Root: s.Root, Selectors: selectors},
		"CUSTOM_PCI_10DE_2230=0000:3b:00.0 CUSTOM_PCI_10DE_2230=0000:87:00.0", nil)
	s.WithoutIOMMU("0")
	s.WithoutIOMMU("1")
	check(t, pci.Source{Root: s.Root, Selectors: selectors}, "", none)
	s = pcitest.New(t, pcitest.GPU("10000:01:00.0", "0"))
	check(t, pci.Source{Root: s.Root, Selectors: selectors}, "", []string{"libvirt has no devices of that PCI domain"})
}

func TestSelectorsThatSelectNothingAreInvalid(t *testing.T) {
	t.Parallel()
	for entry, want := range map[string]string{
		"":                                `"" selects no device: write VENDOR:PRODUCT`,
		"10de":                            "selects no device",
		"10de:2230:3":                     "selects no device",
		"0000:3b:00.8":                    "selects no device",
		"vfs:8086:154c":                   "selects no device",
		"10de:2230=CUSTOM_GPU":            `"CUSTOM_GPU" is not a resource class for PCI devices: write CUSTOM_PCI_`,
		"10de:2230=":                      `"" is not a resource class for PCI devices`,
		"10de:2230=CUSTOM_PCI_":           "is not a resource class for PCI devices",
		"10de:2230=CUSTOM_PCI_a":          "is not a resource class for PCI devices",
		"10de:2230 10DE:2230":             "pci has 10de:2230 twice",
		"10de:2230=CUSTOM_PCI_A vfs:10de": "selects no device",
		strings.Repeat("a:b ", 33):        "pci has 33 entries: at most 32",
	} {
		entries := strings.Fields(entry)
		if entry == "" {
			entries = []string{""}
		}
		_, err := pci.ParseSelectors(entries)
		if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", entry, err, want)
		}
	}
}

func TestAUnitOfWhichAnotherMachineHasADeviceIsTaken(t *testing.T) {
	t.Parallel()
	u := pci.Unit{Class: "CUSTOM_PCI_GPU", Devices: []pci.Device{pcitest.GPU("0000:3b:00.0", "1"),
		pcitest.GPU("0000:3b:00.1", "1")}}
	if why := u.Taken(map[string]string{"0000:3b:00.2": "win10"}); why != "" {
		t.Error(why)
	}
	const want = `the PCI device 0000:3b:00.1 (10de:2230) is not offered: the machine "win10", which is not croft's, has it in ` +
		`its definition`
	if why := u.Taken(map[string]string{"0000:3b:00.1": "win10"}); why != want {
		t.Errorf("got %q", why)
	}
}
