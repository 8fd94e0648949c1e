package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"
)

// snapshot runs croft snapshot, which must succeed, and returns its messages.
func (c *cloud) snapshot(args ...string) string {
	c.t.Helper()
	r := c.run("croft", append([]string{"snapshot"}, args...)...)
	if r.exit != 0 {
		c.t.Fatalf("croft snapshot %s: %v", strings.Join(args, " "), r)
	}
	return r.stderr
}

// TestAGuestIsRolledBackToASnapshot: what a guest wrote before the snapshot is on its disk and on its volume after the
// rollback, and what it wrote later is not. The snapshots are removed while the guest runs and while it is off.
func TestAGuestIsRolledBackToASnapshot(t *testing.T) {
	t.Parallel()
	c := sharedCloud(t)
	key := c.newKey()
	c.volume("create", "data", "1G")
	id := c.id(c.must("--name", "rolls", "--key", key+".pub", "--volume", "data", "--wait=ready",
		"VCPU:1,MEMORY_MB:256,DISK_GB:10", guestImage))
	try := func(command, want string) error {
		r := c.schedule("ssh", "--user", "root", "--identity", key, "rolls",
			`for d in /sys/block/vd*; do [ "$(cat $d/serial)" = data ] && disk=/dev/${d##*/}; done; `+command)
		if r.exit != 0 || strings.TrimSpace(r.stdout) != want {
			return fmt.Errorf("%s: %v, want %q", command, r, want)
		}
		return nil
	}
	must := func(command, want string) {
		t.Helper()
		if err := try(command, want); err != nil {
			t.Fatal(err)
		}
	}
	// The guest's files are in memory: on its own disk the text is beyond the image.
	write := func(text string) {
		t.Helper()
		eventually(t, "the guest writes", func(context.Context) error {
			return try("echo "+text+" > $disk; "+
				"echo "+text+" | dd of=/dev/vda bs=512 seek=8000000 conv=notrunc; sync", "")
		})
	}
	const read = "head -n 1 $disk; dd if=/dev/vda bs=512 skip=8000000 count=1 | head -n 1"
	reads := func(text string) { t.Helper(); must(read, text+"\n"+text) }
	gone := func(name string) {
		t.Helper()
		eventually(t, "the snapshot is removed", func(context.Context) error {
			if r := c.run("croft", "snapshot", "list", "rolls"); r.exit != 0 || strings.Contains(r.stdout, name) {
				return fmt.Errorf("%v", r)
			}
			return nil
		})
	}
	write("first")
	begun := time.Now()
	said := c.snapshot("create", "rolls", "before")
	if !strings.Contains(said, "the guest was not quiesced: no guest agent is connected") {
		t.Errorf("the message is %q", said)
	}
	t.Logf("a snapshot of 10 GB took %v with the command", time.Since(begun))
	write("second")
	reads("second")
	c.snapshot("rollback", "rolls", "before", "--stop")
	eventually(t, "the guest has the first text again", func(context.Context) error {
		return try(read, "first\nfirst")
	})

	write("third")
	c.snapshot("create", "rolls", "later")
	write("fourth")
	c.snapshot("remove", "rolls", "before") // in the middle of the chain
	gone("before")
	reads("fourth")
	c.snapshot("remove", "rolls", "later") // on its top
	gone("later")
	write("fifth")
	reads("fifth")

	c.must("stop", "--wait", "rolls")
	c.snapshot("create", "rolls", "off")
	c.must("start", "--wait=ready", "rolls")
	write("sixth")
	c.must("stop", "--wait", "rolls")
	c.snapshot("remove", "rolls", "off")
	gone("off")
	c.snapshot("create", "rolls", "last")
	c.must("start", "--wait=ready", "rolls")
	eventually(t, "the guest has the sixth text", func(context.Context) error { return try(read, "sixth\nsixth") })
	write("seventh")

	// The volume keeps what was written after the snapshot, when the instance ends with its snapshots.
	c.must("destroy", "--snapshots", "--wait", "rolls")
	id2 := c.id(c.must("--name", "rolls", "--key", key+".pub", "--volume", "data", "--wait=ready", small, guestImage))
	eventually(t, "the volume has the last text", func(context.Context) error {
		return try("head -n 1 $disk", "seventh")
	})
	c.must("destroy", "--wait", "rolls")
	c.volume("remove", "data")
	c.nothingLeft(id, id2)
}
