package ledger

import "slices"

// rare is the number of trees per provider above which an index is faster than visiting all trees.
const rare = 8

// trees returns the roots to visit, by order of creation: only those of few providers, if every candidate needs
// something that few providers have.
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
	if len(s.st.sharing) == 0 { // otherwise a provider outside the tree may have it
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

// needs calls use with the providers that have a class, a trait or an aggregate, for each one that a tree must have to
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
