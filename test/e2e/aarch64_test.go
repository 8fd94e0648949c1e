package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// aarch64Image returns the small guest for aarch64, or skips the test if it or QEMU for it is missing.
func aarch64Image(t *testing.T) string {
	t.Helper()
	image := os.Getenv("CROFT_TEST_GUEST_ARM64")
	if image == "" {
		t.Skip("CROFT_TEST_GUEST_ARM64 names no image; scripts/guest/build --arch arm64 makes one")
	}
	if _, err := exec.LookPath("qemu-system-aarch64"); err != nil {
		t.Skipf("%v: install qemu-system-arm", err)
	}
	if _, err := os.Stat("/usr/share/AAVMF/AAVMF_CODE.fd"); err != nil {
		t.Skipf("%v: install qemu-efi-aarch64", err)
	}
	path, err := filepath.Abs(image)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestAnAarch64GuestBoots, by emulation, has an address, answers to ssh, shows its screen, starts again,
// and leaves nothing.
func TestAnAarch64GuestBoots(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a guest of another architecture")
	}
	t.Parallel()
	image := aarch64Image(t)
	c := sharedCloud(t)
	key := c.newKey()
	id := c.id(c.must("--name", "arm", "--key", key+".pub", "--arch", "aarch64", "--tpm", "--display", "vnc",
		"--wait=ready", "VCPU:1,MEMORY_MB:512,DISK_GB:1", image))
	in := func(command, want string) {
		t.Helper()
		r := c.schedule("ssh", "--user", "root", "--identity", key, "arm", command)
		if r.exit != 0 || !strings.Contains(r.stdout, want) {
			t.Errorf("%s: %v", command, r)
		}
	}
	in("uname -m", "aarch64")
	in("test -d /sys/firmware/efi && echo booted by UEFI", "UEFI")
	c.must("screen", "arm", filepath.Join(t.TempDir(), "screen.png"))
	c.must("reboot", "--wait=ready", "arm")
	in("uname -m", "aarch64")
	c.must("destroy", "--wait", "arm")
	c.nothingLeft(id)
}
