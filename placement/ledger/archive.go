package ledger

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

// Archive exports the whole state from its Store, at one revision, and imports a state, whether or not ledgers run on
// the Store. Claims on new providers are refused until the whole import is stored. Each write is conditional on the
// result of the last Read. An Archive is for one goroutine.
type Archive struct {
	Store Store

	read     *State        // the result of the last Read
	modified map[Key]int64 // revision of each existing entry
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

// portable returns the state in the form of package transfer.
func (s *State) portable() *transfer.State {
	out := &transfer.State{
		Revision:        s.revision,
		StandardClasses: typed[croft.ResourceClass](standard.Classes()),
		StandardTraits:  typed[croft.Trait](standard.Traits()),
	}
	for x := range s.classes.All() {
		if !x.Standard {
			out.Classes = append(out.Classes, croft.ResourceClass(x.Name))
		}
	}
	for x := range s.traits.All() {
		if !x.Standard {
			out.Traits = append(out.Traits, croft.Trait(x.Name))
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

func typed[T, S ~string](names []S) []T {
	out := make([]T, len(names))
	for i, n := range names {
		out[i] = T(n)
	}
	return out
}

func (s *State) portableProvider(p *Provider) transfer.Provider {
	out := transfer.Provider{ID: croft.HostID(p.UUID), Name: p.Name, Parent: croft.HostID(p.Parent),
		Generation: p.Generation, Aggregates: slices.Sorted(slices.Values(p.Aggregates)),
		Inventories: make(map[croft.ResourceClass]croft.Inventory, len(p.Inventories))}
	for _, i := range p.Inventories {
		out.Inventories[croft.ResourceClass(s.ClassName(i.Class))] = croft.Inventory{Total: i.Total,
			Reserved: i.Reserved, MinUnit: i.MinUnit, MaxUnit: i.MaxUnit, StepSize: i.StepSize,
			AllocationRatio: i.Ratio}
	}
	for _, t := range p.Traits {
		out.Traits = append(out.Traits, croft.Trait(s.TraitName(t)))
	}
	slices.Sort(out.Traits)
	return out
}

func (s *State) portableConsumer(c *Consumer) transfer.Consumer {
	out := transfer.Consumer{ID: croft.InstanceID(c.UUID), Generation: c.Generation, Project: c.Project, User: c.User,
		Type: c.Type, Allocations: map[croft.HostID]croft.Resources{}}
	for _, a := range c.Allocations {
		host := croft.HostID(a.Provider)
		if out.Allocations[host] == nil {
			out.Allocations[host] = croft.Resources{}
		}
		out.Allocations[host][croft.ResourceClass(s.ClassName(a.Class))] = a.N
	}
	return out
}
