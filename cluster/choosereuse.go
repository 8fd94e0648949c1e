package cluster

import (
	"cmp"
	"slices"
)

// reusable are the states in which a cluster can be joined, the one that can be used soonest first.
var reusable = []State{Ready, Resizing, Building, Scheduling}

// Joins reports whether a request may get a cluster that is there already, all but their parameters considered.
// credentials are those of the user, whose names hints may hold.
func (r Request) Joins(c Cluster, credentials []Credential) bool {
	return r.Reuse == ReuseAuto && c.Project == r.Project && c.User == r.User && c.Appliance == r.Appliance &&
		slices.Contains(reusable, c.State) && c.Slaves >= r.Slaves && r.Hints.permit(c, credentials)
}

// permit reports whether a cluster is where the hints ask for. One that has no site yet is, if it was asked for with
// the same hints, or if these permit any.
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

// hard lists the hints that are no wishes, each sorted; nil: there are none.
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

// CompareReuse orders clusters that a request may join: one of its name, then the one that can be used soonest, then
// the smallest, then the oldest.
func (r Request) CompareReuse(a, b Cluster) int {
	return cmp.Or(cmp.Compare(before(a.Name == r.Name), before(b.Name == r.Name)),
		cmp.Compare(slices.Index(reusable, a.State), slices.Index(reusable, b.State)),
		cmp.Compare(a.Slaves, b.Slaves), a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
}
