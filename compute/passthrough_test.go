package compute_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"croft"
	"croft/compute"
	"croft/compute/hypervisor/sim"
	"croft/compute/pci"
	"croft/compute/pci/pcitest"
	"croft/internal/testing/patient"
)

const gpus croft.ResourceClass = "CUSTOM_PCI_10DE_2230"

// withGPUs returns a cloud whose host has GPUs at these addresses, each with an IOMMU group.
func withGPUs(t *testing.T, config sim.Config, addresses ...string) (*cloud, *pcitest.Sysfs) {
	t.Helper()
	files := pcitest.New(t)
	for _, address := range addresses {
		files.Add(pcitest.GPU(address, address))
	}
	selectors, err := pci.ParseSelectors([]string{"10de:2230"})
	must(t, err)
	c := newCloudOf(t, config)
	c.pci, c.sweep = pci.Source{Root: files.Root, Selectors: selectors}, 20*time.Millisecond
	return c, files
}

// requestGPUs requests an instance with so many GPUs.
func (c *cloud) requestGPUs(name string, n int64) croft.Instance {
	c.t.Helper()
	return c.requestInstance(croft.Instance{ID: croft.NewInstanceID(), Project: croft.DefaultProject, Name: name,
		Spec: croft.Spec{Image: "http://images/" + name, Resources: croft.Resources{croft.VCPU: 1, croft.MemoryMB: 256,
			croft.DiskGB: 1, gpus: n}}})
}

// devices returns the addresses of the PCI devices of an instance's domain.
func (c *cloud) devices(inst croft.Instance) string {
	c.t.Helper()
	d, err := c.hv.Get(c.t.Context(), inst.ID)
	must(c.t, err)
	var all []string
	for _, u := range d.PCI {
		all = append(all, u.Addresses...)
	}
	return strings.Join(all, " ")
}

// offered waits until the host offers so many GPUs, of a total; 0 of 0: none.
func (c *cloud) offered(usable, total int64) {
	c.t.Helper()
	patient.Until(c.t, fmt.Sprintf("%d of %d GPUs are offered", usable, total), func() bool {
		got, has := c.ledger.offers(gpus)
		return has == (total > 0) && got.Total == total && got.Total-got.Reserved == usable
	})
}

func TestEveryInstanceHasDevicesOfItsOwn(t *testing.T) {
	t.Parallel()
	const first, second, third = "0000:01:00.0", "0000:02:00.0", "0000:03:00.0"
	c, files := withGPUs(t, sim.Config{}, first, second, third)
	agent := c.start()
	c.offered(3, 3)
	one := c.requestGPUs("one", 1)
	c.await(one, croft.StateRunning)
	two := c.requestGPUs("two", 2)
	c.await(two, croft.StateRunning)
	if c.devices(one) != first || c.devices(two) != second+" "+third {
		t.Fatalf("they have %s and %s", c.devices(one), c.devices(two))
	}
	none := c.request("none")
	c.await(none, croft.StateRunning)
	if got := c.devices(none); got != "" {
		t.Errorf("an instance that asked for none has %s", got)
	}

	// A claim that exceeds the devices, as after a device was taken out, waits.
	more := c.requestGPUs("more", 1)
	if seen := c.await(more, croft.StateFailed); !strings.Contains(seen.Error,
		"its host has no free device of CUSTOM_PCI_10DE_2230") || seen.ErrorKind != croft.Conflict {
		t.Errorf("one more says %q, %q", seen.Error, seen.ErrorKind)
	}
	c.offered(3, 4)
	c.problem("4 of CUSTOM_PCI_10DE_2230 are claimed and 3 offered")
	one = c.reorder(one, croft.WantGone)
	c.await(one, "")
	agent.Resync(t.Context())
	c.await(more, croft.StateRunning)
	if got := c.devices(more); got != first {
		t.Errorf("the next has %s", got)
	}
	c.offered(3, 3)

	// A guest that is off keeps its device, as does its domain, and the next agent sees that.
	more = c.reorder(more, croft.WantStopped)
	c.await(more, croft.StateStopped)
	c.stop()
	if got, _ := c.ledger.offers(gpus); got.Capacity() != 0 || got.Total != 3 {
		t.Errorf("without an agent the host offers %+v", got)
	}
	files.Add(pcitest.GPU("0000:00:09.0", "9"))
	c.start()
	c.offered(4, 4)
	next := c.requestGPUs("next", 1)
	c.await(next, croft.StateRunning)
	more = c.reorder(more, croft.WantRunning)
	c.await(more, croft.StateRunning)
	if c.devices(next) != "0000:00:09.0" || c.devices(more) != first {
		t.Errorf("after a restart of the agent they have %s and %s", c.devices(next), c.devices(more))
	}
}

func TestAGuestWhoseDeviceIsGoneGetsAnotherOrWaits(t *testing.T) {
	t.Parallel()
	const first, second = "0000:01:00.0", "0000:02:00.0"
	c, files := withGPUs(t, sim.Config{}, first, second)
	agent := c.start()
	inst := c.requestGPUs("web", 1)
	c.await(inst, croft.StateRunning)
	inst = c.reorder(inst, croft.WantStopped)
	c.await(inst, croft.StateStopped)

	c.hv.TakePCI(first, "win10") // a machine that is not croft's
	c.problem(`the PCI device 0000:01:00.0 (10de:2230) is not offered: the machine "win10", which is not croft's, has it`)
	c.offered(1, 1)
	inst = c.reorder(inst, croft.WantRunning)
	c.await(inst, croft.StateRunning)
	if got := c.devices(inst); got != second {
		t.Errorf("it has %s", got)
	}

	inst = c.reorder(inst, croft.WantStopped)
	c.await(inst, croft.StateStopped)
	files.Remove(second)
	inst = c.reorder(inst, croft.WantRunning)
	if seen := c.await(inst, croft.StateFailed); !strings.Contains(seen.Error,
		"`schedule move` takes it to another host") {
		t.Errorf("it says %q", seen.Error)
	}
	c.offered(0, 1) // never less than is claimed
	c.problem("1 of CUSTOM_PCI_10DE_2230 are claimed and 0 offered")

	files.Add(pcitest.GPU(second, "2"))
	c.offered(1, 1)
	agent.Resync(t.Context())
	c.await(inst, croft.StateRunning)
	inst = c.reorder(inst, croft.WantGone)
	c.await(inst, "")
	files.Remove(second)
	c.offered(0, 0)
	c.hv.TakePCI(first, "")
	c.offered(1, 1)
}

// The agent dies between its steps; a definition that it asked for may take effect later.
func TestNoTwoGuestsHaveADeviceWhenTheAgentDies(t *testing.T) {
	t.Parallel()
	var fail atomic.Value // the operation that fails
	fail.Store("")
	config := sim.Config{Fault: func(_ context.Context, op string, _ croft.InstanceID) error {
		if op == fail.Load() {
			return croft.Errorf(croft.Unavailable, "libvirt is away")
		}
		return nil
	}}
	const first, second = "0000:01:00.0", "0000:02:00.0"
	c, _ := withGPUs(t, config, first, second)
	c.start()
	fail.Store(sim.OpDefine)
	one := c.requestGPUs("one", 1)
	c.await(one, croft.StateFailed) // its device is chosen, and not recorded
	fail.Store("")
	two := c.requestGPUs("two", 1)
	c.await(two, croft.StateRunning)
	if got := c.devices(two); got != second {
		t.Errorf("the second instance has %s, which the first may have", got)
	}
	c.stop()

	// The former agent's definition of the first instance takes effect late: both domains have a device.
	must(t, c.hv.Define(t.Context(), compute.Machine{ID: one.ID, Partition: c.store.Partition(),
		Ordered: compute.Ordered{Generation: one.Generation, Project: one.Project}, VCPUs: 1, MemoryMiB: 256,
		NICs: []compute.NIC{{Network: "default"}},
		PCI:  []compute.PCI{{Class: gpus, Addresses: []string{second}}}}))
	c.start()
	c.await(one, croft.StateRunning)
	if c.devices(one) != first || c.devices(two) != second {
		t.Errorf("they have %s and %s", c.devices(one), c.devices(two))
	}
}

// An instance that was lost with its host leaves a domain that nothing claims for.
func TestALostInstanceKeepsNoDeviceFromOthers(t *testing.T) {
	t.Parallel()
	c, _ := withGPUs(t, sim.Config{}, "0000:01:00.0")
	c.start()
	lost := c.requestGPUs("lost", 1)
	c.await(lost, croft.StateRunning)
	lost = c.reorder(lost, croft.WantLeft)
	patient.Until(t, "the lost guest is off", func() bool {
		d, err := c.hv.Get(t.Context(), lost.ID)
		return err == nil && d.Power == compute.PowerOff
	})
	c.ledger.claim(lost.ID) // without the device
	next := c.requestGPUs("next", 1)
	c.await(next, croft.StateRunning)
	if got := c.devices(next); got != "0000:01:00.0" || !slices.Contains([]string{got}, c.devices(lost)) {
		t.Errorf("they have %s and %s", got, c.devices(lost))
	}
}
