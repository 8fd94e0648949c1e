package schedule

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"croft"
	"croft/schedule/topology"
)

// Question is the input of Explain.
type Question struct {
	Query      Query
	Spec       croft.Spec
	Volumes    []croft.Volume // of the request
	Providers  []croft.Provider
	Hosts      map[croft.HostID]croft.Host
	Members    []croft.GroupMember        // of the request's groups
	Seats      []croft.Seat               // taken in them
	Aggregates map[string]croft.Aggregate // that the request's bounds name
	Filtered   croft.FilteredHosts
	Measure    topology.Measure
	Fits       []Fit                   // hosts that are candidates
	Dropped    map[croft.HostID]string // reasons found by the attempt
	Stored     map[croft.HostID]string // why the disk fits on no shared storage of a host
	Holders    map[croft.HostID]string // which other instance has the chosen address on a host
	Chosen     map[croft.HostID]bool   // hosts that the CRUSH policy can choose; nil: all
}

// Explain checks every host that is not a candidate against each requirement separately, and a tree of providers
// against each group of the query separately. Placement combines the requirements: a host that satisfies each of them
// but not all at once is reported as such.
func Explain(q Question) *Explanation {
	e := &Explanation{Wanted: q.Query.Total(), Fits: []Fit{}, Requirements: []Requirement{}, Rows: []Row{}}
	e.Fits = append(e.Fits, q.Fits...)
	var verdicts []verdict
	trees := treesOf(q.Providers, q.Hosts)
	e.Hosts = len(trees)
	for _, t := range trees {
		if !slices.ContainsFunc(q.Fits, func(f Fit) bool { return f.ID == t.id() }) {
			verdicts = append(verdicts, q.judge(t))
		}
	}
	slices.SortStableFunc(verdicts, func(a, b verdict) int {
		return cmp.Or(cmp.Compare(a.gap, b.gap), cmp.Compare(a.host, b.host))
	})
	e.Rows = append(e.Rows, rows(verdicts)...)
	e.Requirements = append(e.Requirements, requirements(verdicts)...)
	if len(e.Fits) == 0 && len(q.Query.Groups) == 1 { // the sums over several groups say nothing about one of them
		e.Change = smallestChange(verdicts)
	}
	return e
}

// judge compares a host with the whole request.
func (q Question) judge(t tree) verdict {
	host, known := q.Hosts[t.id()]
	host.ID = t.id()
	v := verdict{host: cmp.Or(t.own[0].Name, host.Name, string(t.id()))}
	why := unusable(host, known)
	if why != nil {
		t = t.whole() // ignores usage, and inventory that the agent has withdrawn
	}
	v.judge(q.Query, t)
	if err := host.Runs(q.Spec.Machine.Arch); err != nil && q.Spec.Machine.Arch.Known() == croft.ArchX86 {
		v.add(miss{requirement: string(croft.TraitX86), kind: err.Error(), gap: archGap, text: err.Error(),
			remedy: remedy{none: true}})
	} // others require the trait
	for _, b := range q.Spec.In {
		if err := topology.AdmitBounds([]croft.Bound{b}, host, q.Aggregates); err != nil {
			v.add(miss{requirement: b.String(), kind: err.Error(), gap: 3, text: err.Error()})
		}
	}
	if err := q.Filtered.Admit(q.Spec, t.id()); err != nil {
		v.add(miss{requirement: notes(q.Spec), kind: err.Error(), gap: 3, text: err.Error()})
	}
	for _, volume := range q.Volumes {
		if err := has([]croft.Volume{volume}, host); err != nil {
			v.add(miss{requirement: "volume " + volume.Name, kind: err.Error(), gap: 3, text: err.Error()})
		}
	}
	if text := q.Stored[t.id()]; text != "" {
		v.add(miss{requirement: "storage " + q.Spec.Storage, kind: text, gap: 1, text: text})
	}
	if err := GivesAddress(q.Spec, host, q.Holders); err != nil {
		v.add(miss{requirement: "address " + q.Spec.FixedAddress, kind: err.Error(), gap: 3, text: err.Error()})
	}
	if q.Chosen != nil && !q.Chosen[t.id()] {
		text := "is none that policy " + q.Spec.Policy.Name + " chooses"
		v.add(miss{requirement: crushPrefix + q.Spec.Policy.Name, kind: text, gap: 3, text: text})
	}
	q.Measure.AdmitEach(host, func(requirement string, err error) {
		v.add(miss{requirement: requirement, kind: err.Error(), gap: 3, text: err.Error()})
	})
	for _, a := range q.Spec.Affinities {
		if err := admitMember([]croft.Affinity{a}, host, q.Members, q.Seats); err != nil {
			m := miss{requirement: a.String(), kind: a.String(), gap: 3, text: err.Error()}
			if a.Rule.ByLocation() {
				m.kind = m.text // misses with different locations are not grouped
			}
			v.add(m)
		}
	}
	switch {
	case why != nil:
		v.add(*why)
	case len(v.misses) > 0:
	case q.Dropped[t.id()] != "":
		v.add(miss{requirement: "not taken meanwhile", kind: "raced", text: q.Dropped[t.id()],
			remedy: remedy{none: true}})
	case len(t.all()) > 1 && len(q.Query.Groups) > 1:
		v.add(miss{requirement: "all groups of the query at once", kind: "together", gap: 1,
			text: "satisfies each group of the query, and not all at once", remedy: remedy{none: true}})
	default:
		v.add(miss{requirement: "not taken meanwhile", kind: "raced", text: "has room by now: ask again",
			remedy: remedy{none: true}})
	}
	return v
}

// notes describes the host properties that a request demands.
func notes(spec croft.Spec) string {
	var parts []string
	if len(spec.Where) > 0 {
		parts = append(parts, "where "+strings.Join(spec.Where, " or "))
	}
	if len(spec.WhereNot) > 0 {
		parts = append(parts, "not where "+strings.Join(spec.WhereNot, " or "))
	}
	return strings.Join(parts, ", ")
}

// unusable returns the reason why a host would not act on an order; nil: it would.
func unusable(host croft.Host, known bool) *miss {
	m := miss{gap: 4, remedy: remedy{none: true}}
	switch {
	case !known:
		m.requirement, m.text = "an agent of croft", "no agent of croft has registered it"
	case !host.Alive:
		m.requirement, m.text = "a running agent", "its agent is not running"
	case host.Drained:
		m.requirement, m.text = "not drained", "it is drained"
	default:
		return nil
	}
	m.kind = m.text
	return &m
}

// Explanation lists the hosts that a request fits on and the reasons why others are dropped. The scheduler returns it
// as an error of kind NoCapacity.
type Explanation struct {
	Wanted croft.Resources `json:"wanted"` // what the request claims, by resource class
	Hosts  int             `json:"hosts"`  // number of all hosts
	// best first; empty when the scheduler returns it as an error
	Fits         []Fit         `json:"fits"`
	Requirements []Requirement `json:"requirements"` // that drop hosts, by number of hosts, descending
	Rows         []Row         `json:"dropped"`      // nearest miss first
	// The smallest change with which the request fits on a host; left out: it fits, or no change of it helps.
	Change *Adjustment `json:"change,omitempty"`
	// the current CRUSH policy of the request, and the hosts in its order
	Policy *croft.CrushPolicy `json:"policy,omitempty"`
	// With a policy `crush:NAME`, the hosts in its order.
	Trace []Step `json:"trace,omitempty"`
}

// Adjustment is a change of a request that fits on no host, with which it fits on one.
type Adjustment struct {
	Host      string          `json:"host"`                // name of that host
	Resources croft.Resources `json:"resources,omitempty"` // amounts to ask for instead, by resource class
	Without   []string        `json:"without,omitempty"`   // requirements to leave out
}

// smallestChange returns the change for the nearest host that a change helps; nil: none is needed, or none helps.
func smallestChange(nearestFirst []verdict) *Adjustment {
	for _, v := range nearestFirst {
		if v.gap == 0 { // it has room by now
			return nil
		}
		if c := v.change(); c != nil {
			return c
		}
	}
	return nil
}

// withoutDisks returns the change in the amounts of the instance itself, without its new volumes; nil: it cannot be
// expressed in these.
func (c *Adjustment) withoutDisks(disks []croft.Volume) *Adjustment {
	if c == nil || c.Resources[croft.DiskGB] == 0 || len(disks) == 0 {
		return c
	}
	left := c.Resources[croft.DiskGB] - sizeOf(disks)
	if left < 1 {
		return nil
	}
	changed := *c
	changed.Resources = maps.Clone(c.Resources)
	changed.Resources[croft.DiskGB] = left
	return &changed
}

// String returns the change as a sentence without its end.
func (c Adjustment) String() string {
	var parts []string
	if len(c.Resources) > 0 {
		parts = append(parts, "with "+c.Resources.String())
	}
	if len(c.Without) > 0 {
		parts = append(parts, "without "+strings.Join(c.Without, ", "))
	}
	return strings.Join(parts, " and ") + " it fits on " + c.Host
}

// Step is a host in the order of a CRUSH policy.
type Step struct {
	Host string `json:"host"` // name
	// Empty for tenants.
	ID   croft.HostID `json:"id"`
	Pass int          `json:"pass"`          // of the policy, from 0; -1: after all passes
	Why  string       `json:"why,omitempty"` // reason for the refusal; empty: taken if no host before it is
}

// Fit is a host that the request fits on.
type Fit struct {
	Host string       `json:"host"` // name
	ID   croft.HostID `json:"id"`   // UUID of the host; empty for tenants
	Rank int          `json:"rank"` // from 1; equal ranks are ordered randomly
	Free float64      `json:"free"` // fraction of its scarcest resource that stays free
}

// Requirement is a part of the request, and how many hosts it drops. A host that fails several requirements counts in
// each.
type Requirement struct {
	Requirement string `json:"requirement"` // as the request has it
	Dropped     int    `json:"dropped"`     // hosts
	Nearest     string `json:"nearest"`     // the nearest of these hosts
	Miss        string `json:"miss"`        // what that host lacks
}

// Row is one or several hosts that lack the same things.
type Row struct {
	Hosts   []string `json:"hosts"`   // names, nearest miss first
	Missing []string `json:"missing"` // missing items of the first of them, one phrase each
}

// ForTenants returns the same as Error, without the names of hosts.
func (e *Explanation) ForTenants() string {
	if len(e.Rows) == 0 {
		return fmt.Sprintf("no host offers anything to claim %s from", e.Wanted)
	}
	return fmt.Sprintf("%s fits on no host; the nearest: %s", e.Wanted, strings.Join(e.Rows[0].Missing, ", "))
}

// Error returns one sentence with the nearest miss.
func (e *Explanation) Error() string {
	if len(e.Rows) == 0 {
		return fmt.Sprintf(
			"no host offers anything to claim %s from; start an agent with `croft up` or `croft serve compute`",
			e.Wanted)
	}
	nearest := e.Rows[0]
	return fmt.Sprintf("%s fits on no host; the nearest, %s: %s", e.Wanted, nearest.Hosts[0],
		strings.Join(nearest.Missing, ", "))
}
