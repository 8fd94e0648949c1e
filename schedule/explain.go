package schedule

import (
	"cmp"
	"slices"

	"croft"
)

// Question is the input of Explain.
type Question struct {
	Query      Query
	Affinities []croft.Affinity
	Providers  []croft.Provider
	Hosts      map[croft.HostID]croft.Host
	Members    []croft.Member          // of the request's groups
	Fits       []Fit                   // hosts that are candidates
	Dropped    map[croft.HostID]string // reasons found by the attempt
}

// Explain checks every host that is not a candidate against each requirement separately, and a tree of providers
// against each group of the query separately. Placement combines them; a host that satisfies each of them but not all
// at once is reported as such.
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
	return e
}

// judge compares a host with the whole request.
func (q Question) judge(t tree) verdict {
	host, known := q.Hosts[t.id()]
	v := verdict{host: cmp.Or(t.own[0].Name, host.Name, string(t.id()))}
	why := unusable(host, known)
	if why != nil {
		t = t.whole() // usage is ignored here, and so is what the agent withdrew
	}
	v.judge(q.Query, t)
	for _, a := range q.Affinities {
		if err := a.Admit(t.id(), q.Members); err != nil {
			v.add(miss{requirement: a.String(), kind: a.String(), gap: 3, text: err.Error()})
		}
	}
	switch {
	case why != nil:
		v.add(*why)
	case len(v.misses) > 0:
	case q.Dropped[t.id()] != "":
		v.add(miss{requirement: "nobody faster", kind: "raced", text: q.Dropped[t.id()]})
	case len(t.all()) > 1 && len(q.Query.Groups) > 1:
		v.add(miss{requirement: "all groups of the query at once", kind: "together", gap: 1,
			text: "satisfies each group of the query, and not all at once"})
	default:
		v.add(miss{requirement: "nobody faster", kind: "raced", text: "has room by now: ask again"})
	}
	return v
}

// unusable returns why a host would not act on an order; nil: it would.
func unusable(host croft.Host, known bool) *miss {
	m := miss{gap: 4}
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
