package ledger

import "slices"

// index lists the providers that have a class, a trait or an aggregate, by order of creation. A search for something
// rare visits these alone.
type index struct {
	classes    map[ID][]*Provider
	traits     map[ID][]*Provider
	aggregates map[string][]*Provider
}

func newIndex() index {
	return index{classes: map[ID][]*Provider{}, traits: map[ID][]*Provider{}, aggregates: map[string][]*Provider{}}
}

// update moves a provider from the lists of its old data to those of its new data.
func (x *index) update(p *Provider, old, now *ProviderData) {
	relist(x.classes, p, old.classes(), now.classes())
	relist(x.traits, p, old.Traits, now.Traits)
	relist(x.aggregates, p, old.Aggregates, now.Aggregates)
}

func relist[K comparable](lists map[K][]*Provider, p *Provider, old, now []K) {
	for _, k := range old {
		if slices.Contains(now, k) {
			continue
		}
		if list := dropProvider(lists[k], p); len(list) > 0 {
			lists[k] = list
		} else {
			delete(lists, k)
		}
	}
	for i, k := range now {
		if !slices.Contains(old, k) && !slices.Contains(now[:i], k) {
			lists[k] = insertProvider(lists[k], p)
		}
	}
}

// rare is the number of trees per provider from which an index is faster than visiting all trees.
const rare = 8

// trees returns the roots to visit, by order of creation. If few providers have something that every candidate needs,
// these are their roots.
func (s *search) trees() []*Provider {
	fewest, found := len(s.st.roots)/rare, [][]*Provider(nil)
	consider := func(lists [][]*Provider) {
		n := 0
		for _, list := range lists {
			n += len(list)
		}
		if n < fewest {
			fewest, found = n, lists
		}
	}
	for _, any := range s.roots.required {
		consider(pickLists(s.st.index.traits, any))
	}
	if len(s.st.sharing) == 0 { // else a provider outside of the tree may have it
		for i := range s.groups {
			s.groups[i].needs(&s.st.index, consider)
		}
	}
	if found == nil {
		return s.st.roots
	}
	roots := make([]*Provider, 0, fewest)
	for _, p := range slices.Concat(found...) {
		roots = append(roots, p.root)
	}
	slices.SortFunc(roots, compareProviders)
	return slices.Compact(roots)
}

// needs calls use with the providers that have a class, a trait or an aggregate, for each that a tree must have to
// satisfy the group.
func (g *searchGroup) needs(x *index, use func([][]*Provider)) {
	for _, w := range g.wants {
		use([][]*Provider{x.classes[w.Class]})
	}
	for _, any := range g.sets.required {
		use(pickLists(x.traits, any))
	}
	for _, any := range g.Aggregates.Required {
		use(pickLists(x.aggregates, any))
	}
}

func pickLists[K comparable](lists map[K][]*Provider, keys []K) [][]*Provider {
	out := make([][]*Provider, len(keys))
	for i, k := range keys {
		out[i] = lists[k]
	}
	return out
}
