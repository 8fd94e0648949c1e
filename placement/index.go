package placement

import "slices"

// index tells who has something: those who look for what is rare need not look at
// everybody. Its lists are in order of creation.
type index struct {
	classes    map[id][]*provider
	traits     map[id][]*provider
	aggregates map[string][]*provider
}

func newIndex() index {
	return index{classes: map[id][]*provider{}, traits: map[id][]*provider{}, aggregates: map[string][]*provider{}}
}

// update moves a provider from where old has it listed to where it belongs now.
func (x *index) update(p *provider, old, now *providerData) {
	relist(x.classes, p, old.classes(), now.classes())
	relist(x.traits, p, old.traits, now.traits)
	relist(x.aggregates, p, old.aggregates, now.aggregates)
}

func relist[K comparable](lists map[K][]*provider, p *provider, old, now []K) {
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

// rare is how many times as many trees as providers there have to be for an index to
// beat going through the trees.
const rare = 8

// trees returns the roots that are worth a look, in order of creation: those above
// somebody who has what every candidate needs, where few have it.
func (s *search) trees() []*provider {
	fewest, who := len(s.st.roots)/rare, [][]*provider(nil)
	consider := func(lists [][]*provider) {
		n := 0
		for _, list := range lists {
			n += len(list)
		}
		if n < fewest {
			fewest, who = n, lists
		}
	}
	for _, any := range s.roots.required {
		consider(pickLists(s.st.index.traits, any))
	}
	if len(s.st.sharing) == 0 { // else somebody outside of the tree may have it
		for i := range s.groups {
			s.groups[i].needs(&s.st.index, consider)
		}
	}
	if who == nil {
		return s.st.roots
	}
	roots := make([]*provider, 0, fewest)
	for _, p := range slices.Concat(who...) {
		roots = append(roots, p.root)
	}
	slices.SortFunc(roots, compareProviders)
	return slices.Compact(roots)
}

// needs gives, for all that a tree must have to satisfy the group, those who have it.
func (g *searchGroup) needs(x *index, use func([][]*provider)) {
	for _, w := range g.wants {
		use([][]*provider{x.classes[w.class]})
	}
	for _, any := range g.sets.required {
		use(pickLists(x.traits, any))
	}
	for _, any := range g.aggregates.required {
		use(pickLists(x.aggregates, any))
	}
}

func pickLists[K comparable](lists map[K][]*provider, keys []K) [][]*provider {
	out := make([][]*provider, len(keys))
	for i, k := range keys {
		out[i] = lists[k]
	}
	return out
}
