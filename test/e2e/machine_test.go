package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"croft/internal/testing/libvirttest"
)

// small is a request for the smallest useful guest.
const small = "resources=VCPU:1,MEMORY_MB:128,DISK_GB:1"

// TestOneMachine tests the main path from end to end: claim, order, boot, metadata, address, and a destroy that
// leaves nothing.
func TestOneMachine(t *testing.T) {
	c := sharedCloud(t)
	id := c.id(c.must("--name", "hello", "--wait", small, guestImage))

	if st := c.show("hello"); st.Instance.ID != id || st.Observation.State != "running" {
		t.Errorf("schedule says %+v, want %s running", st, id)
	}
	address := c.must(id)
	if byName := c.must("hello"); byName != address {
		t.Errorf("its address is %q by name and %q by UUID", byName, address)
	}
	c.mustAnswer(address, "hello", id)
	if list := c.must("list"); !strings.Contains(list, "hello") || !strings.Contains(list, address) {
		t.Errorf("schedule list has no hello with %s:\n%s", address, list)
	}
	if log := c.must("console", "hello"); !strings.Contains(log, id) {
		t.Errorf("the console does not say that the guest read its metadata:\n%s", log)
	}
	if used := c.usages(); used["VCPU"] != 1 || used["MEMORY_MB"] != 128 || used["DISK_GB"] != 1 {
		t.Errorf("claimed is %v, want what was asked for", used)
	}

	c.somethingThere(id)
	c.must("destroy", "--wait", "hello")
	c.nothingLeft(id)
	if r := c.schedule("hello"); r.exit != 3 {
		t.Errorf("asking for a destroyed instance: %v, want exit code 3", r)
	}
}

// TestKeysAndUserData: both reach the guest through its metadata.
func TestKeysAndUserData(t *testing.T) {
	c := sharedCloud(t)
	c.write(c.home+"/script", "#!/bin/sh\necho the-script-says $((6 * 7))\n")
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEB somebody@somewhere"
	id := c.id(c.must("--name", "keyed", "--wait", "--key", key, "--user-data", c.home+"/script", small, guestImage))

	c.mustAnswer(c.must("keyed"), "keyed", id)
	c.waitForConsole("keyed", "the-script-says 42")
	c.waitForConsole("keyed", "root may log in with 1 key")
	c.must("destroy", "--wait", id)
	c.nothingLeft(id)
}

func TestTwoRequestsAtOnceBothComeUp(t *testing.T) {
	c := sharedCloud(t)
	ids := make([]string, 2)
	var work sync.WaitGroup
	for i := range ids {
		work.Go(func() {
			r := c.schedule("--name", fmt.Sprintf("twin-%d", i), "--wait", small, guestImage)
			if r.exit != 0 {
				t.Errorf("twin-%d: %v", i, r)
				return
			}
			ids[i] = c.id(r.stdout)
		})
	}
	work.Wait()
	if t.Failed() {
		return
	}
	for i, id := range ids {
		c.mustAnswer(c.must(id), fmt.Sprintf("twin-%d", i), id)
	}
	c.must(slices.Concat([]string{"destroy", "--wait"}, ids)...)
	c.nothingLeft(ids...)
}

// TestStopAndStart: both keep the disk and the address.
func TestStopAndStart(t *testing.T) {
	c := sharedCloud(t)
	id := c.id(c.must("--name", "sleeper", "--wait", small, guestImage))
	c.must("stop", "--wait", "sleeper")
	if state := c.show("sleeper").Observation.State; state != "stopped" {
		t.Errorf("after stop it is %s", state)
	}
	c.must("start", "--wait", "sleeper")
	c.mustAnswer(c.must("sleeper"), "sleeper", id)
	c.baseIsForReaders(id)
	c.must("destroy", "--wait", "sleeper")
	c.nothingLeft(id)
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

// TestGuestsSurviveTheAgent: neither a regular stop nor a restart touches them.
func TestGuestsSurviveTheAgent(t *testing.T) {
	c := sharedCloud(t)
	id := c.id(c.must("--name", "survivor", "--wait", small, guestImage))
	address := c.must("survivor")
	before := libvirttest.Virsh(t, "domid", "croft-"+id)

	c.signal(syscall.SIGTERM)
	if list := c.domains(); len(list) != 1 {
		t.Errorf("domains after the end of croft up: %v", list)
	}
	c.start()
	c.waitForState(id, "running")
	if after := libvirttest.Virsh(t, "domid", "croft-"+id); after != before {
		t.Errorf("it was domain %s and is %s: it was started anew", before, after)
	}
	if now := c.must("survivor"); now != address {
		t.Errorf("its address was %s and is %s", address, now)
	}
	c.mustAnswer(address, "survivor", id)
	c.must("destroy", "--wait", "survivor")
	c.nothingLeft(id)
}
