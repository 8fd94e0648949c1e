package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// TestAGuestGetsAnotherSize: its disk grows while it runs, its processors and memory while it is stopped, and what it
// wrote stays.
func TestAGuestGetsAnotherSize(t *testing.T) {
	t.Parallel()
	c := sharedCloud(t)
	key := c.newKey()
	id := c.id(c.must("--name", "sized", "--key", key+".pub", "--wait=ready", small, guestImage))
	guest := func(command string) result {
		return c.schedule("ssh", "--user", "root", "--identity", key, "sized", command)
	}
	reports := func(command, want string) {
		t.Helper()
		eventually(t, command+" is "+want, func(context.Context) error {
			if r := guest(command); r.exit != 0 || strings.TrimSpace(r.stdout) != want {
				return fmt.Errorf("%v, want %q", r, want)
			}
			return nil
		})
	}
	const sectors, processors = "cat /sys/block/vda/size", "grep -c ^processor /proc/cpuinfo"
	if r := guest("echo kept | dd of=/dev/vda bs=1M seek=1000 && sync"); r.exit != 0 { // behind its partition
		t.Fatal(r)
	}
	c.must("resize", "--wait", "sized", "DISK_GB:2")
	reports(sectors, "4194304")
	c.must("stop", "--wait", "sized")
	c.must("resize", "--wait", "sized", "VCPU:2,MEMORY_MB:192,DISK_GB:3")
	c.must("start", "--wait=ready", "sized")
	reports(processors, "2")
	reports(sectors, "6291456")
	reports("dd if=/dev/vda bs=1M skip=1000 count=1 2> /dev/null | head -n 1", "kept")
	reports(`awk '/MemTotal/ {print ($2 > 150000) ? "more" : $2}' /proc/meminfo`, "more")
	c.must("destroy", "--wait", "sized")
	c.nothingLeft(id)
}
