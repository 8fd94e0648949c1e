package e2e

import (
	"cmp"
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
			t.Logf("its way:\n%s", inside.must(s.name, "-o", "table"))
		})
	}
}
