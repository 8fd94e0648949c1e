package transfer

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"croft"
)

// Changes are the changes that turn the state of a target into the state to import.
type Changes struct {
	Have *State // the state of the target
	Want *State // the wanted state, including objects that the import does not change

	Classes   []croft.ResourceClass // to create, in this order
	Traits    []croft.Trait         // to create, in this order
	Providers []Provider            // to create or change; parents before children
	Consumers []Consumer            // to create or change
}

// Empty reports whether there is nothing to do.
func (c *Changes) Empty() bool {
	return len(c.Classes)+len(c.Traits)+len(c.Providers)+len(c.Consumers) == 0
}

// Target is a Placement into which a state is imported.
type Target interface {
	Source
	// Write makes the changes that were planned on the last Read. Conflict: the state was changed concurrently, and
	// only some of the changes are made.
	Write(ctx context.Context, changes *Changes, progress Progress) error
}

// Import brings a target to the wanted state and returns the changes it made. Invalid, Conflict: the state does not fit
// the target, and nothing was changed.
func Import(ctx context.Context, want *State, to Target, merge bool, progress Progress) (*Changes, error) {
	have, err := to.Read(ctx, progress)
	if err != nil {
		return nil, err
	}
	changes, err := Plan(have, want, merge)
	if err != nil {
		return nil, err
	}
	return changes, to.Write(ctx, changes, progress)
}

// Plan compares the state of a target with the wanted one. Conflict: the target has an unwanted object, or differs by
// more than an interrupted import could leave. With merge any difference is allowed: objects in both states are changed
// to the wanted ones, and others are kept. Invalid: Placement would refuse the result.
func Plan(have, want *State, merge bool) (*Changes, error) {
	if err := known(have, want); err != nil {
		return nil, err
	}
	p := planner{have: have, want: want, merge: merge, hosts: map[croft.HostID]*Provider{},
		owners: map[croft.InstanceID]*Consumer{}}
	for i := range have.Providers {
		p.hosts[have.Providers[i].ID] = &have.Providers[i]
	}
	for i := range have.Consumers {
		p.owners[have.Consumers[i].ID] = &have.Consumers[i]
	}
	if err := p.foreign(); err != nil {
		return nil, err
	}
	out := &Changes{Have: have, Classes: missing(want.Classes, have.Classes), Traits: missing(want.Traits, have.Traits)}
	out.Want = &State{Classes: slices.Concat(have.Classes, out.Classes), Traits: slices.Concat(have.Traits, out.Traits)}
	if err := p.providers(out); err != nil {
		return nil, err
	}
	if err := p.consumers(out); err != nil {
		return nil, err
	}
	if f := out.Want.check(); f != nil {
		return nil, croft.Errorf(croft.Invalid, "import: what would come of it cannot be: %w", f.err)
	}
	out.Providers = parentsFirst(out.Providers)
	return out, nil
}

// known refuses standard names that the target does not know.
func known(have, want *State) error {
	classes, traits := set(have.StandardClasses), set(have.StandardTraits)
	for _, p := range want.Providers {
		for _, class := range slices.Sorted(maps.Keys(p.Inventories)) {
			if !isCustom(class) && !classes[class] {
				return croft.Errorf(croft.Invalid,
					"import: provider %s offers %s, which the target does not know as a "+
						"resource class; is it older than where this is from?", p.ID, class)
			}
		}
		for _, t := range p.Traits {
			if !isCustom(t) && !traits[t] {
				return croft.Errorf(croft.Invalid,
					"import: provider %s has %s, which the target does not know as a trait; is "+
						"it older than where this is from?", p.ID, t)
			}
		}
	}
	return nil
}

func missing[T comparable](want, have []T) []T {
	there := set(have)
	var out []T
	for _, x := range want {
		if !there[x] {
			out = append(out, x)
		}
	}
	return out
}

type planner struct {
	have, want *State
	merge      bool
	hosts      map[croft.HostID]*Provider
	owners     map[croft.InstanceID]*Consumer
}

// foreign refuses objects of the target that are not in the import.
func (p *planner) foreign() error {
	if p.merge {
		return nil
	}
	wanted := map[croft.HostID]bool{}
	for _, x := range p.want.Providers {
		wanted[x.ID] = true
	}
	for _, x := range p.have.Providers {
		if !wanted[x.ID] {
			return croft.Errorf(croft.Conflict,
				"import: the target holds other things already, such as the provider %s "+
					"(%s); to add to them, give --merge", x.ID, x.Name)
		}
	}
	consumers := map[croft.InstanceID]bool{}
	for _, x := range p.want.Consumers {
		consumers[x.ID] = true
	}
	for _, x := range p.have.Consumers {
		if !consumers[x.ID] {
			return croft.Errorf(croft.Conflict, "import: the target holds other things already, such as claims of the "+
				"consumer %s; to add to them, give --merge", x.ID)
		}
	}
	return nil
}

// providers plans the providers; existing ones keep their place before new ones.
func (p *planner) providers(out *Changes) error {
	final := map[croft.HostID]Provider{}
	interim := Interim(&State{Providers: p.want.Providers, Consumers: p.want.Consumers})
	for _, want := range p.want.Providers {
		have := p.hosts[want.ID]
		switch {
		case have == nil:
			out.Providers = append(out.Providers, want)
		case sameProvider(have, &want):
			want = *have
		default:
			if field := outgrown(have, &want, interim[want.ID]); field != "" {
				if !p.merge {
					return croft.Errorf(croft.Conflict,
						"import: the target has the provider %s (%s) with another %s; to make it "+
							"as imported, give --merge", want.ID, have.Name, field)
				}
				want.Generation = max(want.Generation, have.Generation+1)
			}
			want.Generation = max(want.Generation, have.Generation)
			out.Providers = append(out.Providers, want)
		}
		final[want.ID] = want
	}
	for _, have := range p.have.Providers {
		if want, ok := final[have.ID]; ok {
			have = want
			delete(final, have.ID)
		}
		out.Want.Providers = append(out.Want.Providers, have)
	}
	for _, want := range p.want.Providers {
		if _, ok := final[want.ID]; ok {
			out.Want.Providers = append(out.Want.Providers, want)
		}
	}
	return nil
}

// outgrown names a field in which a provider differs from want by more than an interrupted import could leave; "":
// there is no such field.
func outgrown(have, want *Provider, interim map[croft.ResourceClass]croft.Inventory) string {
	switch {
	case have.Name != want.Name:
		return "name"
	case have.Parent != want.Parent:
		return "parent"
	case len(missing(have.Traits, want.Traits)) > 0:
		return "set of traits"
	case len(missing(have.Aggregates, want.Aggregates)) > 0:
		return "set of aggregates"
	}
	for class, i := range have.Inventories {
		wanted, ok := want.Inventories[class]
		passing, passes := interim[class]
		if !(ok && SameInventory(i, wanted)) && !(passes && SameInventory(i, passing)) {
			return fmt.Sprintf("inventory of %s", class)
		}
	}
	return ""
}

func sameProvider(a, b *Provider) bool {
	return a.Name == b.Name && a.Parent == b.Parent && sameSet(a.Traits, b.Traits) && sameSet(a.Aggregates,
		b.Aggregates) &&
		maps.EqualFunc(a.Inventories, b.Inventories, SameInventory)
}

func sameSet[T comparable](a, b []T) bool { return maps.Equal(set(a), set(b)) }

// SameInventory reports whether inventories are equal, with ratios in single precision, as databases store them.
func SameInventory(a, b croft.Inventory) bool {
	same := float32(a.AllocationRatio) == float32(b.AllocationRatio)
	a.AllocationRatio, b.AllocationRatio = 0, 0
	return same && a == b
}

func (p *planner) consumers(out *Changes) error {
	final := map[croft.InstanceID]Consumer{}
	for _, want := range p.want.Consumers {
		have := p.owners[want.ID]
		switch {
		case have == nil:
			out.Consumers = append(out.Consumers, want)
		case sameConsumer(have, &want):
			want = *have
		case !p.merge:
			return croft.Errorf(croft.Conflict,
				"import: the target has the consumer %s with other claims, project, user "+
					"or type; to make it as imported, give --merge", want.ID)
		default:
			want.Generation = max(want.Generation, have.Generation+1)
			out.Consumers = append(out.Consumers, want)
		}
		final[want.ID] = want
	}
	for _, have := range p.have.Consumers {
		if _, ok := final[have.ID]; !ok {
			final[have.ID] = have
		}
	}
	out.Want.Consumers = slices.SortedFunc(maps.Values(final), compareConsumers)
	return nil
}

func sameConsumer(a, b *Consumer) bool {
	return a.Project == b.Project && a.User == b.User && a.Type == b.Type &&
		sameAllocations(a.Allocations, b.Allocations)
}

func sameAllocations(a, b map[croft.HostID]croft.Resources) bool {
	return maps.EqualFunc(a, b, func(x, y croft.Resources) bool { return maps.Equal(x, y) })
}

// parentsFirst moves parents before their children and otherwise keeps the order.
func parentsFirst(list []Provider) []Provider {
	index := make(map[croft.HostID]int, len(list))
	for i, p := range list {
		index[p.ID] = i
	}
	out := make([]Provider, 0, len(list))
	placed := make([]bool, len(list))
	for i := range list {
		var line []int // path from a provider up to its first unplaced ancestor
		for at, ok := i, true; ok && !placed[at]; at, ok = index[list[at].Parent] {
			line = append(line, at)
			placed[at] = true
		}
		for _, at := range slices.Backward(line) {
			out = append(out, list[at])
		}
	}
	return out
}

// Levels divides providers, sorted with parents first, into levels: the parents of a level are in earlier levels or not
// in the list.
func Levels(list []Provider) [][]Provider {
	var out [][]Provider
	level := make(map[croft.HostID]int, len(list))
	for _, p := range list {
		n := 0
		if up, ok := level[p.Parent]; ok {
			n = up + 1
		}
		if level[p.ID] = n; n == len(out) {
			out = append(out, nil)
		}
		out[n] = append(out[n], p)
	}
	return out
}

// Interim returns the inventories that providers need temporarily, so that a server accepts all claims of the state.
// They are needed if the final inventories are smaller than the claims or exclude their amounts, as on a host that is
// drained while guests run on it. They allow exactly the claims.
func Interim(s *State) map[croft.HostID]map[croft.ResourceClass]croft.Inventory {
	type key struct {
		id    croft.HostID
		class croft.ResourceClass
	}
	sums, pieces := map[key]int64{}, map[key][]int64{}
	for _, c := range s.Consumers {
		for id, r := range c.Allocations {
			for class, n := range r {
				sums[key{id, class}] += n
				pieces[key{id, class}] = append(pieces[key{id, class}], n)
			}
		}
	}
	out := map[croft.HostID]map[croft.ResourceClass]croft.Inventory{}
	for _, p := range s.Providers {
		for class, i := range p.Inventories {
			k := key{p.ID, class}
			if takes(i, sums[k], pieces[k]) {
				continue
			}
			if out[p.ID] == nil {
				out[p.ID] = map[croft.ResourceClass]croft.Inventory{}
			}
			out[p.ID][class] = room(sums[k])
		}
	}
	return out
}

// takes reports whether an inventory allows claims.
func takes(i croft.Inventory, sum int64, pieces []int64) bool {
	fits := float64(sum) <= float64(i.Total-i.Reserved)*i.AllocationRatio
	return len(pieces) == 0 || fits && !slices.ContainsFunc(pieces, func(n int64) bool {
		return n < i.MinUnit || n > i.MaxUnit || n%i.StepSize != 0
	})
}

// room returns an inventory that allows an amount in any pieces.
func room(sum int64) croft.Inventory {
	i := croft.Inventory{Total: min(sum, maxAmount), MinUnit: 1, MaxUnit: maxAmount, StepSize: 1, AllocationRatio: 1}
	if sum > maxAmount {
		i.AllocationRatio = float64(sum/maxAmount + 1)
	}
	return i
}
