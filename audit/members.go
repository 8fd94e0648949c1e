package audit

import (
	"fmt"

	"croft"
)

// checkMembers compares the directory of groups with the records and with the groups' rules.
func (c *comparison) checkMembers() {
	entered := map[croft.Member]bool{}
	groups := map[string][]croft.Member{} // by project and group
	for _, m := range c.Members {
		inst, exists := c.Instances[m.Instance]
		if !exists || inst.Project != m.Project || inst.Host != m.Host || !isIn(inst, m.Affinity) {
			c.add(Difference{Kind: LostMember, Host: m.Host, Instance: m.Instance, Project: m.Project, Name: m.Name,
				Affinity: &m.Affinity,
				Mendable: true, Revision: m.Revision,
				Cause: fmt.Sprintf(
					"group %s counts an instance that is not in it there, and its rule keeps others away, or in one place, for nothing", m.Group)})
			continue
		}
		entered[croft.Member{Affinity: m.Affinity, Instance: m.Instance, Host: m.Host}] = true
		key := string(m.Project) + "/" + m.Group
		if err := m.Affinity.Admit(m.Host, groups[key]); err != nil {
			c.report(inst, Difference{Kind: BrokenRule, Affinity: &m.Affinity,
				Cause:  fmt.Sprintf("it is where the rule %s does not allow: its host %s", m.Affinity, err),
				Advice: "destroy it and ask for it anew, or destroy the other: somebody changed the groups past croft"})
		}
		groups[key] = append(groups[key], m.Member)
	}
	for id, inst := range c.Instances {
		if inst.Host == "" {
			continue // it becomes a member with its order
		}
		for _, a := range inst.Spec.Affinities {
			if !entered[croft.Member{Affinity: a, Instance: id, Host: inst.Host}] {
				c.report(inst, Difference{Kind: MissingMember, Affinity: &a, Mendable: true,
					Cause: fmt.Sprintf(
						"group %s does not count it, so that others may come where its rule forbids that", a.Group)})
			}
		}
	}
}

// isIn reports whether an instance was created as a member of a group.
func isIn(inst croft.Instance, affinity croft.Affinity) bool {
	for _, a := range inst.Spec.Affinities {
		if a == affinity {
			return true
		}
	}
	return false
}
