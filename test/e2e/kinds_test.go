package e2e

import (
	"context"
	"fmt"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The boot loaders of Debian that secure boot accepts, in the packages shim-signed and grub-efi-amd64-signed.
const (
	signedShim = "/usr/lib/shim/shimx64.efi.signed"
	signedGrub = "/usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed"
)

// signedImage makes a disk that only UEFI boots, with the kernel of the tiny guest, which Debian has signed.
func signedImage(t *testing.T) string {
	t.Helper()
	for _, file := range []string{signedShim, signedGrub} {
		if _, err := os.Stat(file); err != nil {
			t.Skipf("%v: scripts/install-deps guests installs it", err)
		}
	}
	dir := t.TempDir()
	run := commands(t, dir)
	run("", "qemu-img", "convert", "-O", "raw", strings.TrimPrefix(guestImage, "file://"), "tiny.raw")
	run("", "mcopy", "-i", "tiny.raw@@1M", "::vmlinuz", "::initrd.img", ".")
	run("", "mkfs.vfat", "-C", "esp", "61440")
	run("", "mmd", "-i", "esp", "::EFI", "::EFI/BOOT", "::EFI/debian")
	run("", "mcopy", "-i", "esp", signedShim, "::EFI/BOOT/BOOTX64.EFI")
	run("", "mcopy", "-i", "esp", signedGrub, "::EFI/BOOT/grubx64.efi")
	run("", "mcopy", "-i", "esp", "vmlinuz", "initrd.img", "::")
	run("echo Booting by UEFI\nlinux /vmlinuz console=tty0 console=ttyS0,115200 no_timer_check\ninitrd /initrd.img\nboot\n",
		"mcopy", "-i", "esp", "-", "::EFI/debian/grub.cfg")
	run("", "truncate", "-s", "63M", "disk.raw")
	run("label: gpt\nstart=1MiB, size=60MiB, type=U\n", "sfdisk", "-q", "disk.raw")
	run("", "dd", "if=esp", "of=disk.raw", "bs=1M", "seek=1", "conv=notrunc", "status=none")
	letAgentRead(dir)
	return "file://" + filepath.Join(dir, "disk.raw")
}

// TestAGuestWithSecureBootShowsItsScreen, has a TPM, and leaves nothing.
func TestAGuestWithSecureBootShowsItsScreen(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts three guests with UEFI")
	}
	t.Parallel()
	image := signedImage(t)
	c := sharedCloud(t)
	key := c.newKey()
	const size = "VCPU:1,MEMORY_MB:256,DISK_GB:1"
	id := c.id(c.must("--name", "secure", "--key", key+".pub", "--firmware", "uefi-secure", "--tpm", "--display", "vnc",
		"--wait=ready", size, image))
	for what, command := range map[string]string{
		"secure boot": "dmesg | grep -qi 'secure boot enabled'",
		"a TPM":       "test -s /sys/firmware/acpi/tables/TPM2",
	} {
		if r := c.schedule("ssh", "--user", "root", "--identity", key, "secure", command); r.exit != 0 {
			t.Errorf("%s: %v", what, r)
		}
	}
	file := filepath.Join(t.TempDir(), "screen.png")
	c.must("screen", "secure", file)
	if n := coloursIn(t, file); n < 2 {
		t.Errorf("its screen has %d colours", n)
	}
	c.must("reboot", "--wait=ready", "secure")
	c.must("destroy", "--wait", "secure")
	c.nothingLeft(id)
	if _, err := os.Stat("/var/lib/libvirt/swtpm/" + id); !os.IsNotExist(err) {
		t.Errorf("the state of its TPM: %v", err)
	}

	id = c.id(c.must("--name", "auto", "--key", key+".pub", "--wait=ready", size, image)) // the disk asks for UEFI
	eventually(t, "it has booted by UEFI", func(context.Context) error {
		r := c.schedule("ssh", "--user", "root", "--identity", key, "auto", "test -d /sys/firmware/efi")
		if r.exit != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	c.must("destroy", "--wait", "auto")
	c.nothingLeft(id)
}

// coloursIn counts the colours of a picture.
func coloursIn(t *testing.T, file string) int {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	picture, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	colours := map[color.Color]bool{}
	for y := range picture.Bounds().Dy() {
		for x := range picture.Bounds().Dx() {
			colours[picture.At(x, y)] = true
		}
	}
	return len(colours)
}
