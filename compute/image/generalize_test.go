package image

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"croft"
	"croft/compute/image/format"
)

func TestAHostWithoutVirtSysprepSaysWhatToInstall(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	err := newCopies(t, 1<<30).Generalize(t.Context(), croft.NewImageID(), 1<<30)
	if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), "install guestfs-tools") {
		t.Errorf("%v", err)
	}
}

// needsVirtSysprep skips tests that remove a machine's identity, unless make test-guests runs them.
func needsVirtSysprep(t *testing.T) {
	t.Helper()
	needsSandbox(t)
	if os.Getenv("CROFT_TEST_SYSPREP") == "" {
		t.Skip("libguestfs boots virtual machines for minutes: make test-guests does this")
	}
	for _, program := range []string{"virt-sysprep", "libguestfs-make-fixed-appliance", "guestfish"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip(err)
		}
	}
}

// guestfish runs commands on the file systems of a disk.
func guestfish(t *testing.T, disk string, commands ...string) string {
	t.Helper()
	cmd := exec.Command("guestfish", append([]string{"--format=qcow2", "-a", disk, "-i"}, commands...)...)
	cmd.Env = append(os.Environ(), "LIBGUESTFS_BACKEND=direct", "LIBGUESTFS_BACKEND_SETTINGS=force_tcg")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("guestfish: %v\n%s", err, out)
	}
	return string(out)
}

func TestAGeneralizedImageHasNoMachineIdentity(t *testing.T) {
	needsVirtSysprep(t)
	debian := os.Getenv("CROFT_TEST_DEBIAN")
	if debian == "" {
		t.Skip("CROFT_TEST_DEBIAN names no image: make test-guests does this")
	}
	c, id := newCopies(t, 8<<30), croft.NewImageID()
	staged := c.Staged(id)
	if out, err := exec.Command("qemu-img", "convert", "-O", "qcow2", debian, staged).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const machine = "0123456789abcdef0123456789abcdef"
	guestfish(t, staged, "write", "/etc/machine-id", machine, ":", "write", "/etc/ssh/ssh_host_test_key", "secret", ":",
		"write", "/root/data", "stays")
	if err := c.Generalize(t.Context(), id, 4<<30); err != nil {
		t.Fatal(err)
	}
	if left := c.names(t); len(left) != 1 || left[0] != filepath.Base(staged) {
		t.Errorf("files: %v", left)
	}
	if info, err := format.InspectFile(staged); err != nil || info.Format != "qcow2" {
		t.Errorf("%+v, %v", info, err)
	}
	found := guestfish(t, staged, "cat", "/etc/machine-id", ":", "ls", "/etc/ssh", ":", "cat", "/root/data")
	if strings.Contains(found, machine) || strings.Contains(found, "ssh_host_") || !strings.Contains(found, "stays") {
		t.Errorf("the disk has %q", found)
	}
}

func TestADiskWithoutASystemIsNotGeneralized(t *testing.T) {
	needsVirtSysprep(t)
	c, id := newCopies(t, 8<<30), croft.NewImageID()
	disk, _ := madeAs(t, "qcow2")
	if err := os.WriteFile(c.Staged(id), disk, 0o600); err != nil {
		t.Fatal(err)
	}
	err := c.Generalize(t.Context(), id, 1<<30)
	if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), "no operating systems were found") {
		t.Errorf("%v", err)
	}
}
