package e2e

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestDebianMountsVolumes: cloud-init formats blank volumes and mounts them, beside what the user's cloud-config says
// about mounts; a volume with data keeps it, whatever file system a request names.
func TestDebianMountsVolumes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("three boots of Debian take minutes under emulation: make test-guests")
	}
	image := os.Getenv("CROFT_TEST_DEBIAN")
	if image == "" {
		t.Skip("CROFT_TEST_DEBIAN names no image")
	}
	c := sharedCloud(t)
	key := c.newKey()
	c.volume("create", "data", "1G")
	c.volume("create", "raw", "1G")
	c.write(c.home+"/config", "#cloud-config\nmounts: [[tmpfs, /srv/own, tmpfs]]\nbootcmd: [touch /run/own-bootcmd]\n"+
		"fs_setup: []\n")
	boot := func(name string, more ...string) {
		t.Helper()
		c.must(append(more, "resources=VCPU:1,MEMORY_MB:512,DISK_GB:4", image, "--name", name, "--key", key+".pub",
			"--user-data", c.home+"/config", "--wait", "--timeout", debianPatience.String())...)
	}
	look := func(name, command, want string) {
		t.Helper()
		eventually(t, name+" is ready", func(context.Context) error {
			r := c.schedule("ssh", "--user", "debian", "--identity", key, name, command)
			if r.exit != 0 || strings.TrimSpace(r.stdout) != want {
				return fmt.Errorf("%s: %v, want %q", command, r, want)
			}
			return nil
		})
	}
	boot("one", "--volume", "data:/srv/data", "--volume", "raw", "--disk", "1G:new:/srv/deep/new")
	look("one", "findmnt -no FSTYPE /srv/data; findmnt -no FSTYPE /srv/deep/new; findmnt -no FSTYPE /srv/own",
		"ext4\next4\ntmpfs")
	look("one", "ls /run/own-bootcmd; grep -c by-id/virtio- /etc/fstab", "/run/own-bootcmd\n2")
	look("one", "echo kept | sudo tee /srv/data/file; echo precious | sudo tee /dev/disk/by-id/virtio-raw; sync",
		"kept\nprecious")
	c.must("reboot", "--wait", "--timeout", debianPatience.String(), "one")
	look("one", "cat /srv/data/file; grep -c by-id/virtio- /etc/fstab", "kept\n2")
	c.must("destroy", "--wait", "one")

	boot("two", "--volume", "data:/srv/data:xfs", "--volume", "raw:/srv/raw", "--volume", "new")
	look("two", "findmnt -no FSTYPE /srv/data; cat /srv/data/file", "ext4\nkept")
	look("two", "sudo head -n 1 /dev/disk/by-id/virtio-raw; findmnt /srv/raw || echo none", "precious\nnone")
	c.must("destroy", "--wait", "two")
	c.volume("remove", "data", "raw", "new")
}
