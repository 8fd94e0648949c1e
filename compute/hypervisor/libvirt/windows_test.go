package libvirt

import (
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"libvirt.org/go/libvirtxml"
)

func TestDefinitionsFollowTheSchemaOfLibvirt(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"virt-xml-validate", "xmllint"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%v: scripts/install-deps guests installs libvirt-clients and libxml2-utils", err)
		}
	}
	all, err := filepath.Glob("testdata/*.xml")
	if err != nil || len(all) == 0 {
		t.Fatal(err)
	}
	for _, file := range all {
		validate := exec.CommandContext(t.Context(), "virt-xml-validate", file, "domain")
		if out, err := validate.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", file, err, out)
		}
	}
}

// osinfo is what libosinfo knows of a system.
type osinfo struct {
	DerivesFrom struct {
		ID string `xml:"id,attr"`
	} `xml:"os>derives-from"`
	Firmware []struct {
		Type      string `xml:"type,attr"`
		Supported string `xml:"supported,attr"`
	} `xml:"os>firmware"`
	Devices []struct {
		ID string `xml:"id,attr"`
	} `xml:"os>devices>device"`
}

// TestAMachineForWindowsHasWhatLibosinfoRecommends compares the definition for Windows 11 with the entries of that
// system and of those that it derives from.
func TestAMachineForWindowsHasWhatLibosinfoRecommends(t *testing.T) {
	t.Parallel()
	var devices []string
	var firmware []string
	for name := "win-11"; name != ""; {
		text, err := os.ReadFile("/usr/share/osinfo/os/microsoft.com/" + name + ".xml")
		if err != nil && len(devices)+len(firmware) == 0 {
			t.Skipf("%v: scripts/install-deps guests installs osinfo-db", err)
		}
		if err != nil {
			t.Fatal(err)
		}
		var known osinfo
		if err := xml.Unmarshal(text, &known); err != nil {
			t.Fatal(err)
		}
		for _, d := range known.Devices {
			devices = append(devices, d.ID)
		}
		for _, f := range known.Firmware {
			if f.Supported != "false" {
				firmware = append(firmware, f.Type)
			}
		}
		if name = strings.TrimPrefix(known.DerivesFrom.ID, "http://microsoft.com/win/"); name != "" && name != "vista" {
			name = "win-" + name
		} else {
			name = ""
		}
	}
	text, err := os.ReadFile("testdata/windows.xml")
	if err != nil {
		t.Fatal(err)
	}
	var x libvirtxml.Domain
	if err := x.Unmarshal(string(text)); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(firmware, x.OS.Firmware) {
		t.Errorf("its firmware is %q, and libosinfo knows %v", x.OS.Firmware, firmware)
	}
	for what, has := range map[string]bool{
		"http://qemu.org/chipset/x86/q35":   x.OS.Type.Machine == "q35",
		"http://pcisig.com/pci/8086/10d3":   x.Devices.Interfaces[0].Model.Type == "e1000e",
		"the local time":                    x.Clock.Offset == "localtime",
		"a TPM 2.0":                         x.Devices.TPMs[0].Backend.Emulator.Version == "2.0",
		"a disk that needs no other driver": x.Devices.Disks[0].Target.Bus == "sata",
	} {
		if !has {
			t.Errorf("it does not have %s", what)
		}
		if strings.HasPrefix(what, "http") && !slices.Contains(devices, what) {
			t.Errorf("libosinfo does not recommend %s, only %v", what, devices)
		}
	}
}
