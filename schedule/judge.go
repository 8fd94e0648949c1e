package schedule

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"croft"
)

// miss is a shortfall of a host in one requirement.
type miss struct {
	requirement string  // as in the query
	kind        string  // text without amounts, to group equal misses
	gap         float64 // distance of the host from the requirement
	text        string
	// the change of the request that would help
	remedy remedy
}

// remedy is a change of a request. The zero value leaves the requirement out.
type remedy struct {
	none   bool                // no change of the request helps
	class  croft.ResourceClass // of an amount; empty: the requirement is no amount
	amount int64               // that the host can give instead; 0: none
}

// change returns how a request has to change to fit on the host; nil: no change helps.
func (v verdict) change() *Adjustment {
	c := &Adjustment{Host: v.host}
	for _, m := range v.misses {
		r := m.remedy
		needed := r.class == croft.VCPU || r.class == croft.MemoryMB || r.class == croft.DiskGB // by every instance
		switch {
		case r.none, r.amount == 0 && needed:
			return nil
		case r.amount == 0:
			c.Without = append(c.Without, m.requirement)
		case c.Resources == nil:
			c.Resources = croft.Resources{}
			fallthrough
		default:
			c.Resources[r.class] = r.amount
		}
	}
	if len(c.Resources)+len(c.Without) == 0 {
		return nil
	}
	return c
}

// verdict lists what one host lacks.
type verdict struct {
	host   string
	gap    float64 // sum over the misses
	misses []miss
}

func (v *verdict) add(all ...miss) {
	for _, m := range all {
		v.misses = append(v.misses, m)
		v.gap += m.gap
	}
}

// judge compares a tree of providers with a query. A single provider must satisfy all groups alone; in a tree, each
// group is checked separately.
func (v *verdict) judge(q Query, t tree) {
	v.add(rootMisses(q, t.own[0])...)
	if all := t.all(); len(all) == 1 {
		total := q.Total()
		for _, class := range slices.Sorted(maps.Keys(total)) {
			v.add(amountMiss(class, total[class], "", all[0])...)
		}
		for _, g := range q.Groups {
			v.add(qualityMisses(g, all[0], all[0].Aggregates, t)...)
		}
		v.add(isolation(q)...)
		return
	}
	for _, g := range q.Groups {
		v.add(t.groupMisses(g)...)
	}
}

// isolation returns the miss of a single provider when the groups must not share one.
func isolation(q Query) []miss {
	n := 0
	for _, g := range q.Groups {
		if g.Suffix != "" && g.Resources != nil {
			n++
		}
	}
	if q.GroupPolicy != "isolate" || n < 2 {
		return nil
	}
	return []miss{{requirement: "group_policy=isolate", kind: "isolate", gap: 5,
		text: fmt.Sprintf("is one provider, and group_policy=isolate wants %d", n)}}
}

// groupMisses returns what a tree lacks for one group. A group with a suffix must be served by one provider, and the
// nearest one is reported. Without a suffix, each class may come from another provider, and the traits may be anywhere
// among them.
func (t tree) groupMisses(g RequestGroup) []miss {
	if g.Suffix == "" {
		return t.spreadMisses(g)
	}
	var nearest []miss
	for i, p := range t.own {
		var misses []miss
		for _, class := range slices.Sorted(maps.Keys(g.Resources)) {
			misses = append(misses, amountMiss(class, g.Resources[class], g.Suffix, p)...)
		}
		misses = append(misses, qualityMisses(g, p, p.Aggregates, t)...)
		if i == 0 || sum(misses) < sum(nearest) {
			nearest = misses
		}
	}
	return nearest
}

func (t tree) spreadMisses(g RequestGroup) []miss {
	var misses []miss
	all := t.all()
	open := slices.DeleteFunc(slices.Clone(all), func(p croft.Provider) bool { return hasAny(p, g.Forbidden) })
	union := croft.Provider{ID: t.id()}
	for _, p := range open {
		union.Traits = append(union.Traits, p.Traits...)
	}
	if len(open) == 0 {
		open, union = all, t.own[0] // the forbidden trait then is the miss
	}
	for _, class := range slices.Sorted(maps.Keys(g.Resources)) {
		var nearest []miss
		for i, p := range open {
			if m := amountMiss(class, g.Resources[class], "", p); i == 0 || sum(m) < sum(nearest) {
				nearest = m
			}
		}
		misses = append(misses, nearest...)
	}
	return append(misses, qualityMisses(g, union, t.own[0].Aggregates, t)...)
}

func hasAny(p croft.Provider, traits []croft.Trait) bool {
	return slices.ContainsFunc(traits, func(t croft.Trait) bool { return slices.Contains(p.Traits, t) })
}

func sum(misses []miss) (gap float64) {
	for _, m := range misses {
		gap += m.gap
	}
	return gap
}

// amountMiss returns the miss of a provider for an amount, or none. An amount that the provider can never give
// (its class is not offered, or its limits or step size exclude it) weighs more than one that only exceeds the free
// capacity.
func amountMiss(class croft.ResourceClass, want int64, suffix string, p croft.Provider) []miss {
	inv, offered := p.Inventories[class]
	free := inv.Capacity() - p.Used[class]
	m := miss{requirement: fmt.Sprintf("%s %d%s", class, want, ofGroup(suffix)),
		remedy: remedy{class: class, amount: nearestAmount(want, inv, free)}}
	say := func(kind string, gap float64, format string, args ...any) []miss {
		m.kind, m.gap, m.text = string(class)+" "+kind, gap, fmt.Sprintf(format, args...)+ofGroup(suffix)
		return []miss{m}
	}
	switch {
	case !offered:
		return say("none", 2, "offers no %s", class)
	case inv.MaxUnit > 0 && want > inv.MaxUnit:
		return say("max", 1+float64(want-inv.MaxUnit)/float64(want),
			"gives one instance at most %d of %s, %s short of %d", inv.MaxUnit, class, amount(class, want-inv.MaxUnit),
			want)
	case want < inv.MinUnit:
		return say("min", 1.5, "gives at least %d of %s, and %d is asked for", inv.MinUnit, class, want)
	case inv.StepSize > 1 && want%inv.StepSize != 0:
		return say("step", 1.5, "gives %s in steps of %d, and %d is asked for", class, inv.StepSize, want)
	case free < want:
		return say("short", float64(want-free)/float64(want), "%s short of %s %d", amount(class, want-free), class,
			want)
	}
	return nil
}

// nearestAmount returns the amount nearest to a wanted one that a provider can give now; 0: it can give none.
func nearestAmount(want int64, inv croft.Inventory, free int64) int64 {
	most, step := free, max(inv.StepSize, 1)
	if inv.MaxUnit > 0 {
		most = min(most, inv.MaxUnit)
	}
	least := max(inv.MinUnit, 1)
	n := min(want, most)
	if n -= n % step; n >= least {
		return n
	}
	if n = (least + step - 1) / step * step; n <= most {
		return n
	}
	return 0
}

func ofGroup(suffix string) string {
	if suffix == "" {
		return ""
	}
	return " (group " + suffix + ")"
}

// units of amounts, by suffix of the class name.
var units = []struct{ end, unit string }{
	{"_MB", "MB"}, {"_GB", "GB"}, {"_KILOBIT_PER_SEC", "kbit/s"}, {"_KILOPACKET_PER_SEC", "kpacket/s"},
	{"_BYTES", "bytes"},
}

// amount formats a number with the unit of its class, if it has one.
func amount(class croft.ResourceClass, n int64) string {
	for _, u := range units {
		if strings.HasSuffix(string(class), u.end) {
			return fmt.Sprintf("%d %s", n, u.unit)
		}
	}
	return fmt.Sprint(n)
}

// archGap is the gap of a host of another architecture: more than that of a host of the right one that is full.
const archGap = 4

// rootMisses checks the traits that the host itself must or must not have.
func rootMisses(q Query, p croft.Provider) []miss {
	var misses []miss
	add := func(requirement, text string) {
		misses = append(misses, miss{requirement: requirement, kind: requirement, gap: 2, text: text})
	}
	for _, word := range q.RootRequired {
		name, forbidden := strings.CutPrefix(word, "!")
		has := slices.Contains(p.Traits, croft.Trait(name))
		network, isNetwork := croft.NetworkOf(croft.Trait(name))
		switch {
		case forbidden && has:
			add(word, "has "+name+", which is forbidden")
		case forbidden || has:
		case isNetwork:
			add("network "+network, "has no network "+network)
		default:
			lack, known := croft.Trait(name).Lack()
			if !known {
				lack = "lacks " + name
			}
			add(word, lack)
			if slices.ContainsFunc(croft.Archs(), func(a croft.Arch) bool { return a.Trait() == croft.Trait(name) }) {
				m := &misses[len(misses)-1]
				m.gap, m.remedy = archGap, remedy{none: true}
			}
		}
	}
	return misses
}

// qualityMisses checks traits, aggregates and the tree. aggregates apply to the provider.
func qualityMisses(g RequestGroup, p croft.Provider, aggregates []string, t tree) []miss {
	var misses []miss
	add := func(requirement string, gap float64, text string) {
		requirement += ofGroup(g.Suffix)
		misses = append(misses, miss{requirement: requirement, kind: requirement, gap: gap,
			text: text + ofGroup(g.Suffix)})
	}
	for _, set := range g.Required {
		if !hasAny(p, set) {
			choice := strings.ReplaceAll(joinTraits(set), ",", " or ")
			add(choice, 2, "lacks "+choice)
		}
	}
	for _, trait := range g.Forbidden {
		if slices.Contains(p.Traits, trait) {
			add("!"+string(trait), 2, "has "+string(trait)+", which is forbidden")
		}
	}
	for _, set := range g.MemberOf {
		if !slices.ContainsFunc(set, func(a string) bool { return slices.Contains(aggregates, a) }) {
			choice := strings.Join(set, " or ")
			add("member_of "+choice, 3, "is not in aggregate "+choice)
		}
	}
	for _, a := range g.NotIn {
		if slices.Contains(aggregates, a) {
			add("member_of !"+a, 3, "is in aggregate "+a+", which is excluded")
		}
	}
	if g.InTree != "" && !t.has(g.InTree) {
		add("in_tree "+string(g.InTree), 5, "is not the host "+string(g.InTree)+" that in_tree names")
	}
	return misses
}

// rows groups hosts that lack the same into one row, at the position of the nearest of them.
func rows(verdicts []verdict) []Row {
	var all []Row
	at := map[string]int{}
	for _, v := range verdicts {
		var kinds, texts []string
		for _, m := range v.misses {
			kinds, texts = append(kinds, m.kind), append(texts, m.text)
		}
		key := strings.Join(kinds, "\x00")
		i, seen := at[key]
		if !seen {
			i = len(all)
			at[key] = i
			all = append(all, Row{Missing: texts})
		}
		all[i].Hosts = append(all[i].Hosts, v.host)
	}
	return all
}

// requirements counts the hosts that each requirement drops and names the nearest of them; among equals, the host with
// the smallest sum of gaps.
func requirements(verdicts []verdict) []Requirement {
	var all []Requirement
	at, gaps := map[string]int{}, map[string]float64{}
	for _, v := range verdicts {
		counted := map[string]bool{}
		for _, m := range v.misses {
			if counted[m.requirement] {
				continue
			}
			counted[m.requirement] = true
			i, seen := at[m.requirement]
			if !seen {
				i = len(all)
				at[m.requirement] = i
				all = append(all, Requirement{Requirement: m.requirement})
			}
			all[i].Dropped++
			if !seen || m.gap < gaps[m.requirement] {
				gaps[m.requirement] = m.gap
				all[i].Nearest, all[i].Miss = v.host, m.text
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Requirement) int {
		return cmp.Or(cmp.Compare(b.Dropped, a.Dropped), cmp.Compare(a.Requirement, b.Requirement))
	})
	return all
}
