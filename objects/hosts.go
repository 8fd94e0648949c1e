package objects

import (
	"context"
	"maps"
	"slices"

	"croft"
	"croft/access"
)

// OfHosts judges hosts by what is noted about them.
type OfHosts struct{ Store Store }

// anyTag stands for all tags in lists of hidden keys.
const anyTag = tagMark

// Noted returns which hosts filters choose: one of where has to hold, none of whereNot may. What is about hidden keys
// never holds. Invalid: a text is no filter.
func (h OfHosts) Noted(ctx context.Context, where, whereNot, hidden []string) (n croft.Noted, err error) {
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
	n = croft.Noted{Wanted: map[croft.HostID]bool{}, Barred: map[croft.HostID]bool{},
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

// ForHosts returns the filters that a request may choose hosts by, and the keys in them that do not count: what its
// caller may not read is as if it were absent. Only operators see hosts, and so their tags; a property is read by
// others if a permission says so. Invalid: a text is no filter.
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
	for _, t := range slices.Concat(f...) { // nothing that is wanted can be met
		if t.Key == "" {
			hidden = append(hidden, anyTag)
		} else if isHidden(t) {
			hidden = append(hidden, t.Key)
		}
	}
	return where, barred, hidden, nil
}
