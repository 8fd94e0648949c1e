package compute_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/sim"
)

// beside returns another machine of the same cloud, with its own guests and directory.
func (c *cloud) beside(host croft.Host) *cloud {
	c.t.Helper()
	hv, err := sim.New(sim.Config{})
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = hv.Close() })
	other := *c
	other.hv, other.host, other.dir, other.stop = hv, host, c.t.TempDir(), nil
	other.ledger = &ledger{claims: map[croft.InstanceID]croft.Resources{}}
	return &other
}

// problem polls the problems in the host's record until want is among them; empty: until there are none.
func (c *cloud) problem(want string) croft.Host {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	for {
		hosts, err := c.store.Registry.Hosts(ctx)
		if err != nil {
			c.t.Fatalf("no host with the problem %q: %v", want, err)
		}
		h := hosts[c.host.ID]
		said := strings.Join(h.Problems, "\n")
		if want == "" && said == "" || want != "" && strings.Contains(said, want) {
			return h
		}
	}
}

func (c *cloud) guests() []compute.Domain {
	c.t.Helper()
	domains, err := c.hv.List(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	return domains
}

func TestASecondAgentOfOneUUIDDoesNothing(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.host.Place = "the machine"
	c.start()
	inst := c.request("web")
	c.await(inst, croft.StateRunning)

	twin := c.host
	twin.Place, twin.API = "its copy", "http://copy"
	copied := c.beside(twin)
	agent := copied.launch(func() { t.Error("the copy says that it takes orders") })
	copied.problem("a second agent has the host's UUID, h1 at http://copy, and does nothing")
	inst = c.reorder(inst, croft.WantStopped)
	c.await(inst, croft.StateStopped)
	inst = c.reorder(inst, croft.WantRunning)
	c.await(inst, croft.StateRunning)
	agent.Resync(t.Context())

	// The first agent ends and its guest keeps running: the copy must not create it again.
	c.stop()
	copied.problem("a second agent")
	agent.Resync(t.Context())
	if found := copied.guests(); len(found) != 0 {
		t.Fatalf("the copy made %v", found)
	}
	if len(copied.ledger.provider.ID) != 0 {
		t.Error("the copy offers its inventory")
	}
	// The copy does not prevent the first agent from returning.
	c.start()
	c.await(c.reorder(inst, croft.WantStopped), croft.StateStopped)
}

func TestAnAgentOfAnotherPlaceServesAHostOnceItIsAccepted(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.host.Place = "before"
	c.start()
	inst := c.request("web")
	c.await(inst, croft.StateRunning)
	c.stop()
	inst = c.reorder(inst, croft.WantGone) // tombstones are not carried out either
	c.host.Place = "after the disks went into another machine"
	ready := make(chan struct{})
	c.launch(func() { close(ready) })
	c.problem("a second agent has the host's UUID")
	if found := c.guests(); len(found) != 1 {
		t.Fatalf("got %v, want that nothing is done before it is accepted", found)
	}
	if err := c.store.Registry.Accept(t.Context(), c.host.ID); err != nil {
		t.Fatal(err)
	}
	<-ready
	c.await(inst, "")
	if h := c.problem(""); h.Place != c.host.Place {
		t.Errorf("the record says %q", h.Place)
	}
}

func TestAnAgentOfAnotherPlaceServesAHostThatHasNothing(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.host.Place = "before"
	c.start()
	c.stop()
	moved := c.host
	moved.Place = "elsewhere"
	c.beside(moved).start()
}

func TestGuestsOfALostStateDirectoryAreNamedAndLeftAlone(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.start()
	inst := c.request("web")
	c.await(inst, croft.StateRunning)
	c.stop()

	old := c.host
	c.host = croft.Host{ID: croft.NewHostID(), Name: "h1-anew", VirtType: "sim"}
	agent := c.start()
	agent.Resync(t.Context())
	sweep(t, agent)
	sweep(t, agent)
	h := c.problem("a guest of an instance that belongs to host " + old.Name)
	if !strings.Contains(h.Problems[0], "host-id") && !strings.Contains(h.Problems[0], "state directory") {
		t.Errorf("%q does not say what happened", h.Problems[0])
	}
	if found := c.guests(); len(found) != 1 || found[0].Power != compute.PowerOn {
		t.Errorf("got %v, want the guest as it was", found)
	}
	if _, err := os.Stat(filepath.Join(c.dir, string(inst.ID))); err != nil {
		t.Errorf("its disks: %v", err)
	}
	// With its identity restored, the host has its guest again.
	c.stop()
	c.host = old
	c.start()
	c.await(c.reorder(inst, croft.WantGone), "")
}

func TestARenamedHostIsTheSameHost(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.start()
	inst := c.request("web")
	c.await(inst, croft.StateRunning)
	c.stop()
	c.host.Name = "h2"
	c.start()
	if h := c.problem(""); h.Name != "h2" || h.FormerName != "h1" {
		t.Errorf("got %q, once %q", h.Name, h.FormerName)
	}
	c.stop()
	c.start()
	if h := c.problem(""); h.FormerName != "h1" {
		t.Errorf("the next start forgot the former name: %q", h.FormerName)
	}
	c.await(c.reorder(inst, croft.WantStopped), croft.StateStopped)
}

func TestAHostThatShrankSaysSoUntilItIsOver(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	agent := c.start()
	inst := c.request("web")
	c.await(inst, croft.StateRunning)
	large := croft.NewInstanceID()
	c.ledger.mu.Lock()
	c.ledger.claims[large] = croft.Resources{croft.MemoryMB: 1 << 40}
	c.ledger.mu.Unlock()
	sweep(t, agent)
	c.problem("it has become smaller than its use: 1099511627776 of MEMORY_MB are claimed")
	if found := c.guests(); len(found) != 1 || found[0].Power != compute.PowerOn {
		t.Errorf("got %v, want the guest as it was", found)
	}
	sweep(t, agent) // this also releases claims without a record
	sweep(t, agent)
	c.problem("")
}

func TestAHostWhoseNameIsTakenSaysSo(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.ledger.taken = "h1"
	c.start()
	c.problem("another host has the name h1")
}

func TestAForgottenHostTellsThatItIsForgotten(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	agent := c.start()
	c.ledger.mu.Lock()
	c.ledger.gone = true
	c.ledger.mu.Unlock()
	if err := c.store.Registry.ForgetHost(t.Context(), c.host.ID); err != nil {
		t.Fatal(err)
	}
	sweep(t, agent)
	hosts, err := c.store.Registry.Hosts(t.Context())
	if err != nil || len(hosts) != 0 {
		t.Errorf("got %v, %v; want that a sweep brings no host back", hosts, err)
	}
}

func TestWhatMovedIsBuiltOnceTheOldHostHasNothingLeft(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.start()
	inst := c.request("web")
	c.await(inst, croft.StateRunning)
	c.stop() // the old host is slow to carry out its tombstone

	there := c.beside(croft.Host{ID: croft.NewHostID(), Name: "h2", VirtType: "sim"})
	there.ledger = c.ledger // both use one Placement
	c.ledger.at = map[croft.InstanceID]croft.HostID{inst.ID: there.host.ID}
	agent := there.start()
	inst, err := c.store.Instances.SetMoving(t.Context(), inst, there.host.ID)
	if err != nil {
		t.Fatal(err)
	}
	tombstone, order := c.order(inst, croft.WantGone), there.order(inst, croft.WantRunning)
	order.Generation = tombstone.Generation + 1
	for {
		moved, err := c.store.Instances.Relocate(t.Context(), inst, tombstone, order)
		if err == nil {
			inst = moved
			break
		}
		if !isUnavailable(err) { // until the new host is alive
			t.Fatal(err)
		}
	}
	c.await(inst, croft.StatePending)
	agent.Resync(t.Context())
	if found := there.guests(); len(found) != 0 {
		t.Fatalf("the new host made %v while the old one has its guest", found)
	}
	c.start()
	c.await(inst, croft.StateRunning)
	c.bare(inst)
	if !c.ledger.holds(inst.ID) {
		t.Error("the old host gave back the claim, which is the new one's")
	}
}

func TestALocationOfAnotherFormIsAProblemOfTheHost(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.host.Location = "Berlin/DC1"
	c.start()
	c.problem(`the location "Berlin/DC1" has a part "Berlin"`)
}
