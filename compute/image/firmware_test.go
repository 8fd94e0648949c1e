package image

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"croft/compute"
	"croft/compute/image/format"
)

// A disk that only UEFI firmware boots hangs on a BIOS, so it is recognized in every format, also below an overlay.
func TestADiskThatOnlyUEFIBootsIsRecognized(t *testing.T) {
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Fatal("qemu-img is not installed: scripts/install-deps test")
	}
	for what, c := range map[string]struct {
		kind byte // of the first partition
		code bool // boot code for a BIOS
		want bool // only UEFI boots it
	}{
		"GPT without boot code":                  {0xee, false, true},
		"an EFI partition without boot code":     {0xef, false, true},
		"GPT with boot code":                     {0xee, true, false},
		"a Linux partition without boot code":    {0x83, false, false},
		"an EFI partition beside BIOS boot code": {0xef, true, false},
	} {
		disk := make([]byte, 1<<20)
		disk[446+4], disk[510], disk[511] = c.kind, 0x55, 0xaa
		if c.code {
			copy(disk, "\xeb\x63\x90")
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
				if got, err := (&Cache{}).NeedsUEFI(layers); got != c.want || err != nil {
					t.Errorf("%s, %v, %d layers: %v, %v", what, options, len(layers), got, err)
				}
			}
		}
	}
}
