// Package transfertest makes states of a Placement, to test code that copies them. A seed always gives the same state,
// which contains everything that is hard to copy.
package transfertest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/google/uuid"

	"croft"
	"croft/placement/transfer"
)

// Sample makes a state with the given number of hosts: each is below one of a few sites, some have children, some are
// drained or were changed below their claims, and consumers have allocations from several hosts. Every claim fitted its
// inventories at one time.
func Sample(seed uint64, hosts int) *transfer.State {
	g := &generator{rng: rand.New(rand.NewPCG(seed, 1)), state: &transfer.State{
		Classes: []croft.ResourceClass{"CUSTOM_ZZZ_FIRST", "CUSTOM_FPGA"},
		Traits:  []croft.Trait{"CUSTOM_ZINC", "CUSTOM_BRASS"},
	}}
	groups := []string{g.uuid(), g.uuid(), g.uuid()}
	var sites []croft.HostID
	for i := range 2 {
		sites = append(sites, g.provider(fmt.Sprintf("site %d: \"ärmel\" <&>", i), "", nil))
	}
	for i := range hosts {
		var parent croft.HostID
		if i%3 > 0 {
			parent = sites[i%2]
		}
		host := g.provider(fmt.Sprintf("host%d", i), parent, groups[i%3:])
		if i%4 == 1 {
			for n := range 2 {
				g.provider(fmt.Sprintf("host%d_numa%d", i, n), host, nil)
			}
		}
	}
	for i := range hosts * 3 {
		g.consumer(i)
	}
	g.drain()
	slices.SortFunc(g.state.Consumers, func(a, b transfer.Consumer) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	return g.state
}

type generator struct {
	rng   *rand.Rand
	state *transfer.State
}

func (g *generator) uuid() string {
	var b [16]byte
	for i := range b {
		b[i] = byte(g.rng.Uint32())
	}
	u, _ := uuid.FromBytes(b[:]) // 16 bytes are always valid
	return u.String()
}

func (g *generator) provider(name string, parent croft.HostID, groups []string) croft.HostID {
	p := transfer.Provider{ID: croft.HostID(g.uuid()), Name: name, Parent: parent, Generation: g.rng.Int64N(100),
		Aggregates: slices.Sorted(slices.Values(groups)), Inventories: map[croft.ResourceClass]croft.Inventory{}}
	offer := func(class croft.ResourceClass, total, reserved, step int64, ratio float64) {
		p.Inventories[class] = croft.Inventory{Total: total, Reserved: reserved, MinUnit: step, MaxUnit: total,
			StepSize: step, AllocationRatio: ratio}
	}
	if groups != nil || parent == "" || g.rng.IntN(2) == 0 {
		offer(croft.VCPU, 16, 2, 1, 16)
		offer(croft.MemoryMB, 32768, 512, 256, 1.5)
	}
	if g.rng.IntN(3) == 0 {
		offer("CUSTOM_FPGA", 2, 0, 1, 1)
		p.Traits = append(p.Traits, "CUSTOM_BRASS", "CUSTOM_ZINC")
	}
	if g.rng.IntN(2) == 0 {
		p.Traits = append(p.Traits, "HW_CPU_X86_AVX2")
	}
	g.state.Providers = append(g.state.Providers, p)
	return p.ID
}

// consumer claims remaining capacity of one to three providers.
func (g *generator) consumer(i int) {
	c := transfer.Consumer{ID: croft.InstanceID(g.uuid()), Generation: 1 + g.rng.Int64N(5),
		Project: fmt.Sprintf("project %d", i%4), User: "user",
		Type: []string{"INSTANCE", "MIGRATION", ""}[i%3], Allocations: map[croft.HostID]croft.Resources{}}
	for range 1 + g.rng.IntN(3) {
		p := g.state.Providers[g.rng.IntN(len(g.state.Providers))]
		for class, offer := range p.Inventories {
			n := offer.StepSize
			if g.used(p.ID, class)+2*n <= offer.Capacity() && c.Allocations[p.ID][class] == 0 {
				if c.Allocations[p.ID] == nil {
					c.Allocations[p.ID] = croft.Resources{}
				}
				c.Allocations[p.ID][class] = n
			}
		}
	}
	if len(c.Allocations) > 0 {
		g.state.Consumers = append(g.state.Consumers, c)
	}
}

func (g *generator) used(id croft.HostID, class croft.ResourceClass) int64 {
	sum := int64(0)
	for _, c := range g.state.Consumers {
		sum += c.Allocations[id][class]
	}
	return sum
}

// drain reserves everything of some providers, and lets others be claimed only as a whole.
func (g *generator) drain() {
	for i, p := range g.state.Providers {
		for _, class := range slices.Sorted(maps.Keys(p.Inventories)) {
			offer := p.Inventories[class]
			switch i % 5 {
			case 3:
				offer.Reserved = offer.Total
			case 4:
				offer.MinUnit, offer.StepSize = offer.Total, offer.Total
			}
			p.Inventories[class] = offer
		}
	}
}

// WithoutGenerations returns a state without the generations, which a server counts itself, for comparisons of states
// that were copied through an API.
func WithoutGenerations(s *transfer.State) *transfer.State {
	out := &transfer.State{Classes: s.Classes, Traits: s.Traits, Providers: slices.Clone(s.Providers),
		Consumers: slices.Clone(s.Consumers)}
	for i := range out.Providers {
		out.Providers[i].Generation = 0
	}
	for i := range out.Consumers {
		out.Consumers[i].Generation = 0
	}
	return out
}
