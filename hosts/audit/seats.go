package audit

import (
	"fmt"
	"slices"

	"croft"
)

// checkSeats compares the taken seats of groups with the records. A seat remains if a program of an older version,
// which does not know seats, removes its instance.
func (c *comparison) checkSeats() {
	taken := map[croft.Seat]bool{}
	for _, s := range c.Seats {
		inst, exists := c.Instances[s.Instance]
		if !exists || inst.Project != s.Project || !hasSeats(inst, s.Seat) {
			c.add(Difference{Kind: LostSeat, Instance: s.Instance, Project: s.Project, Seat: s.Seat, Mendable: true,
				Revision: s.Revision,
				Cause:    fmt.Sprintf("group %s keeps a seat in %s for an instance that is not in it", s.Group, s.Location)})
			continue
		}
		taken[s.Seat] = true
	}
	for id, inst := range c.Instances {
		for _, s := range inst.Seats {
			if s.Instance = id; !taken[s] {
				c.report(inst, Difference{Kind: MissingSeat, Seat: s,
					Cause: fmt.Sprintf(
						"group %s does not count it in %s, so that others may come where its rule forbids that", s.Group,
						s.Location),
					Advice: "destroy it and request it again: the groups were changed outside croft"})
			}
		}
	}
}

// hasSeats reports whether an instance was created as a member of a group under a clause.
func hasSeats(inst croft.Instance, seat croft.Seat) bool {
	return slices.ContainsFunc(inst.Spec.Affinities, func(a croft.Affinity) bool {
		clauses, _ := a.Rule.Clauses()
		return a.Group == seat.Group && !a.Rule.Soft() &&
			slices.ContainsFunc(clauses, func(c croft.Clause) bool { return c.String() == seat.Clause })
	})
}
