package ledger

import "slices"

// TraitTest requires at least one trait of each required set, and no forbidden one.
type TraitTest struct {
	Required  [][]string
	Forbidden []string
}

func (t *TraitTest) empty() bool { return len(t.Required)+len(t.Forbidden) == 0 }

// AggregateTest requires membership in at least one aggregate of each required set, and in no forbidden one.
type AggregateTest struct {
	Required  [][]string
	Forbidden []string
}

// Empty reports whether every provider passes the test.
func (t *AggregateTest) Empty() bool { return len(t.Required)+len(t.Forbidden) == 0 }

// inAny reports whether a provider is in any of the aggregates.
func (p *ProviderData) inAny(aggregates []string) bool {
	return slices.ContainsFunc(p.Aggregates, func(a string) bool { return slices.Contains(aggregates, a) })
}

// inAnyOfEach reports whether a provider is in at least one aggregate of each set.
func (p *ProviderData) inAnyOfEach(sets [][]string) bool {
	return !slices.ContainsFunc(sets, func(set []string) bool { return !p.inAny(set) })
}

// traitSets is a TraitTest with its names resolved.
type traitSets struct {
	required  [][]ID
	forbidden []ID
}

// find looks up the traits. unknown is the first name that does not exist.
func (t *TraitTest) find(traits *Symbols) (sets traitSets, unknown string) {
	for _, any := range t.Required {
		var ids []ID
		for _, name := range any {
			x := traits.Get(name)
			if x == nil {
				return sets, name
			}
			ids = append(ids, x.id)
		}
		sets.required = append(sets.required, ids)
	}
	for _, name := range t.Forbidden {
		x := traits.Get(name)
		if x == nil {
			return sets, name
		}
		sets.forbidden = append(sets.forbidden, x.id)
	}
	return sets, ""
}

// met reports whether traits contains at least one of each required set.
func (t *traitSets) met(traits []ID) bool {
	return !slices.ContainsFunc(t.required, func(any []ID) bool { return !hasAny(traits, any) })
}

// broken reports whether traits contains a forbidden one.
func (t *traitSets) broken(traits []ID) bool { return hasAny(traits, t.forbidden) }

func hasAny(traits, any []ID) bool {
	return slices.ContainsFunc(any, func(i ID) bool { return hasID(traits, i) })
}

// Filter selects providers. Empty fields select all.
type Filter struct {
	Name, UUID string
	Tree       string // UUID of any provider of the tree
	Aggregates AggregateTest
	Traits     TraitTest
	Resources  []NamedAmount
}

// Filter returns the matching providers, by order of creation. As in the original, an unknown name is an error only if
// the filters before it left any providers.
func (s *State) Filter(f Filter) ([]*Provider, error) {
	list := s.all
	keep := func(pass func(*Provider) bool) {
		var kept []*Provider
		for _, p := range list {
			if pass(p) {
				kept = append(kept, p)
			}
		}
		list = kept
	}
	switch {
	case f.Name != "":
		list = listOf(s.byName[f.Name])
		keep(func(p *Provider) bool { return f.UUID == "" || p.UUID == f.UUID })
	case f.UUID != "":
		list = listOf(s.providers[f.UUID])
	}
	if f.Tree != "" {
		in := s.providers[f.Tree]
		if in == nil {
			return nil, nil
		}
		keep(func(p *Provider) bool { return p.root == in.root })
	}
	sets, unknown := f.Traits.find(s.traits)
	if unknown != "" {
		if f.emptied(s) {
			return nil, nil
		}
		return nil, invalid(`Invalid trait(s) in "required" parameter: No such trait(s): %s.`, unknown)
	}
	if !f.Traits.empty() {
		keep(func(p *Provider) bool { return sets.met(p.Traits) && !sets.broken(p.Traits) })
	}
	if !f.Aggregates.Empty() {
		keep(func(p *Provider) bool {
			return p.inAnyOfEach(f.Aggregates.Required) && !p.inAny(f.Aggregates.Forbidden)
		})
	}
	for _, w := range f.Resources {
		c := s.classes.Get(w.Class)
		if c == nil {
			if f.emptied(s) {
				return nil, nil
			}
			return nil, invalid("Invalid resource class in resources parameter: No such resource class %s.", w.Class)
		}
		keep(func(p *Provider) bool { return p.has(c.id, w.N) })
	}
	return list, nil
}

func listOf(p *Provider) []*Provider {
	if p == nil {
		return nil
	}
	return []*Provider{p}
}

// emptied reports whether the original would have stopped before it noticed an unknown name: either no provider has the
// required traits, or no provider is in the aggregates. It checks required traits, forbidden traits, aggregates and
// resources, in this order.
func (f *Filter) emptied(s *State) bool {
	none := func(pass func(*Provider) bool) bool { return !slices.ContainsFunc(s.all, pass) }
	required := TraitTest{Required: f.Traits.Required}
	sets, unknown := required.find(s.traits)
	if unknown != "" {
		return false
	}
	if len(sets.required) > 0 && none(func(p *Provider) bool { return sets.met(p.Traits) }) {
		return true
	}
	if _, unknown := f.Traits.find(s.traits); unknown != "" {
		return false
	}
	in := f.Aggregates.Required
	return len(in) > 0 && none(func(p *Provider) bool { return p.inAnyOfEach(in) })
}
