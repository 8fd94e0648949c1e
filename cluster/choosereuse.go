package cluster

import (
	"cmp"
	"slices"
)

// reusable lists the states in which a cluster can be joined; the states nearest to use come first.
var reusable = []State{Ready, Resizing, Building, Scheduling}

// Joins reports whether a request may join an existing cluster. It compares all but their parameters. credentials are
// the user's; hints may refer to them by name.
func (r Request) Joins(c Cluster, credentials []Credential) bool {
	return r.Reuse == ReuseAuto && c.Project == r.Project && c.User == r.User && c.Appliance == r.Appliance &&
		slices.Contains(reusable, c.State) && c.Slaves >= r.Slaves && r.Hints.permit(c, credentials)
}

// permit reports whether the hints permit the site of a cluster. A cluster without a site is permitted if its request
// had the same hints, or if h has no hard hints.
func (h Hints) permit(c Cluster, credentials []Credential) bool {
	if c.Site == "" {
		return h.hard() == nil || slices.EqualFunc(h.hard(), c.Hints.hard(), slices.Equal)
	}
	if len(h.Sites) > 0 && !slices.Contains(h.Sites, c.Site) || slices.Contains(h.ExcludeSites, c.Site) {
		return false
	}
	if len(h.Implementations) > 0 && !slices.Contains(h.Implementations, c.Implementation) {
		return false
	}
	if len(h.Credentials) == 0 {
		return true
	}
	at := slices.IndexFunc(credentials, func(own Credential) bool { return own.ID == c.Credential })
	return at >= 0 && rank(h, credentials[at]) < len(h.Credentials)
}

// hard lists the hints that are not preferences, each sorted; nil: there are none.
func (h Hints) hard() [][]string {
	all := [][]string{h.Sites, h.ExcludeSites, h.Credentials, h.implementations()}
	some := false
	for i := range all {
		all[i] = slices.Sorted(slices.Values(all[i]))
		some = some || len(all[i]) > 0
	}
	if !some {
		return nil
	}
	return all
}

// CompareReuse orders the clusters that a request may join: by a name equal to the requested one, then by the state
// that is ready for use soonest, then by size, then by age. Smaller and older clusters come first.
func (r Request) CompareReuse(a, b Cluster) int {
	return cmp.Or(cmp.Compare(before(a.Name == r.Name), before(b.Name == r.Name)),
		cmp.Compare(slices.Index(reusable, a.State), slices.Index(reusable, b.State)),
		cmp.Compare(a.Slaves, b.Slaves), a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
}
