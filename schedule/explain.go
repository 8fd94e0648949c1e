package schedule

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"croft"
)

// Explanation says which hosts a request fits on and what drops the others. It is an
// error, of kind NoCapacity where the scheduler returns it.
type Explanation struct {
	Wanted croft.Resources `json:"wanted"`
	Hosts  int             `json:"hosts"` // how many there are
	// the best first; empty where the scheduler returns it as an error
	Fits         []Fit         `json:"fits"`
	Requirements []Requirement `json:"requirements"` // that drop hosts, the one that drops most first
	Rows         []Row         `json:"dropped"`      // the nearest miss first
}

// Fit is a host that the request fits on.
type Fit struct {
	Host string       `json:"host"` // its name
	ID   croft.HostID `json:"id"`
	Rank int          `json:"rank"` // from 1; of hosts with the same rank chance decides
	Free float64      `json:"free"` // the fraction of its scarcest resource that stays free
}

// Requirement is a part of the request, and what it does. A host that fails several
// counts in each.
type Requirement struct {
	Requirement string `json:"requirement"`
	Dropped     int    `json:"dropped"` // hosts
	Nearest     string `json:"nearest"` // of them
	Miss        string `json:"miss"`    // what that one lacks of it
}

// Row is one host, or several that lack the same.
type Row struct {
	Hosts   []string `json:"hosts"`   // names, the nearest miss first
	Missing []string `json:"missing"` // of the first of them, one phrase each
}

// Error is one sentence with the nearest miss.
func (e *Explanation) Error() string {
	if len(e.Rows) == 0 {
		return fmt.Sprintf(
			"no host offers anything to claim %s from; start an agent with `croft up` or `croft compute`", e.Wanted)
	}
	nearest := e.Rows[0]
	return fmt.Sprintf("no host has %s left; the nearest, %s: %s", e.Wanted, nearest.Hosts[0],
		strings.Join(nearest.Missing, ", "))
}

// Explain says which hosts a request would fit on now, in their order, and what drops
// the others. It changes nothing. That no host fits is no error; whatever would make
// the request one is.
func (s *Scheduler) Explain(ctx context.Context, r Request) (*Explanation, error) {
	inst, err := r.record()
	if err != nil {
		return nil, err
	}
	a := s.attempt(r, inst)
	o, err := a.look(ctx, lastLimit)
	if err != nil {
		return nil, err
	}
	defer a.underway.done(o.reading)
	if err := a.readHosts(ctx, o, o.candidates); err != nil {
		return nil, err
	}
	usable, err := a.usable(o, o.candidates)
	if err != nil {
		return nil, err
	}
	return a.explain(ctx, o.ranking(a, usable))
}

// noCapacity is the error of a request for which no candidate is left.
func (a *attempt) noCapacity(ctx context.Context) error {
	explanation, err := a.explain(ctx, nil)
	if err != nil {
		return croft.Errorf(croft.NoCapacity, "schedule %s: no host has %s left (why cannot be told: %w)", a.inst.Name,
			a.query.Total(), err)
	}
	return croft.Errorf(croft.NoCapacity, "schedule %s: %w", a.inst.Name, explanation)
}

func (a *attempt) explain(ctx context.Context, fits []Fit) (*Explanation, error) {
	providers, err := a.stock.get(ctx, a.Claims.Providers)
	if err != nil {
		return nil, err
	}
	hosts, err := a.registry.get(ctx, func(ctx context.Context) (map[croft.HostID]croft.Host, error) {
		return a.View.Hosts(ctx)
	})
	if err != nil {
		return nil, err
	}
	o := &offer{}
	if err := a.readMembers(ctx, o); err != nil {
		return nil, err
	}
	return Explain(Question{
		Query: a.query, Affinities: a.inst.Spec.Affinities, Providers: providers, Hosts: hosts,
		Members: o.members, Fits: fits, Dropped: a.dropped,
	}), nil
}

// ranking is the order of the hosts that candidates are on.
func (o *offer) ranking(a *attempt, candidates []croft.Candidate) []Fit {
	var fits []Fit
	var last int // strain of the fit before
	seen := map[croft.HostID]bool{}
	for _, c := range o.rank(a)(slices.Clone(candidates), nil) {
		id := hostOf(c)
		if seen[id] {
			continue // a better way to use the same host
		}
		seen[id] = true
		fit := Fit{Host: cmp.Or(o.hosts[id].Name, string(id)), ID: id, Rank: len(fits) + 1, Free: max(freeAfter(c), 0)}
		strained := strain(a.inst.Spec.Affinities, id, o.members)
		if n := len(fits); n > 0 && fits[n-1].Free == fit.Free && last == strained {
			fit.Rank = fits[n-1].Rank
		}
		fits, last = append(fits, fit), strained
	}
	return fits
}

// Question is what Explain answers, with all that it has to know.
type Question struct {
	Query      Query
	Affinities []croft.Affinity
	Providers  []croft.Provider
	Hosts      map[croft.HostID]croft.Host
	Members    []croft.Member          // of the groups
	Fits       []Fit                   // the hosts that are candidates
	Dropped    map[croft.HostID]string // what the attempt itself learned of hosts
}

// Explain judges every host that is no candidate by each requirement alone, and for
// trees of providers by each group of the query alone. That is less than Placement
// does, which combines them: where each fits and all together do not, it says that.
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

// judge compares a host with all that is asked.
func (q Question) judge(t tree) verdict {
	host, known := q.Hosts[t.id()]
	v := verdict{host: cmp.Or(t.own[0].Name, host.Name, string(t.id()))}
	why := unusable(host, known)
	if why != nil {
		t = t.whole() // what is free there does not count, nor what the agent withdrew
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

// unusable says why a host would not act on an order, or nil.
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
