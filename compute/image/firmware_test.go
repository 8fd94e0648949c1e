package image

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"croft"
	"croft/compute/image/format"
)

// A disk that only UEFI firmware boots hangs on the BIOS of croft's machines, so it is rejected in every format.
func TestADiskThatOnlyUEFIBootsIsRefused(t *testing.T) {
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Fatal("qemu-img is not installed: scripts/install-deps test")
	}
	for what, c := range map[string]struct {
		kind byte // of the first partition
		code bool // boot code for a BIOS
		want bool // it is accepted
	}{
		"GPT without boot code":                  {0xee, false, false},
		"an EFI partition without boot code":     {0xef, false, false},
		"GPT with boot code":                     {0xee, true, true},
		"a Linux partition without boot code":    {0x83, false, true},
		"an EFI partition beside BIOS boot code": {0xef, true, true},
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
			_, err := format.InspectFile(file)
			if c.want && err != nil || !c.want && (!errors.Is(err, croft.Invalid) ||
				!strings.Contains(err.Error(), "boots only by UEFI")) {
				t.Errorf("%s, %v: %v", what, options, err)
			}
		}
	}
}
