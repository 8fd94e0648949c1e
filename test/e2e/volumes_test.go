package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// volume runs croft volume, which must succeed.
func (c *cloud) volume(args ...string) string {
	c.t.Helper()
	r := c.run("croft", append([]string{"volume"}, args...)...)
	if r.exit != 0 {
		c.t.Fatalf("croft volume %s: %v", strings.Join(args, " "), r)
	}
	return r.stdout
}

// TestAVolumeOutlivesItsGuest: what one guest writes on a volume, another guest reads, after the first one released it
// while it runs, and after it grew.
func TestAVolumeOutlivesItsGuest(t *testing.T) {
	t.Parallel()
	c := sharedCloud(t)
	key := c.newKey()
	guest := func(name string, more ...string) string {
		return c.id(c.must(append(more, "--name", name, "--key", key+".pub", "--wait=ready", small, guestImage)...))
	}
	c.volume("create", "data", "1G")
	one, two := guest("one", "--volume", "data"), guest("two")
	// disk runs a command in a guest, in which $disk is the volume: guests find it by its serial number.
	disk := func(name, command string) result {
		return c.schedule("ssh", "--user", "root", "--identity", key, name,
			`for d in /sys/block/vd*; do [ "$(cat $d/serial)" = data ] && disk=/dev/${d##*/}; done; `+command)
	}
	must := func(name, command, want string) {
		t.Helper()
		if r := disk(name, command); r.exit != 0 || strings.TrimSpace(r.stdout) != want {
			t.Fatalf("%s on %s: %v, want %q", command, name, r, want)
		}
	}
	must("one", `echo kept > $disk && sync && cat /sys/block/${disk#/dev/}/size`, "2097152")
	c.volume("grow", "data", "2G")
	eventually(t, "the guest sees the new size", func(context.Context) error {
		if r := disk("one", `cat /sys/block/${disk#/dev/}/size`); strings.TrimSpace(r.stdout) != "4194304" {
			return fmt.Errorf("%v", r)
		}
		return nil
	})
	c.volume("detach", "data")
	must("one", `echo "at $disk"`, "at")
	c.volume("attach", "data", "two")
	hasIt := func(context.Context) error {
		if r := disk("two", `head -n 1 $disk`); strings.TrimSpace(r.stdout) != "kept" {
			return fmt.Errorf("%v", r)
		}
		return nil
	}
	eventually(t, "the other guest has the volume", hasIt)
	c.must("reboot", "--wait", "two")
	eventually(t, "the other guest has the volume after a reboot", hasIt)
	c.must("destroy", "--wait", "one", "two")
	c.volume("grow", "data", "3G")
	three := guest("three", "--volume", "data")
	must("three", `head -n 1 $disk; cat /sys/block/${disk#/dev/}/size`, "kept\n6291456")
	c.must("destroy", "--wait", "three")
	c.volume("remove", "data")
	eventually(t, "the volume is gone", func(context.Context) error {
		if out := c.volume("list"); strings.Contains(out, "data") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	c.nothingLeft(one, two, three)
}
