package ledger

import "slices"

// index lists the providers that have a class, a trait or an aggregate, by order of creation, so that a search for a
// rare class or trait visits only its providers.
type index struct {
	classes    map[ID][]*Provider
	traits     map[ID][]*Provider
	aggregates map[string][]*Provider
}

func newIndex() index {
	return index{classes: map[ID][]*Provider{}, traits: map[ID][]*Provider{}, aggregates: map[string][]*Provider{}}
}

// update moves a provider from the lists of its old data to the lists of its new data.
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
