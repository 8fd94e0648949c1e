package e2e

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// debianPatience bounds the boot and cloud-init of an emulated Debian; it is not a performance requirement.
const debianPatience = 10 * time.Minute

// TestDebian boots Debian with its own cloud-init, and checks the result from inside: with metadata from the
// server, or from the sources in CROFT_TEST_SOURCE, such as "nocloud ec2".
func TestDebian(t *testing.T) {
	t.Parallel()
	sources := strings.Fields(cmp.Or(os.Getenv("CROFT_TEST_SOURCE"), "openstack"))
	image, forEC2 := os.Getenv("CROFT_TEST_DEBIAN"), os.Getenv("CROFT_TEST_DEBIAN_EC2")
	if image == "" || forEC2 == "" && slices.Contains(sources, "ec2") {
		t.Fatal("CROFT_TEST_DEBIAN and, for ec2, CROFT_TEST_DEBIAN_EC2 name the images: run make test or make test-guests")
	}
	c := sharedCloud(t)
	key := c.newKey()
	c.write(c.home+"/script", "#!/bin/sh\necho the-script-of-$(hostname) >/root/proof\n")
	for _, s := range []struct{ name, metadata, image, source string }{
		{"openstack", "server", image, "DataSourceOpenStack"},
		{"ec2", "server", forEC2, "DataSourceEc2"},
		{"nocloud", "nocloud", image, "DataSourceNoCloud"},
		{"config-drive", "config-drive", image, "DataSourceConfigDrive"},
	} {
		if !slices.Contains(sources, s.name) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			inside := *c
			inside.t = t
			inside.must("resources=VCPU:1,MEMORY_MB:512,DISK_GB:4", s.image, "--name", s.name, "--metadata", s.metadata,
				"--key", key+".pub", "--user-data", c.home+"/script", "--wait=ready", "--timeout",
				debianPatience.String())
			defer inside.must("destroy", "--wait", s.name)
			look := func(command string) string {
				t.Helper()
				return inside.must("ssh", "--user", "debian", "--identity", key, s.name, command)
			}
			if got := look("hostname"); got != s.name {
				t.Errorf("its host name is %q", got)
			}
			if got := look("sudo cat /root/proof"); got != "the-script-of-"+s.name {
				t.Errorf("its script wrote %q", got)
			}
			if got := look("cat /run/cloud-init/result.json"); !strings.Contains(got, s.source) {
				t.Errorf("cloud-init had its metadata elsewhere than from %s: %s", s.source, got)
			}
			size, err := strconv.Atoi(strings.Trim(look("df --output=size -BM / | tail -n 1"), " M"))
			if err != nil || size < 3500 {
				t.Errorf("its root has %d MiB, %v; want most of 4 GiB", size, err)
			}
			if got := look("ls /etc/ssh/ssh_host_*_key"); got != "/etc/ssh/ssh_host_ed25519_key" {
				t.Errorf("its host keys are %q, want the verified one alone", got)
			}
			inside.findsOthers(look)
			inside.runsCommands(s.name, look)
			t.Logf("its way:\n%s", inside.must(s.name, "-o", "table"))
		})
	}
}

// runsCommands runs commands in a Debian through its guest agent, which hangs for a while.
func (c *cloud) runsCommands(name string, look func(command string) string) {
	c.t.Helper()
	run := func(words ...string) result { return c.schedule(append([]string{"exec", name, "--"}, words...)...) }
	eventually(c.t, "the guest agent is connected", func(context.Context) error {
		if r := run("true"); r.exit != 0 {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	if r := run("sh", "-c", "id -u; echo this >&2; exit 7"); r.exit != 7 || r.stdout != "0\n" || r.stderr != "this\n" {
		c.t.Errorf("a command as root: %v", r)
	}
	if r := run("nonesuch"); r.exit != 127 {
		c.t.Errorf("a command that the guest does not have: %v", r)
	}
	if r := run("seq", "3000000"); r.exit != 0 || len(r.stdout) != 1<<20 || !strings.Contains(r.stderr, "is cut") {
		c.t.Errorf("a command that writes 22 MB: exit %d, %d bytes, %s", r.exit, len(r.stdout), r.stderr)
	}
	if r := c.schedule("exec", name, "--timeout", "2s", "--", "sleep", "3600"); r.exit != 6 ||
		!strings.Contains(r.stderr, "it did not end within 2s, and was ended") {
		c.t.Errorf("a command that takes too long: %v", r)
	}
	if got := look("pgrep -c sleep || true"); got != "0" {
		c.t.Errorf("%s processes of it are left", got)
	}
	look("sudo pkill -STOP qemu-ga")
	if r := run("true"); r.exit != 6 || !strings.Contains(r.stderr, "its guest agent does not answer") {
		c.t.Errorf("a guest agent that hangs: %v", r)
	}
	look("sudo pkill -CONT qemu-ga")
	eventually(c.t, "the guest agent answers again", func(context.Context) error {
		if r := run("echo", "again"); r.stdout != "again\n" {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
}

// findsOthers looks from a Debian for another guest of its project by its names.
func (c *cloud) findsOthers(look func(command string) string) {
	c.t.Helper()
	c.must("resources=VCPU:1,MEMORY_MB:128,DISK_GB:1", guestImage, "--name", "peer", "--wait")
	address := c.must("peer")
	neutral := "ip-" + strings.ReplaceAll(address, ".", "-") + ".croft"
	for command, want := range map[string]string{
		"getent hosts peer.default.croft | cut -d' ' -f1":            address, // of the host's DNS
		"getent hosts peer | cut -d' ' -f1":                          address, // by the domain of the project
		"getent hosts peer. || echo none":                            "none",  // no name without a project
		"getent hosts " + address + " | tr -s ' ' | cut -d' ' -f2":   neutral,
		"getent hosts wpad. isatap. wpad.default.croft || echo none": "none",
		"getent hosts debian.org.default.croft nobody || echo none":  "none",
	} {
		if got := look(command); got != want {
			c.t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
	c.must("remove", "--wait", "peer")
	if got := look("getent hosts peer.default.croft || echo none"); got != "none" {
		c.t.Errorf("after its end: %q", got)
	}
}
