package ledger

import "slices"

// rare: an index is used if the trees number more than rare times the providers that it lists; otherwise visiting all
// trees is faster.
const rare = 8

// trees returns the roots to visit, by order of creation. If every candidate needs a class, trait or aggregate that few
// providers have, these are only the roots of such providers.
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
	if len(s.st.sharing) == 0 { // otherwise a provider outside the tree may have the trait
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

// needs calls use once for each class, trait and aggregate that a tree must have to satisfy the group, with the lists
// of providers that have it.
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
