package schedule

import (
	"slices"

	"croft"
)

// CheckAffinities refuses invalid group names and unknown rules. Invalid.
func CheckAffinities(affinities []croft.Affinity) error {
	for i, a := range affinities {
		switch {
		case !nameForm.MatchString(a.Group):
			return croft.Errorf(croft.Invalid,
				"the group %q: use a to z, 0 to 9 and dashes in between, 63 characters at most", a.Group)
		case !slices.Contains(croft.AffinityRules, a.Rule):
			return croft.Errorf(croft.Invalid, "the group %s: there is no rule %q", a.Group, a.Rule)
		case slices.ContainsFunc(affinities[:i], func(other croft.Affinity) bool { return other.Group == a.Group }):
			return croft.Errorf(croft.Invalid, "the group %s is named twice: name it once, with one rule", a.Group)
		}
	}
	if len(affinities) > maxGroups {
		return croft.Errorf(croft.Invalid, "%d groups: an instance is in %d at most", len(affinities), maxGroups)
	}
	return nil
}

// maxGroups bounds the groups of an instance: each adds comparisons to the transaction that writes the order, and etcd
// limits those.
const maxGroups = 16

// admit returns nil if all groups admit one more member on a host.
func admit(affinities []croft.Affinity, host croft.HostID, members []croft.Member) error {
	for _, affinity := range affinities {
		if err := affinity.Admit(host, members); err != nil {
			return err
		}
	}
	return nil
}

// strain counts the members of the groups on a host: positive if the rule keeps members apart, negative if it keeps
// them together.
func strain(affinities []croft.Affinity, host croft.HostID, members []croft.Member) int {
	n := 0
	for _, affinity := range affinities {
		for _, m := range members {
			switch {
			case m.Group != affinity.Group || m.Host != host:
			case affinity.Rule.Apart():
				n++
			default:
				n--
			}
		}
	}
	return n
}
