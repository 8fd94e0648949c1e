package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"croft/internal/testing/libvirttest"
)

// The boot loader of CDs, in the packages isolinux and syslinux-common.
const (
	isolinux = "/usr/lib/ISOLINUX/isolinux.bin"
	ldlinux  = "/usr/lib/syslinux/modules/bios/ldlinux.c32"
)

// installer is the boot script of the guest on the CD: it copies a system to the empty disk, and starts that.
const installer = `#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
for group in virtio ide files; do
	while read -r module; do insmod "/lib/modules/$module" 2>/dev/null; done <"/lib/modules/$group"
done
until mount -t iso9660 -o ro /dev/sr0 /mnt; do sleep 1; done
echo "the installer starts" >/dev/console
zcat /mnt/disk.gz >/dev/vda && sync && echo "the installer is done" >/dev/console
reboot -f
`

// commands runs programs in a directory.
func commands(t *testing.T, dir string) func(stdin string, args ...string) {
	return func(stdin string, args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir, cmd.Stdin = dir, strings.NewReader(stdin)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
}

// letAgentRead lets the agent, which is another user, read the files in a directory for temporary files.
func letAgentRead(dir string) {
	for d := dir; d != "/tmp" && d != "/"; d = filepath.Dir(d) {
		_ = os.Chmod(d, 0o755)
	}
}

// installerCD makes the image of a CD that installs the tiny guest.
func installerCD(t *testing.T) string {
	t.Helper()
	for _, file := range []string{isolinux, ldlinux} {
		if _, err := os.Stat(file); err != nil {
			t.Skipf("%v: scripts/install-deps guests installs it", err)
		}
	}
	dir := t.TempDir()
	run := commands(t, dir)
	run("", "qemu-img", "convert", "-O", "raw", strings.TrimPrefix(guestImage, "file://"), "tiny.raw")
	run("", "mkdir", "-p", "cd", "more/etc")
	run("", "mcopy", "-i", "tiny.raw@@1M", "::vmlinuz", "::initrd.img", "cd")
	run("", "sh", "-c", "gzip -1 <tiny.raw >cd/disk.gz")
	run(installer, "install", "-m", "755", "/dev/stdin", "more/etc/rc")
	// The kernel unpacks one archive after the other; each begins at a multiple of 4 bytes.
	run("", "sh", "-c", "truncate -s %4 cd/initrd.img && "+
		"cd more && find . | cpio -o -H newc -R 0:0 --quiet >>../cd/initrd.img")
	run("", "cp", isolinux, ldlinux, "cd")
	run("DEFAULT install\nPROMPT 0\nLABEL install\nKERNEL vmlinuz\nINITRD initrd.img\n"+
		"APPEND console=ttyS0,115200 no_timer_check quiet\n", "tee", "cd/isolinux.cfg")
	run("", "genisoimage", "-quiet", "-R", "-o", "installer.iso", "-b", "isolinux.bin", "-c", "boot.cat",
		"-no-emul-boot", "-boot-load-size", "4", "-boot-info-table", "cd")
	letAgentRead(dir)
	return "file://" + filepath.Join(dir, "installer.iso")
}

// TestAGuestIsInstalledFromACD to its empty disk, and does without the CD from then on.
func TestAGuestIsInstalledFromACD(t *testing.T) {
	if testing.Short() {
		t.Skip("it boots two systems, one after the other")
	}
	cd := installerCD(t)
	c := newCloud(t, "")
	key := c.newKey()
	const size = "VCPU:1,MEMORY_MB:256,DISK_GB:1"
	id := c.id(c.must("--name", "web", "--key", key+".pub", "--wait=ready", "--timeout", patience.String(), "--iso", cd,
		size))
	c.waitForConsole("web", "the installer is done")
	inGuest := func(command string) {
		t.Helper()
		eventually(t, command, func(context.Context) error {
			if r := c.schedule("ssh", "--user", "root", "--identity", key, "web", command); r.exit != 0 {
				return fmt.Errorf("%v", r)
			}
			return nil
		})
	}
	disks := func() string {
		t.Helper()
		return libvirttest.Virsh(t, "domblklist", "croft-"+id) +
			libvirttest.Virsh(t, "domblklist", "--inactive", "croft-"+id)
	}
	// It has started from its disk: the kernel of the disk has other arguments.
	const (
		fromDisk = "grep -q console=tty0 /proc/cmdline && "
		mount    = "mount -t iso9660 -o ro /dev/sr0 /mnt"
		load     = `for m in $(cat /lib/modules/ide /lib/modules/files); do insmod /lib/modules/$m 2>/dev/null; done; `
	)
	inGuest(load + fromDisk + mount + " && test -s /mnt/disk.gz")
	file := filepath.Join(c.dir, "instances", id, "cd.iso")
	if _, err := os.Stat(file); err != nil || !strings.Contains(disks(), file) {
		t.Fatalf("the CD is not in its drive: %v\n%s", err, disks())
	}
	before := libvirttest.Virsh(t, "domid", "croft-"+id)
	c.must("eject", "--wait", "web") // although the guest has mounted it
	ejected := func(when string) {
		t.Helper()
		if _, err := os.Stat(file); !os.IsNotExist(err) || strings.Contains(disks(), "cd.iso") ||
			!strings.Contains(disks(), "hda") {
			t.Errorf("%s: its CD is not ejected, or its drive is gone: %v\n%s", when, err, disks())
		}
	}
	ejected("after eject")
	if after := libvirttest.Virsh(t, "domid", "croft-"+id); after != before {
		t.Errorf("it was domain %s and is %s: it was started anew", before, after)
	}
	c.must("stop", "--wait", "web")
	ejected("while it is off")
	c.signal(syscall.SIGTERM)
	c.start()
	c.must("start", "--wait=ready", "--timeout", patience.String(), "web")
	ejected("after another start, by another agent")
	inGuest(load + fromDisk + "! " + mount)
	c.must("stop", "--wait", "web")
	c.must("rebuild", "web") // to an empty disk, so nothing starts
	c.waitForState(id, "booting")
	ejected("after a rebuild")
	c.must("destroy", "--wait", "web")
	c.nothingLeft(id)
}
