package image

import (
	"bytes"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/compute"
	"croft/compute/image/format"
)

// A disk hangs on firmware that does not boot it, so it is recognized in every format, also below an overlay.
func TestADiskThatOnlyOneFirmwareBootsIsRecognized(t *testing.T) {
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Fatal("qemu-img is not installed: scripts/install-deps test")
	}
	for what, c := range map[string]struct {
		kind byte // of the first partition
		code bool // boot code for a BIOS
		gpt  []string
		want croft.Firmware
	}{
		"GPT without boot code":                  {0xee, false, nil, croft.FirmwareUEFI},
		"an EFI partition without boot code":     {0xef, false, nil, croft.FirmwareUEFI},
		"boot code and a GPT that is damaged":    {0xee, true, nil, ""},
		"a Linux partition without boot code":    {0x83, false, nil, ""},
		"an EFI partition beside BIOS boot code": {0xef, true, nil, ""},
		"a Linux partition and boot code":        {0x83, true, nil, croft.FirmwareBIOS},
		"a FAT and boot code":                    {0x06, true, nil, ""},
		"boot code and no partition":             {0, true, nil, ""},
		"GPT for a BIOS":                         {0xee, true, []string{gptBIOS, gptLinux}, croft.FirmwareBIOS},
		"GPT for both":                           {0xee, true, []string{gptBIOS, gptESP, gptLinux}, ""},
		"GPT with data that may be a FAT":        {0xee, true, []string{gptLinux, gptData}, ""},
		"an empty GPT":                           {0xee, true, []string{""}, ""},
	} {
		disk := make([]byte, 1<<20)
		disk[446+4], disk[510], disk[511] = c.kind, 0x55, 0xaa
		if c.code {
			copy(disk, "\xeb\x63\x90")
		}
		for n, kind := range c.gpt {
			copy(disk[512:], "EFI PART")
			disk[512+72], disk[512+80], disk[512+84] = 2, 128, 128
			copy(disk[1024+n*128:], storedGUID(t, kind))
		}
		raw := filepath.Join(t.TempDir(), "disk")
		if err := os.WriteFile(raw, disk, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, options := range [][]string{nil, {"-O", "qcow2"}, {"-O", "qcow2", "-c"},
			{"-O", "qcow2", "-c", "-o", "compression_type=zstd"}} {
			file := raw
			if options != nil {
				file = raw + strings.Join(options, "")
				args := append(append([]string{"convert", "-f", "raw"}, options...), raw, file)
				if out, err := exec.Command("qemu-img", args...).CombinedOutput(); err != nil {
					t.Fatalf("qemu-img: %v: %s", err, bytes.TrimSpace(out))
				}
			}
			info, err := format.InspectFile(file)
			if err != nil {
				t.Fatal(err)
			}
			image := compute.Layer{Path: file, Format: info.Format}
			overlay := compute.Layer{Path: filepath.Join(t.TempDir(), "overlay"), Format: "qcow2"}
			if err := os.WriteFile(overlay.Path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command("qemu-img", "create", "-q", "-f", "qcow2", "-b", file, "-F", info.Format,
				overlay.Path).CombinedOutput(); err != nil {
				t.Fatalf("qemu-img: %v: %s", err, bytes.TrimSpace(out))
			}
			for _, layers := range [][]compute.Layer{{image}, {overlay, image}} {
				if got, err := (&Cache{}).OnlyFirmware(layers); got != c.want || err != nil {
					t.Errorf("%s, %v, %d layers: %q, %v", what, options, len(layers), got, err)
				}
			}
		}
	}
}

// Types of partitions, as tools print them.
const (
	gptESP   = "c12a7328-f81f-11d2-ba4b-00a0c93ec93b"
	gptBIOS  = "21686148-6449-6e6f-744e-656564454649"
	gptLinux = "0fc63daf-8483-4772-8e79-3d69d8477de4"
	gptData  = "ebd0a0a2-b9e5-4433-87c0-68b6b72699c7"
)

// storedGUID returns a GUID as a GPT has it: the first three parts are little-endian.
func storedGUID(t *testing.T, guid string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(guid, "-", ""))
	if err != nil {
		t.Fatal(err)
	}
	if len(b) == 16 {
		slices.Reverse(b[:4])
		slices.Reverse(b[4:6])
		slices.Reverse(b[6:8])
	}
	return b
}
