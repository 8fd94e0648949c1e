package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"croft/internal/testing/libvirttest"
)

// small is a request for the smallest useful guest.
const small = "resources=VCPU:1,MEMORY_MB:128,DISK_GB:1"

// TestOneMachine follows one guest through its life in one test, because booting takes longest: claim, order, boot,
// metadata, address, and finally a destroy that leaves nothing behind.
func TestOneMachine(t *testing.T) {
	t.Parallel()
	c := sharedCloud(t)
	c.write(c.home+"/script", "#!/bin/sh\necho the-script-says $((6 * 7))\n")
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB somebody@somewhere"
	r := c.schedule("--name", "hello", "--key", key, "--tag", "role=front", "--user-data", c.home+"/script",
		"--wait=ready", "--timeout", patience.String(), small, guestImage)
	if r.exit != 0 || !strings.Contains(r.stderr, ", set-up done") {
		t.Fatalf("schedule --wait=ready: %v", r)
	}
	id := c.id(r.stdout)
	for _, step := range []struct {
		name string
		run  func(c *cloud, id string)
	}{
		{"it is as ordered, and answers", isAsOrdered},
		{"its key and user-data have reached it through its metadata", hasKeyAndUserData},
		{"bad requests change nothing", badRequests},
		{"stop and start keep its disk and its address", stopAndStart},
		{"neither the end of the agent nor its return touches it", survivesTheAgent},
	} {
		if !c.step(step.name, func() { step.run(c, id) }) {
			return // later steps depend on it
		}
	}
	c.somethingThere(id)
	c.must("destroy", "--wait", "hello")
	c.nothingLeft(id)
	if r := c.schedule("hello"); r.exit != 3 {
		t.Errorf("asking for a destroyed instance: %v, want exit code 3", r)
	}
}

// step runs a subtest that uses the cloud, and reports whether it succeeded.
func (c *cloud) step(name string, run func()) bool {
	parent := c.t
	defer func() { c.t = parent }()
	return parent.Run(name, func(t *testing.T) {
		c.t = t
		run()
	})
}

func isAsOrdered(c *cloud, id string) {
	if st := c.show("hello"); st.ID != id || st.State != "running" {
		c.t.Errorf("schedule says %+v, want %s running", st, id)
	}
	address := c.must(id)
	if byName := c.must("hello"); byName != address {
		c.t.Errorf("its address is %q by name and %q by UUID", byName, address)
	}
	c.mustAnswer(address, "hello", id)
	if list := c.must("list"); !strings.Contains(list, "hello") || !strings.Contains(list, address) {
		c.t.Errorf("schedule list has no hello with %s:\n%s", address, list)
	}
	if log := c.must("console", "hello"); !strings.Contains(log, id) {
		c.t.Errorf("the console does not say that the guest read its metadata:\n%s", log)
	}
	if used := c.usages(); used["VCPU"] != 1 || used["MEMORY_MB"] != 128 || used["DISK_GB"] != 1 {
		c.t.Errorf("claimed is %v, want what was asked for", used)
	}
	c.somethingThere(id)
}

func hasKeyAndUserData(c *cloud, _ string) {
	for _, words := range []string{"metadata: OpenStack tree", "hostname: hello", "the-script-says 42",
		"root may log in with 1 key"} {
		c.waitForConsole("hello", words)
	}
}

func stopAndStart(c *cloud, id string) {
	address := c.must("hello")
	c.must("stop", "--wait", "hello")
	if state := c.show("hello").State; state != "stopped" {
		c.t.Errorf("after stop it is %s", state)
	}
	c.must("start", "--wait", "hello")
	if now := c.must("hello"); now != address {
		c.t.Errorf("its address was %s and is %s", address, now)
	}
	c.mustAnswer(address, "hello", id)
	c.baseIsForReaders(id)
}

// baseIsForReaders checks that the disk's backing image belongs to the agent and that otherwise only QEMU's group
// can read it.
func (c *cloud) baseIsForReaders(id string) {
	c.t.Helper()
	bases, err := filepath.Glob(filepath.Join(c.dir, "instances", id, "base.*"))
	if err != nil || len(bases) != 1 {
		c.t.Fatalf("the disk stands on %v, %v", bases, err)
	}
	fi, err := os.Stat(bases[0])
	if err != nil {
		c.t.Fatal(err)
	}
	stat := fi.Sys().(*syscall.Stat_t)
	if fi.Mode().Perm() != 0o640 || int(stat.Uid) != os.Getuid() || stat.Gid == 0 {
		c.t.Errorf("%s has the mode %v and belongs to %d:%d", bases[0], fi.Mode().Perm(), stat.Uid, stat.Gid)
	}
}

func survivesTheAgent(c *cloud, id string) {
	address := c.must("hello")
	before := libvirttest.Virsh(c.t, "domid", "croft-"+id)

	c.signal(syscall.SIGTERM)
	if list := c.domains(); len(list) != 1 {
		c.t.Errorf("domains after the end of croft up: %v", list)
	}
	c.start()
	c.waitForState(id, "running")
	if after := libvirttest.Virsh(c.t, "domid", "croft-"+id); after != before {
		c.t.Errorf("it was domain %s and is %s: it was started anew", before, after)
	}
	if now := c.must("hello"); now != address {
		c.t.Errorf("its address was %s and is %s", address, now)
	}
	c.mustAnswer(address, "hello", id)
}
