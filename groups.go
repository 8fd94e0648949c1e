package croft

import "strings"

// Affinity makes an instance a member of a group of its project, whose rule restricts the hosts of the members. A group
// exists while it has members, and keeps one rule for that time. An instance is a member from its order to its end.
type Affinity struct {
	Group string       `json:"group"`
	Rule  AffinityRule `json:"rule"`
}

// AffinityRule restricts the placement of a group's members: one of the constants, or clauses such as
// at-most-2-per-rack, same-site, at-most-1-per-rack+same-site, each also with the suffix -soft. RuleOf builds such
// rules.
type AffinityRule string

// The rules. Hard rules hold under any concurrency; soft rules choose among hosts that are otherwise equal.
const (
	Together     AffinityRule = "affinity"           // all on one host
	TogetherSoft AffinityRule = "affinity-soft"      // on as few hosts as capacity allows
	Apart        AffinityRule = "anti-affinity"      // no two on one host
	ApartSoft    AffinityRule = "anti-affinity-soft" // on as many hosts as capacity allows
)

// softly is the suffix of soft rules, in rules and on the command line.
const softly = "soft"

// Soft reports whether the rule is a preference.
func (r AffinityRule) Soft() bool { return strings.HasSuffix(string(r), "-"+softly) }

// Softened returns the soft variant of the rule.
func (r AffinityRule) Softened() AffinityRule {
	if r.Soft() {
		return r
	}
	return r + "-" + softly
}

// String returns rule and group for people: anti-affinity web, affinity db:soft, at-most-1-per-rack web.
func (a Affinity) String() string {
	if a.Rule.Soft() {
		return strings.TrimSuffix(string(a.Rule), "-"+softly) + " " + a.Group + ":" + softly
	}
	return string(a.Rule) + " " + a.Group
}

// ParseAffinity reads GROUP, or GROUP:soft for the soft variant of a hard rule.
func ParseAffinity(rule AffinityRule, text string) (Affinity, error) {
	group, how, said := strings.Cut(text, ":")
	if said && how != softly {
		flag := string(rule)
		if rule.ByLocation() {
			flag = "group"
		}
		return Affinity{}, Errorf(Invalid, "--%s %q: after a group and a colon stands %s, or nothing", flag, text,
			softly)
	}
	if said {
		rule = rule.Softened()
	}
	return Affinity{group, rule}, nil
}

// Member is an instance in a group, on its host.
type Member struct {
	Affinity
	Instance InstanceID `json:"instance"`
	Name     string     `json:"name"`
	Host     HostID     `json:"host"`
}

// Admit checks whether one more instance may join the group on a host, given the group's members. Conflict:
// they have another rule. NoCapacity: the rule excludes the host. Clauses are checked by AdmitSeats.
func (a Affinity) Admit(host HostID, members []Member) error {
	for _, m := range members {
		switch {
		case m.Group != a.Group:
		case m.Rule != a.Rule:
			return Errorf(Conflict,
				"group %s has the rule %s, as instance %s joined it, not %s; use that rule, or another group",
				a.Group, m.Affinity, m.Name, a)
		case a.Rule == Apart && m.Host == host:
			return Errorf(NoCapacity, "has instance %s of group %s, whose members stay apart", m.Name, a.Group)
		case a.Rule == Together && m.Host != host:
			return Errorf(NoCapacity, "is not the host of group %s, whose members stay together", a.Group)
		}
	}
	return nil
}
