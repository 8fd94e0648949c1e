package schedule

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"croft"
	"croft/schedule/topology"
)

// CheckAffinities refuses invalid group names and unknown rules. Invalid.
func CheckAffinities(affinities []croft.Affinity) error {
	for i, a := range affinities {
		switch {
		case !nameForm.MatchString(a.Group):
			return croft.Errorf(croft.Invalid,
				"the group %q: use a to z, 0 to 9 and dashes in between, 63 characters at most", a.Group)
		case slices.ContainsFunc(affinities[:i], func(other croft.Affinity) bool { return other.Group == a.Group }):
			return croft.Errorf(croft.Invalid, "the group %s is named twice: name it once, with one rule", a.Group)
		}
		if _, err := a.Rule.Clauses(); err != nil {
			return fmt.Errorf("the group %s: %w", a.Group, err)
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

// admit returns nil if all groups of an instance admit one more member on a host, and the host satisfies the instance's
// distance limits. NoCapacity: one of them bars the host. Conflict: a group has another rule.
func admit(spec croft.Spec, host croft.Host, measure topology.Measure, members []croft.GroupMember,
	taken []croft.Seat) error {
	if _, err := measure.Admit(host); err != nil {
		return err
	}
	return admitMember(spec.Affinities, host, members, taken)
}

// admitMember checks only the rules of the groups; see admit.
func admitMember(affinities []croft.Affinity, host croft.Host, members []croft.GroupMember, taken []croft.Seat) error {
	seats, err := seatsOf(affinities, host)
	for _, affinity := range affinities {
		if err == nil {
			err = affinity.Admit(host.ID, members)
		}
		if err == nil {
			err = affinity.AdmitSeats(seats, taken)
		}
	}
	return err
}

// seatsOf returns the seats, without numbers, that an instance needs on a host. NoCapacity: the host's location is
// unreadable, so no rule about locations can be checked there.
func seatsOf(affinities []croft.Affinity, host croft.Host) ([]croft.Seat, error) {
	var seats []croft.Seat
	for _, a := range affinities {
		if a.Rule.Soft() || !a.Rule.ByLocation() {
			continue
		}
		path, err := topology.Of(host)
		if err != nil {
			return nil, croft.Errorf(croft.NoCapacity, "cannot be placed by group %s: %w", a.Group, err)
		}
		clauses, err := a.Rule.Clauses()
		if err != nil {
			return nil, err
		}
		for _, c := range clauses {
			seats = append(seats, croft.Seat{Group: a.Group, Clause: c.String(),
				Location: path.At(c.Level).String()})
		}
	}
	return seats, nil
}

// byLocation reports whether an instance's rules depend on locations. If so, the scheduler must know the hosts of all
// candidates and members.
func byLocation(spec croft.Spec) bool {
	return len(spec.Near) > 0 ||
		slices.ContainsFunc(spec.Affinities, func(a croft.Affinity) bool { return a.Rule.ByLocation() })
}

// neighbours counts members by group and location.
type neighbours map[neighbour]int

type neighbour struct {
	group    string
	location topology.Path
}

// count counts the members of an instance's groups in all locations of their hosts. It skips members on unknown hosts.
// Without rules about locations, only the hosts' IDs matter, so hosts may be nil.
func count(affinities []croft.Affinity, hosts map[croft.HostID]croft.Host, members []croft.GroupMember) neighbours {
	n := neighbours{}
	for _, a := range affinities {
		clauses, _ := a.Rule.Clauses() // checked with the request
		for _, m := range members {
			if m.Group != a.Group {
				continue
			}
			for _, c := range clauses {
				if path, known := whereabouts(m.Host, hosts, c.Level); known {
					n[neighbour{a.Group, path}]++
				}
			}
		}
	}
	return n
}

// whereabouts returns the location of a host at a level.
func whereabouts(id croft.HostID, hosts map[croft.HostID]croft.Host, level croft.Level) (topology.Path, bool) {
	host, known := hosts[id]
	if level == croft.LevelHost {
		host, known = croft.Host{}, true // location unknown
	}
	host.ID = id
	path, err := topology.Of(host)
	return path.At(level), known && err == nil
}

// strain rates how much the rules speak against a host. It grows with each member in the host's locations that should
// be apart, and falls with each member that should be together.
func strain(affinities []croft.Affinity, host croft.HostID, hosts map[croft.HostID]croft.Host, n neighbours) int {
	sum := 0
	for _, a := range affinities {
		clauses, _ := a.Rule.Clauses()
		for _, c := range clauses {
			path, known := whereabouts(host, hosts, c.Level)
			switch here := n[neighbour{a.Group, path}]; {
			case !known:
			case c.AtMost > 0:
				sum += max(0, here+1-c.AtMost)
			default:
				sum -= here
			}
		}
	}
	return sum
}

// wish rates a host by the rules of groups and by the distance to the locations that the request wants to be near to.
type wish struct{ strain, distance int }

func wishOf(spec croft.Spec, host croft.HostID, hosts map[croft.HostID]croft.Host, measure topology.Measure,
	n neighbours) wish {
	distance, err := measure.Admit(hosts[host])
	if err != nil {
		distance = math.MaxInt // the host is not admitted
	}
	return wish{strain(spec.Affinities, host, hosts, n), distance}
}

// compare puts the better host first.
func (w wish) compare(other wish) int {
	return cmp.Or(cmp.Compare(w.strain, other.strain), cmp.Compare(w.distance, other.distance))
}
