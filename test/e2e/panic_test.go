package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// TestAGuestWhoseKernelPanickedDoesNotCountAsRunning: its domain still runs, but the list shows that it crashed, and a
// reboot repairs it.
func TestAGuestWhoseKernelPanickedDoesNotCountAsRunning(t *testing.T) {
	t.Parallel()
	c := sharedCloud(t)
	key := c.newKey()
	c.must("--name", "crash", "--key", key+".pub", "--wait=ready", "--timeout", patience.String(), small, guestImage)
	eventually(t, "the guest is told to crash", func(context.Context) error {
		r := c.schedule("ssh", "--user", "root", "--identity", key, "crash",
			"echo 1 > /proc/sys/kernel/sysrq; (sleep 3; echo c > /proc/sysrq-trigger) > /dev/null 2>&1 &")
		if r.exit != 0 {
			return fmt.Errorf("ssh: %v", r)
		}
		return nil
	})
	eventually(t, "the crash is noticed", func(context.Context) error {
		if got := c.must("list", "-o", "wide"); !strings.Contains(got, "failed") || strings.Contains(got, "running") {
			return fmt.Errorf("list says\n%s", got)
		}
		return nil
	})
	if got := c.must("show", "-o", "table", "crash"); !strings.Contains(got, "its kernel panicked") {
		t.Errorf("show says\n%s", got)
	}
	c.must("reboot", "--wait", "--timeout", patience.String(), "crash")
	eventually(t, "the guest answers after a reboot", func(context.Context) error {
		r := c.schedule("ssh", "--user", "root", "--identity", key, "crash", "echo it is me")
		if r.exit != 0 {
			return fmt.Errorf("ssh: %v", r)
		}
		return nil
	})
	c.must("destroy", "--wait", "crash")
}
