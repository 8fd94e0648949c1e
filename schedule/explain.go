package schedule

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"croft"
)

// Explanation says why nothing fits. It is an error, of kind NoCapacity where the
// scheduler returns it.
type Explanation struct {
	Wanted croft.Resources `json:"wanted"`
	Rows   []Row           `json:"hosts"` // the nearest miss first
}

// Row is one host, or several that lack the same.
type Row struct {
	Hosts   []string `json:"hosts"`   // names, the nearest miss first
	Missing []string `json:"missing"` // of the first of them, one phrase each
}

// Error is one sentence with the nearest miss.
func (e *Explanation) Error() string {
	if len(e.Rows) == 0 {
		return fmt.Sprintf("no host offers anything to claim %s from; start an agent with `croft up` or `croft compute`", e.Wanted)
	}
	nearest := e.Rows[0]
	return fmt.Sprintf("no host has %s left; the nearest, %s: %s", e.Wanted, nearest.Hosts[0], strings.Join(nearest.Missing, ", "))
}

// noCapacity is the error of a request for which no candidate is left.
func (a *attempt) noCapacity(ctx context.Context) error {
	explanation, err := a.explain(ctx)
	if err != nil {
		return croft.Errorf(croft.NoCapacity, "schedule %s: no host has %s left (why cannot be told: %w)", a.inst.Name, a.query.Total(), err)
	}
	return croft.Errorf(croft.NoCapacity, "schedule %s: %w", a.inst.Name, explanation)
}

func (a *attempt) explain(ctx context.Context) (*Explanation, error) {
	providers, err := a.Claims.Providers(ctx)
	if err != nil {
		return nil, err
	}
	hosts, err := a.View.Hosts(ctx)
	if err != nil {
		return nil, err
	}
	return Explain(a.query, providers, hosts, a.dropped), nil
}

// Explain judges every provider by the whole query, as if it had to satisfy all of
// it alone, which is so for hosts without nested providers. dropped holds what the
// attempt itself learned of a host.
func Explain(q Query, providers []croft.Provider, hosts map[croft.HostID]croft.Host, dropped map[croft.HostID]string) *Explanation {
	var verdicts []verdict
	for _, p := range providers {
		host, known := hosts[p.ID]
		why := unusable(host, known)
		if why != "" {
			p.Used = nil // what is free there does not count, nor what the agent withdrew
			p.Inventories = whole(p.Inventories)
		}
		v := judge(q, p)
		if why != "" {
			v.add("unusable", 4, "%s", why)
		}
		if len(v.misses) == 0 {
			v.add("raced", 0, "%s", cmp.Or(dropped[p.ID], "has room by now: ask again"))
		}
		v.host = cmp.Or(p.Name, host.Name, string(p.ID))
		verdicts = append(verdicts, v)
	}
	slices.SortStableFunc(verdicts, func(a, b verdict) int {
		return cmp.Or(cmp.Compare(a.gap, b.gap), cmp.Compare(a.host, b.host))
	})
	return &Explanation{Wanted: q.Total(), Rows: group(verdicts)}
}

// whole is what a host would offer if nothing of it were reserved: agents that stop
// reserve all of it.
func whole(inventories map[croft.ResourceClass]croft.Inventory) map[croft.ResourceClass]croft.Inventory {
	all := maps.Clone(inventories)
	for class, inv := range all {
		inv.Reserved = 0
		all[class] = inv
	}
	return all
}

// unusable says why a host would not act on an order, or "".
func unusable(host croft.Host, known bool) string {
	switch {
	case !known:
		return "no agent of croft has registered it"
	case !host.Alive:
		return "its agent is not running"
	case host.Drained:
		return "it is drained"
	}
	return ""
}

// verdict is what one host lacks.
type verdict struct {
	host   string
	gap    float64 // how far the host is from fitting: what it lacks, summed
	misses []string
	kinds  []string // the same without amounts, to tell like from unlike
}

func (v *verdict) add(kind string, gap float64, format string, args ...any) {
	v.kinds = append(v.kinds, kind)
	v.gap += gap
	v.misses = append(v.misses, fmt.Sprintf(format, args...))
}

// judge compares a provider with a query. What can never fit weighs more than what
// others have taken.
func judge(q Query, p croft.Provider) verdict {
	var v verdict
	total := q.Total()
	for _, class := range slices.Sorted(maps.Keys(total)) {
		v.amount(class, total[class], p)
	}
	v.root(q, p)
	for _, g := range q.Groups {
		v.traits(g, p)
		v.place(g, p)
	}
	return v
}

func (v *verdict) amount(class croft.ResourceClass, want int64, p croft.Provider) {
	inv, offered := p.Inventories[class]
	free := inv.Capacity() - p.Used[class]
	kind := string(class)
	switch {
	case !offered:
		v.add(kind+" none", 2, "offers no %s", class)
	case inv.MaxUnit > 0 && want > inv.MaxUnit:
		v.add(kind+" max", 1.5, "gives one instance at most %d of %s, %d short of %d", inv.MaxUnit, class, want-inv.MaxUnit, want)
	case want < inv.MinUnit:
		v.add(kind+" min", 1.5, "gives at least %d of %s, and %d is asked for", inv.MinUnit, class, want)
	case inv.StepSize > 1 && want%inv.StepSize != 0:
		v.add(kind+" step", 1.5, "gives %s in steps of %d, and %d is asked for", class, inv.StepSize, want)
	case free < want:
		v.add(kind+" short", float64(want-free)/float64(want), "%d short of %s %d", want-free, class, want)
	}
}

// root judges what the host itself must have or must not.
func (v *verdict) root(q Query, p croft.Provider) {
	for _, word := range q.RootRequired {
		name, forbidden := strings.CutPrefix(word, "!")
		has := slices.Contains(p.Traits, croft.Trait(name))
		network, isNetwork := croft.NetworkOf(croft.Trait(name))
		switch {
		case forbidden && has:
			v.add(word, 2, "has %s, which is forbidden", name)
		case forbidden || has:
		case isNetwork:
			v.add(word, 2, "has no network %s", network)
		default:
			v.add(word, 2, "lacks %s", name)
		}
	}
}

func (v *verdict) traits(g Group, p croft.Provider) {
	for _, set := range g.Required {
		if !slices.ContainsFunc(set, func(t croft.Trait) bool { return slices.Contains(p.Traits, t) }) {
			v.add(joinTraits(set), 2, "lacks %s", strings.ReplaceAll(joinTraits(set), ",", " or "))
		}
	}
	for _, t := range g.Forbidden {
		if slices.Contains(p.Traits, t) {
			v.add("!"+string(t), 2, "has %s, which is forbidden", t)
		}
	}
}

func (v *verdict) place(g Group, p croft.Provider) {
	for _, set := range g.MemberOf {
		if !slices.ContainsFunc(set, func(a string) bool { return slices.Contains(p.Aggregates, a) }) {
			v.add("member "+strings.Join(set, ","), 3, "is not in aggregate %s", strings.Join(set, " or "))
		}
	}
	for _, a := range g.NotIn {
		if slices.Contains(p.Aggregates, a) {
			v.add("not in "+a, 3, "is in aggregate %s, which is excluded", a)
		}
	}
	if g.InTree != "" && g.InTree != p.ID {
		v.add("in_tree", 5, "is not the host %s that in_tree names", g.InTree)
	}
}

// group puts hosts that lack the same into one row, at the place of its nearest.
func group(verdicts []verdict) []Row {
	var rows []Row
	at := map[string]int{}
	for _, v := range verdicts {
		key := strings.Join(v.kinds, "\x00")
		i, seen := at[key]
		if !seen {
			i = len(rows)
			at[key] = i
			rows = append(rows, Row{Missing: v.misses})
		}
		rows[i].Hosts = append(rows[i].Hosts, v.host)
	}
	return rows
}
