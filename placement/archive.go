package placement

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"croft"
	"croft/internal/standard"
	"croft/placement/transfer"
)

// Archive reads and writes the whole state in its Store, with or without servers on
// it. What it reads is of one revision. What it writes that is new can be claimed from
// only when all of it is there; each write compares what Read returned last. An
// Archive is for one goroutine.
type Archive struct {
	Store Store

	read     *state        // what Read returned
	modified map[Key]int64 // revision of each entry that exists
}

var _ transfer.Target = (*Archive)(nil)

// Read implements transfer.Source.
func (a *Archive) Read(ctx context.Context, progress transfer.Progress) (*transfer.State, error) {
	progress("reading etcd", 0, 1)
	snapshot, err := a.Store.Load(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the state of Placement: %w", err)
	}
	a.modified = make(map[Key]int64, len(snapshot.Entries))
	for _, e := range snapshot.Entries {
		a.modified[e.Key] = e.Modified
	}
	a.read = newState(time.Now())
	if err := a.read.apply(max(snapshot.Revision, 1), snapshot.Entries); err != nil {
		return nil, fmt.Errorf("read the state of Placement: %w", err)
	}
	progress("reading etcd", 1, 1)
	return a.read.portable(), nil
}

// portable is all of the state as it can be carried elsewhere.
func (s *state) portable() *transfer.State {
	out := &transfer.State{
		Revision:        s.revision,
		StandardClasses: typed[croft.ResourceClass](standard.Classes()),
		StandardTraits:  typed[croft.Trait](standard.Traits()),
	}
	for x := range s.classes.all() {
		if !x.standard {
			out.Classes = append(out.Classes, croft.ResourceClass(x.name))
		}
	}
	for x := range s.traits.all() {
		if !x.standard {
			out.Traits = append(out.Traits, croft.Trait(x.name))
		}
	}
	for _, p := range s.all {
		out.Providers = append(out.Providers, s.portableProvider(p))
	}
	for _, uuid := range slices.Sorted(maps.Keys(s.consumers)) {
		out.Consumers = append(out.Consumers, s.portableConsumer(s.consumers[uuid]))
	}
	return out
}

func typed[T ~string](names []string) []T {
	out := make([]T, len(names))
	for i, n := range names {
		out[i] = T(n)
	}
	return out
}

func (s *state) portableProvider(p *provider) transfer.Provider {
	out := transfer.Provider{ID: croft.HostID(p.uuid), Name: p.name, Parent: croft.HostID(p.parent), Generation: p.generation,
		Inventories: make(map[croft.ResourceClass]croft.Inventory, len(p.inventories)), Aggregates: slices.Sorted(slices.Values(p.aggregates))}
	for _, i := range p.inventories {
		out.Inventories[croft.ResourceClass(s.className(i.class))] = croft.Inventory{Total: i.total, Reserved: i.reserved,
			MinUnit: i.minUnit, MaxUnit: i.maxUnit, StepSize: i.stepSize, AllocationRatio: i.ratio}
	}
	for _, t := range p.traits {
		out.Traits = append(out.Traits, croft.Trait(s.traitName(t)))
	}
	slices.Sort(out.Traits)
	return out
}

func (s *state) portableConsumer(c *consumer) transfer.Consumer {
	out := transfer.Consumer{ID: croft.InstanceID(c.uuid), Generation: c.generation, Project: c.project, User: c.user, Type: c.kind,
		Allocations: map[croft.HostID]croft.Resources{}}
	for _, a := range c.allocations {
		host := croft.HostID(a.provider)
		if out.Allocations[host] == nil {
			out.Allocations[host] = croft.Resources{}
		}
		out.Allocations[host][croft.ResourceClass(s.className(a.class))] = a.n
	}
	return out
}
