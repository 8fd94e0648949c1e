package schedule

import (
	"slices"

	"croft"
)

// checkNetworks refuses invalid network names. Invalid.
func checkNetworks(names []string) error {
	for i, name := range names {
		if err := croft.CheckNetworkName(name); err != nil {
			return err
		}
		if slices.Contains(names[:i], name) {
			return croft.Errorf(croft.Invalid, "the network %q is named twice", name)
		}
	}
	return nil
}

// on returns the query for an instance on these networks, all of which its host must have. It does not change q, which
// requests may share.
func (q Query) on(networks []string) Query {
	required := slices.Clone(q.RootRequired)
	for _, name := range networks {
		if name != croft.DefaultNetworks {
			required = append(required, string(croft.NetworkTrait(name)))
		}
	}
	slices.Sort(required)
	q.RootRequired = slices.Compact(required)
	return q
}
