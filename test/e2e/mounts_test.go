package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestDebianMountsVolumes: cloud-init formats blank volumes and mounts them, beside what the user's cloud-config says
// about mounts; a volume with data keeps it, whatever file system a request names. In between, the guest agent freezes
// the file systems for snapshots, hangs, and loses the agent of the host.
func TestDebianMountsVolumes(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("three boots of Debian take minutes under emulation: make test-guests")
	}
	image := os.Getenv("CROFT_TEST_DEBIAN")
	if image == "" {
		t.Skip("CROFT_TEST_DEBIAN names no image")
	}
	c := newCloud(t, "") // it is killed
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
	c.quiesces("one", func(command, want string) { t.Helper(); look("one", command, want) })
	c.must("reboot", "--wait", "--timeout", debianPatience.String(), "one")
	look("one", "cat /srv/data/file; grep -c by-id/virtio- /etc/fstab", "kept\n2")
	c.must("destroy", "--wait", "one")

	boot("two", "--volume", "data:/srv/data:xfs", "--volume", "raw:/srv/raw", "--volume", "new")
	look("two", "findmnt -no FSTYPE /srv/data; cat /srv/data/file", "ext4\nkept")
	look("two", "sudo head -n 1 /dev/disk/by-id/virtio-raw; findmnt /srv/raw || echo none", "precious\nnone")
	c.must("destroy", "--wait", "two")
	c.volume("remove", "data", "raw", "new")
}

// quiesces takes snapshots of a Debian whose guest agent answers, hangs, and is freezing the file systems while the
// agent of the host is killed. The guest writes after each of them.
func (c *cloud) quiesces(name string, look func(command, want string)) {
	c.t.Helper()
	// The hook of the guest agent gives the time to kill the agent of the host.
	look(`echo 'test $1 != freeze || { touch /run/freezing; sleep 3; }' | sudo tee /etc/hook > /dev/null; `+
		`sudo sed -i '1i #!/bin/sh' /etc/hook; sudo chmod 755 /etc/hook; sudo systemctl stop qemu-guest-agent; `+
		`sudo systemd-run --quiet --unit agent qemu-ga -F/etc/hook && echo begun`, "begun")
	take := func(snapshot, want string) {
		c.t.Helper()
		if said := c.snapshot("create", name, snapshot); !strings.Contains(said, want) {
			c.t.Errorf("the snapshot %s: %q, want %q", snapshot, said, want)
		}
		look("sudo rm -f /srv/data/written && echo written | sudo tee /srv/data/written && sync", "written")
	}
	eventually(c.t, "the guest agent is connected", func(context.Context) error {
		take("quiet", "")
		list := c.run("croft", "snapshot", "list", name).stdout
		if !strings.Contains(list, "quiesced") {
			c.snapshot("remove", name, "quiet")
			return fmt.Errorf("the snapshots are\n%s", list)
		}
		return nil
	})
	look("ls /run/freezing; sudo rm /run/freezing", "/run/freezing")

	look("sudo pkill -STOP qemu-ga && echo hangs", "hangs")
	take("hung", "the guest was not quiesced: ")
	look("sudo pkill -CONT qemu-ga && echo answers", "answers")
	eventually(c.t, "the host does not ask for a thaw any more", func(context.Context) error {
		found, err := filepath.Glob(filepath.Join(c.dir, "instances/volumes/*/frozen"))
		if len(found) > 0 || err != nil {
			return fmt.Errorf("%q, %w", found, err)
		}
		return nil
	})
	look("sudo rm -f /run/freezing; echo ready", "ready")

	taken := make(chan result, 1)
	go func() { taken <- c.run("croft", "snapshot", "create", name, "killed") }()
	look("while [ ! -e /run/freezing ]; do sleep 0.1; done; echo freezes", "freezes")
	c.signal(syscall.SIGKILL)
	c.start()
	<-taken // it lost its server
	look("echo thawed | sudo tee /srv/data/thawed && sync", "thawed")
	eventually(c.t, "the snapshot is recorded", func(context.Context) error {
		if r := c.run("croft", "snapshot", "show", name, "killed"); !strings.Contains(r.stdout, "ready") {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	c.snapshot("remove", name, "quiet", "hung", "killed")
	eventually(c.t, "the snapshots are removed", func(context.Context) error {
		if r := c.run("croft", "snapshot", "list", name); r.exit != 0 || strings.Count(r.stdout, "\n") > 1 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	look("cat /srv/data/thawed /srv/data/written", "thawed\nwritten")
}
