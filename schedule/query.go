package schedule

import (
	"slices"
	"strconv"
	"strings"

	"croft"
)

// Query describes the resources that an instance needs, in the terms of Placement's allocation candidates. A query
// returned by ParseQuery requires at least one each of VCPU, MEMORY_MB and DISK_GB.
type Query struct {
	Groups       []RequestGroup // sorted by suffix, so the group without one is first
	GroupPolicy  string         // none or isolate; empty: not given
	RootRequired []string       // traits of the root provider; a leading ! forbids the trait
	// the following terms are croft's: Placement does not know them
	In       []croft.Bound // aggregates and locations to be in or not
	Where    []string      // filters of properties of hosts: at least one must hold
	WhereNot []string      // filters of properties of hosts: none may hold
	// instances of the project, aggregates, hosts or locations to be near to or far from, by distances of one type;
	// Location and Aggregate are ignored
	Near        []croft.Near
	SameSubtree [][]string // suffixes, with leading underscore
}

// RequestGroup is what one provider must offer; the group without a suffix may be offered by one tree of providers.
type RequestGroup struct {
	Suffix    string
	Resources croft.Resources
	Required  [][]croft.Trait // at least one of each set
	Forbidden []croft.Trait
	MemberOf  [][]string // aggregates; at least one of each set
	NotIn     []string   // aggregates
	InTree    croft.HostID
}

// Total returns the sum over all groups, which the instance gets.
func (q Query) Total() croft.Resources {
	total := croft.Resources{}
	for _, g := range q.Groups {
		for class, amount := range g.Resources {
			total[class] += amount
		}
	}
	return total
}

// NamesAggregates reports whether the query names aggregates of Placement. The aggregates of locations have UUIDs that
// are derived from the partition and the location's name.
func (q Query) NamesAggregates() bool {
	return slices.ContainsFunc(q.Groups, func(g RequestGroup) bool { return len(g.MemberOf)+len(g.NotIn) > 0 })
}

// plain reports whether the query consists only of amounts, which Total returns too.
func (q Query) plain() bool {
	return q.Encode() == Query{Groups: []RequestGroup{{Resources: q.Total()}}}.Encode()
}

// Encode returns the query string of GET /allocation_candidates. Equal queries have equal strings, however they were
// written, and ParseQuery reads them back, except for In, Where, WhereNot and Near. No character needs escaping in a
// URL.
func (q Query) Encode() string {
	var terms []string
	for _, g := range q.Groups {
		terms = append(terms, g.terms()...)
	}
	if q.GroupPolicy != "" {
		terms = append(terms, "group_policy="+q.GroupPolicy)
	}
	if len(q.RootRequired) > 0 {
		terms = append(terms, "root_required="+strings.Join(q.RootRequired, ","))
	}
	for _, suffixes := range q.SameSubtree {
		terms = append(terms, "same_subtree="+strings.Join(suffixes, ","))
	}
	return strings.Join(terms, "&")
}

func (g RequestGroup) terms() []string {
	var terms []string
	term := func(key, value string) {
		if value != "" {
			terms = append(terms, key+g.Suffix+"="+value)
		}
	}
	term("resources", g.Resources.String())
	sets, rest := splitSets(g.Required)
	for _, f := range g.Forbidden {
		rest = append(rest, "!"+string(f))
	}
	term("required", strings.Join(rest, ","))
	for _, set := range sets {
		term("required", "in:"+joinTraits(set))
	}
	for _, set := range g.MemberOf {
		if len(set) == 1 {
			term("member_of", set[0])
		} else {
			term("member_of", "in:"+strings.Join(set, ","))
		}
	}
	for _, aggregate := range g.NotIn {
		term("member_of", "!"+aggregate)
	}
	term("in_tree", string(g.InTree))
	return terms
}

// splitSets separates the sets with a choice of traits from single traits.
func splitSets(required [][]croft.Trait) (sets [][]croft.Trait, single []string) {
	for _, set := range required {
		if len(set) == 1 {
			single = append(single, string(set[0]))
		} else {
			sets = append(sets, set)
		}
	}
	return sets, single
}

func joinTraits(traits []croft.Trait) string {
	words := make([]string, len(traits))
	for i, t := range traits {
		words[i] = string(t)
	}
	return strings.Join(words, ",")
}

// sort sorts all lists except Groups, and removes duplicates.
func (q *Query) sort() {
	for i := range q.Groups {
		g := &q.Groups[i]
		sortSets(g.Required)
		g.Required = slices.CompactFunc(g.Required, slices.Equal)
		sortSets(g.MemberOf)
		g.MemberOf = slices.CompactFunc(g.MemberOf, slices.Equal)
		slices.Sort(g.Forbidden)
		g.Forbidden = slices.Compact(g.Forbidden)
		slices.Sort(g.NotIn)
		g.NotIn = slices.Compact(g.NotIn)
	}
	slices.Sort(q.RootRequired)
	q.RootRequired = slices.Compact(q.RootRequired)
	sortSets(q.SameSubtree)
	q.SameSubtree = slices.CompactFunc(q.SameSubtree, slices.Equal)
}

// sortSets sorts each set, and the sets: single elements first.
func sortSets[T ~string](sets [][]T) {
	for i := range sets {
		slices.Sort(sets[i])
		sets[i] = slices.Compact(sets[i])
	}
	slices.SortFunc(sets, func(a, b []T) int {
		if (len(a) == 1) != (len(b) == 1) {
			return len(a) - len(b)
		}
		return slices.Compare(a, b)
	})
}

// bootable refuses a query that could be claimed but not booted.
func (q Query) bootable() error {
	total := q.Total()
	for _, need := range []struct {
		class croft.ResourceClass
		eg    int64
	}{{croft.VCPU, 1}, {croft.MemoryMB, 256}, {croft.DiskGB, 1}} {
		if total[need.class] < 1 {
			return croft.Errorf(croft.Invalid,
				"the query asks for no %s, which every instance needs to boot: add %s:%s to resources",
				need.class, need.class, strconv.FormatInt(need.eg, 10))
		}
	}
	return nil
}

// anchor returns the index of the group that determines the host; -1: there is no such group.
func (q Query) anchor() int {
	return slices.IndexFunc(q.Groups, func(g RequestGroup) bool { return g.Resources[croft.VCPU] > 0 })
}

// inTree returns the query for one host. It does not change q.
func (q Query) inTree(host croft.HostID) Query {
	q.Groups = slices.Clone(q.Groups)
	q.Groups[q.anchor()].InTree = host
	return q
}
