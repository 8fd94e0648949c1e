package runtime_test

import (
	"context"
	"crypto/rand"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"croft"
	"croft/grid/machine"
	"croft/grid/runtime"
	"croft/grid/runtime/runtimetest"
	"croft/grid/unit"
)

// networkNode is a node with a separate network: a network namespace with the interface lan.
type networkNode struct{ namespace string }

func newNetworkNode(t *testing.T) networkNode {
	t.Helper()
	n := networkNode{"croft-" + strings.ToLower(rand.Text()[:8])}
	if out, err := exec.Command("ip", "netns", "add", n.namespace).CombinedOutput(); err != nil {
		t.Skipf("a network namespace cannot be had here: %v: %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", n.namespace).Run() })
	if out, err := n.ip("link", "add", "lan", "type", "veth", "peer", "name", "far"); err != nil {
		t.Skipf("an interface cannot be had here: %v: %s", err, out)
	}
	for _, args := range []string{"link set lo up", "link set far up", "link set lan up",
		"address add 10.77.0.250/24 dev lan", "address add fd77::fa/64 dev lan nodad"} {
		if out, err := n.ip(strings.Fields(args)...); err != nil {
			t.Fatalf("ip %s: %v: %s", args, err, out)
		}
	}
	return n
}

func (n networkNode) Start(ctx context.Context, c machine.Command) (machine.Process, error) {
	c.Argv = append([]string{"ip", "netns", "exec", n.namespace}, c.Argv...)
	return machine.Local{}.Start(ctx, c)
}

func (n networkNode) ip(args ...string) (string, error) {
	out, err := exec.Command("ip", append([]string{"-n", n.namespace}, args...)...).CombinedOutput()
	return string(out), err
}

// wants checks whether the interface lan has an address.
func (n networkNode) wants(t *testing.T, when, address string, wanted bool) {
	t.Helper()
	out, err := n.ip("-o", "address", "show", "dev", "lan", "to", address)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if has := strings.TrimSpace(out) != ""; has != wanted {
		t.Errorf("%s: the interface has %s: %t, want %t", when, address, has, wanted)
	}
}

// do runs the same steps as apply, in the same order.
func (n networkNode) do(t *testing.T, u unit.Unit,
	steps ...func(context.Context, machine.Machine, unit.Unit) error) {
	t.Helper()
	for _, step := range steps {
		if err := step(t.Context(), n, u); err != nil {
			t.Fatal(err)
		}
	}
}

// pooled returns a suite on a node, with units that have an address of a pool.
func pooled(t *testing.T, n networkNode, address, through string) (runtimetest.Suite, *runtime.Runtime) {
	s := runtimetest.Suite{
		Name:     "process",
		Machine:  n,
		StateDir: stateDir(t),
		Change: func(_ *testing.T, u *unit.Unit) {
			u.Image, u.Address, u.Interface, u.Pooled = unit.Image{}, address, through, true
			u.Command = []string{"sh", "-c", "while :; do sleep 1; done"}
		},
	}
	return s, s.Open(t)
}

func TestAnAddressOfAPoolIsOnAnInterfaceWhileItsUnitRuns(t *testing.T) {
	t.Parallel()
	runtimetest.Need(t, "unshare", "setsid", "nsenter", "chroot", "ip")
	for name, c := range map[string]struct{ address, through string }{
		"on the interface that leads to it": {"10.77.0.7", ""},
		"on the one that is named":          {"192.0.2.7", "lan"},
		"IPv6":                              {"fd77::7", ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetworkNode(t)
			s, r := pooled(t, n, c.address, c.through)
			u := s.Unit(t)
			n.do(t, u, r.Prepare, r.Create)
			n.wants(t, "before the unit runs", c.address, false)
			n.do(t, u, r.Start, r.Start)
			n.wants(t, "while it runs", c.address, true)

			kill(s.StateDir)(t, u)
			if out, err := n.ip("address", "flush", "to", c.address); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			n.wants(t, "after a reboot", c.address, false)
			n.do(t, u, r.Start)
			n.wants(t, "after the next apply", c.address, true)

			n.do(t, u, r.Stop, r.Stop)
			n.wants(t, "when it has ended", c.address, false)
			n.do(t, u, r.Start, r.Stop, r.Remove)
			n.wants(t, "when it is removed", c.address, false)
		})
	}
}

func TestAnAddressMovesWithItsUnit(t *testing.T) {
	t.Parallel()
	runtimetest.Need(t, "unshare", "setsid", "nsenter", "chroot", "ip")
	const address = "10.77.0.7"
	from, to := newNetworkNode(t), newNetworkNode(t)
	s, r := pooled(t, from, address, "")
	u := s.Unit(t)
	from.do(t, u, r.Prepare, r.Create, r.Start)
	_, there := pooled(t, to, address, "")
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(there.Stop(ctx, to, u), there.Remove(ctx, to, u)); err != nil {
			t.Error(err)
		}
	})
	from.do(t, u, r.Stop, r.Remove)
	to.do(t, u, there.Prepare, there.Create, there.Start)
	from.wants(t, "where the unit left", address, false)
	to.wants(t, "where it is now", address, true)
}

func TestAnAddressThatAnInterfaceHadIsLeftAlone(t *testing.T) {
	t.Parallel()
	runtimetest.Need(t, "unshare", "setsid", "nsenter", "chroot", "ip")
	n := newNetworkNode(t)
	s, r := pooled(t, n, "10.77.0.250", "")
	u := s.Unit(t)
	n.do(t, u, r.Prepare, r.Create, r.Start, r.Stop, r.Remove)
	n.wants(t, "after a unit that had it too", "10.77.0.250", true)
}

func TestAnAddressToWhichNoInterfaceLeadsIsToldWithARemedy(t *testing.T) {
	t.Parallel()
	runtimetest.Need(t, "unshare", "setsid", "nsenter", "chroot", "ip")
	n := newNetworkNode(t)
	s, r := pooled(t, n, "198.51.100.7", "")
	u := s.Unit(t)
	n.do(t, u, r.Prepare, r.Create)
	if err := r.Start(t.Context(), n, u); croft.KindOf(err) != croft.Invalid ||
		!strings.Contains(err.Error(), "write interface: NAME") {
		t.Errorf("%v", err)
	}
}
