package placement

import (
	"slices"

	"croft/placement/internal/schema"
)

// The filters of GET /resource_providers: 1.3 adds member_of, 1.4 resources, 1.14
// in_tree, 1.18 required.
var providerFilters = []struct {
	since  version
	schema *schema.Schema
}{
	{18, filterSchema(`, "member_of": {"type": "string"}, "resources": {"type": "string"}, "in_tree": {"type": "string", "format": "uuid"}, "required": {"type": "string"}`)},
	{14, filterSchema(`, "member_of": {"type": "string"}, "resources": {"type": "string"}, "in_tree": {"type": "string", "format": "uuid"}`)},
	{4, filterSchema(`, "member_of": {"type": "string"}, "resources": {"type": "string"}`)},
	{3, filterSchema(`, "member_of": {"type": "string"}`)},
	{0, filterSchema("")},
}

func filterSchema(more string) *schema.Schema {
	return schema.Must(`{"type": "object", "properties": {"name": {"type": "string"}, "uuid": {"type": "string", "format": "uuid"}` +
		more + `}, "additionalProperties": false}`)
}

// filter is what a list of providers is narrowed to.
type filter struct {
	name, uuid, tree string
	aggregates       aggregateTest
	traits           traitTest
	resources        []want
}

func readFilter(q *request) (f filter, err error) {
	for _, v := range providerFilters {
		if q.version >= v.since {
			if err := q.query.validate(v.schema); err != nil {
				return f, err
			}
			break
		}
	}
	if f.aggregates, err = readAggregates(q.version, "", q.query.all("member_of")); err != nil {
		return f, err
	}
	if f.traits, err = readTraits(q.version, q.query.all("required")); err != nil {
		return f, err
	}
	f.uuid, _ = q.query.last("uuid")
	f.name, _ = q.query.last("name")
	f.tree, _ = q.query.last("in_tree")
	if value, ok := q.query.last("resources"); ok {
		f.resources, err = readResources(value)
	}
	return f, err
}

// listProviders is GET /resource_providers.
func (s *Server) listProviders(q *request) (*response, error) {
	f, err := readFilter(q)
	if err != nil {
		return nil, err
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	list, err := s.state.filter(f)
	if err != nil {
		return nil, err
	}
	b := []byte(`{"resource_providers": [`)
	var modified int64
	for i, p := range list {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = appendProvider(b, q, &p.providerData, p.root.uuid)
		modified = max(modified, p.changed())
	}
	return q.ok(append(b, "]}"...), modified), nil
}

// filter returns the providers that pass, in order of creation. What does not exist
// is only an error where the filters before it left something, as in the original.
func (s *state) filter(f filter) ([]*provider, error) {
	list := s.all
	keep := func(pass func(*provider) bool) {
		var kept []*provider
		for _, p := range list {
			if pass(p) {
				kept = append(kept, p)
			}
		}
		list = kept
	}
	switch {
	case f.name != "":
		list = single(s.byName[f.name])
		keep(func(p *provider) bool { return f.uuid == "" || p.uuid == f.uuid })
	case f.uuid != "":
		list = single(s.providers[f.uuid])
	}
	if f.tree != "" {
		in := s.providers[f.tree]
		if in == nil {
			return nil, nil
		}
		keep(func(p *provider) bool { return p.root == in.root })
	}
	sets, unknown := f.traits.find(s.traits)
	if unknown != "" {
		if f.emptied(s) {
			return nil, nil
		}
		return nil, badRequest(`Invalid trait(s) in "required" parameter: No such trait(s): %s.`, unknown)
	}
	if !f.traits.empty() {
		keep(func(p *provider) bool { return sets.met(p.traits) && !sets.broken(p.traits) })
	}
	if !f.aggregates.empty() {
		keep(func(p *provider) bool {
			return p.memberOfAll(f.aggregates.required) && !p.member(f.aggregates.forbidden)
		})
	}
	for _, w := range f.resources {
		c := s.classes.byName[w.class]
		if c == nil {
			if f.emptied(s) {
				return nil, nil
			}
			return nil, badRequest("Invalid resource class in resources parameter: No such resource class %s.", w.class)
		}
		keep(func(p *provider) bool { return p.has(c.id, w.n) })
	}
	return list, nil
}

func single(p *provider) []*provider {
	if p == nil {
		return nil
	}
	return []*provider{p}
}

// emptied tells whether the original would have stopped before it noticed a name that
// does not exist: nobody has the required traits, or nobody is in the aggregates. It
// looks at required traits, forbidden ones, aggregates and resources in this order.
func (f *filter) emptied(s *state) bool {
	nobody := func(pass func(*provider) bool) bool { return !slices.ContainsFunc(s.all, pass) }
	required := traitTest{required: f.traits.required}
	sets, unknown := required.find(s.traits)
	if unknown != "" {
		return false
	}
	if len(sets.required) > 0 && nobody(func(p *provider) bool { return sets.met(p.traits) }) {
		return true
	}
	if _, unknown := f.traits.find(s.traits); unknown != "" {
		return false
	}
	return len(f.aggregates.required) > 0 && nobody(func(p *provider) bool { return p.memberOfAll(f.aggregates.required) })
}

// has tells whether so much of a class could be allocated from the provider.
func (p *providerData) has(class id, n int64) bool {
	i := p.inventory(class)
	return i != nil && i.fits(p.used(class), n)
}
