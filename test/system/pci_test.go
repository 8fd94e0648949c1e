package system

import (
	"context"
	"fmt"
	"testing"

	"croft"
	"croft/compute"
	"croft/compute/pci"
	"croft/compute/pci/pcitest"
)

const (
	gpuClass croft.ResourceClass = "CUSTOM_PCI_10DE_2230"
	firstGPU string              = "0000:01:00.0"
)

// gpusOf returns the selection of both GPUs of a machine.
func gpusOf(t *testing.T) pci.Source {
	selectors, err := pci.ParseSelectors([]string{"10de:2230"})
	if err != nil {
		t.Fatal(err)
	}
	files := pcitest.New(t, pcitest.GPU(firstGPU, "1"), pcitest.GPU("0000:02:00.0", "2"))
	return pci.Source{Root: files.Root, Selectors: selectors}
}

// takeGPU gives a GPU of the host to a machine that is not croft's, unless a guest uses it; empty: gives it back.
func (m *machine) takeGPU(name string) { m.hv.TakePCI(firstGPU, name) }

// sharedGPUs lists the PCI devices that two guests of a host use at one moment.
func sharedGPUs(host int, domains []compute.Domain) (bad []string) {
	by := map[string]croft.InstanceID{}
	for _, d := range domains {
		for _, unit := range d.PCI {
			for _, address := range unit.Addresses {
				if d.Power == compute.PowerOff {
					continue
				}
				if other, used := by[address]; used {
					bad = append(bad, fmt.Sprintf("PCI devices are as claimed: the guests of %s and %s on host%d use %s",
						other, d.ID, host, address))
				}
				by[address] = d.ID
			}
		}
	}
	return bad
}

// devicesAreAsClaimed: every guest has as many PCI devices as its instance claims, and no two that run have the same.
func (w *world) devicesAreAsClaimed(ctx context.Context) (bad []string) {
	all, err := w.store.Instances.List(ctx, "")
	if err != nil {
		return []string{err.Error()}
	}
	for _, m := range w.hosts {
		claims, err := w.claims.Claims(ctx, m.id)
		if err != nil {
			return []string{err.Error()}
		}
		domains, err := m.hv.List(ctx)
		if err != nil {
			return []string{err.Error()}
		}
		bad = append(bad, sharedGPUs(m.n, domains)...)
		has := map[croft.InstanceID]int64{}
		for _, d := range domains {
			has[d.ID] = int64(len(d.PCI))
		}
		for _, st := range all {
			id := st.Instance.ID
			if got, want := has[id], claims[id][gpuClass]; st.Instance.Host == m.id && w.isBuilt(st) && got != want {
				bad = append(bad, fmt.Sprintf("the guest of %s on host%d has %d PCI devices, and claims %d", id, m.n, got, want))
			}
		}
	}
	return bad
}
