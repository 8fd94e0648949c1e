package libvirt_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"croft/compute/hypervisor/hvtest"
	"croft/compute/hypervisor/libvirt"
	"croft/internal/testing/libvirttest"
)

// A host that was switched off starts no guest before its agent has read the orders: a guest may run elsewhere by then.
func TestLibvirtStartsNoGuestByItself(t *testing.T) {
	libvirttest.Start(t)
	d, m := open(t, libvirt.Config{StopGrace: time.Second}), hvtest.Machine(t)
	must(t, d.Define(t.Context(), m))
	t.Cleanup(func() { must(t, d.Remove(context.WithoutCancel(t.Context()), m.ID)) })
	must(t, d.Start(t.Context(), m.ID))
	name := "croft-" + string(m.ID)
	persistent := libvirttest.Virsh(t, "list", "--all", "--persistent", "--name")
	started := libvirttest.Virsh(t, "list", "--all", "--autostart", "--name")
	if !hasLine(persistent, name) || hasLine(started, name) {
		t.Errorf("persistent are %q, and started by libvirt %q; want %s among the first alone", persistent, started, name)
	}
}

func hasLine(text, line string) bool { return slices.Contains(strings.Split(text, "\n"), line) }
