package objects

import (
	"context"
	"maps"
	"slices"

	"croft"
	"croft/tenant/access"
)

// OfHosts selects hosts by their properties and tags.
type OfHosts struct{ Store Store }

// anyTag means all tags in a list of hidden keys.
const anyTag = tagMark

// FilterHosts returns which hosts filters select: one of where has to match, none of whereNot may match. Terms about
// hidden keys never match. Invalid: a text is not a filter.
func (h OfHosts) FilterHosts(ctx context.Context, where, whereNot, hidden []string) (n croft.FilteredHosts, err error) {
	wanted, err := ParseFilter(where)
	if err != nil {
		return n, err
	}
	barred, err := ParseFilter(whereNot)
	if err != nil {
		return n, err
	}
	all, _, err := h.Store.List(ctx, access.Everything(), Host)
	if err != nil {
		return n, err
	}
	n = croft.FilteredHosts{Wanted: map[croft.HostID]bool{}, Barred: map[croft.HostID]bool{},
		Generations: map[croft.HostID]int64{}}
	for _, o := range all {
		id := croft.HostID(o.ID)
		n.Generations[id] = o.Generation
		o = o.clone()
		maps.DeleteFunc(o.Properties, func(key string, _ Value) bool { return slices.Contains(hidden, key) })
		if slices.Contains(hidden, anyTag) {
			o.Tags = nil
		}
		if len(wanted) > 0 && wanted.Match(o) {
			n.Wanted[id] = true
		}
		if len(barred) > 0 && barred.Match(o) {
			n.Barred[id] = true
		}
	}
	return n, nil
}

// ForHosts returns the filters by which a request may select hosts. It drops alternatives with a hidden term, since a
// hidden tag or property counts as absent. If it would drop all of where, it returns where with the hidden keys
// instead, so that no host matches. Only operators see hosts, and so their tags; others may read a property if a
// permission says so. Invalid: a text is not a filter.
func (s *Service) ForHosts(ctx context.Context, c access.Caller, where, whereNot []string) (wanted, barred,
	hidden []string, err error) {
	f, err := ParseFilter(where)
	if err != nil {
		return nil, nil, nil, err
	}
	g, err := ParseFilter(whereNot)
	if err != nil || c.Operator() || len(f)+len(g) == 0 {
		return where, whereNot, nil, err
	}
	under, err := s.Definition(ctx, Host)
	if err != nil {
		return nil, nil, nil, err
	}
	isHidden := func(t Term) bool { return t.Key == "" || !resolve(under.permissionsOf(t.Key), c).read }
	for i, a := range f {
		if !slices.ContainsFunc(a, isHidden) {
			wanted = append(wanted, where[i])
		}
	}
	for i, a := range g {
		if !slices.ContainsFunc(a, isHidden) {
			barred = append(barred, whereNot[i])
		}
	}
	if len(wanted) > 0 || len(where) == 0 {
		return wanted, barred, nil, nil
	}
	for _, t := range slices.Concat(f...) { // unreadable keys, whose terms never match
		if t.Key == "" {
			hidden = append(hidden, anyTag)
		} else if isHidden(t) {
			hidden = append(hidden, t.Key)
		}
	}
	return where, barred, hidden, nil
}
