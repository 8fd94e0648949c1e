package ledger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// The reference: the results that the search and the filters should have, computed from the definitions without any
// optimization. TestASearchFindsWhatTheDefinitionsSay compares them on small random states.

var (
	modelClasses    = []string{"VCPU", "DISK_GB", "VGPU"}
	modelTraits     = []string{"CUSTOM_A", "CUSTOM_B", "CUSTOM_C"}
	modelAggregates = []string{"agg1", "agg2", "agg3"}
)

// model is a small random state.
type model struct {
	*rand.Rand
	*State
}

// some returns each element with a probability of one in n.
func (m *model) some(n int, list []string) (out []string) {
	for _, x := range list {
		if m.IntN(n) == 0 {
			out = append(out, x)
		}
	}
	return out
}

func (m *model) one(list []string) string { return list[m.IntN(len(list))] }

func newModel(t *testing.T, seed uint64) *model {
	m := &model{rand.New(rand.NewPCG(seed, 1)), newState(time.Unix(0, 0))}
	revision := int64(1)
	tell := func(e Entry) {
		revision++
		e.Created, e.Modified = revision, revision
		if err := m.apply(revision, []Entry{e}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range modelTraits { // the search refuses unknown ones
		m.traits.intern(name)
	}
	count := 2 + m.IntN(5)
	shares := m.IntN(2) == 0
	for i := range count {
		p := &ProviderData{UUID: fmt.Sprintf("p%d", i), Name: fmt.Sprintf("name%d", i)}
		if i > 0 && m.IntN(2) == 0 {
			p.Parent = fmt.Sprintf("p%d", m.IntN(i))
		}
		for i, class := range modelClasses {
			if m.IntN(4) == 0 || i == 2 && m.IntN(2) == 0 {
				continue
			}
			p.Inventories = append(p.Inventories, Inventory{Class: m.classes.intern(class), Total: 2 + m.Int64N(8),
				Reserved: m.Int64N(2), MinUnit: 1 + m.Int64N(2), MaxUnit: 2 + m.Int64N(4), StepSize: 1 + m.Int64N(2),
				Ratio: []float64{1, 1, 0.5, 1.5}[m.IntN(4)]})
		}
		sortInventories(p.Inventories)
		names := m.some(2, modelTraits)
		if shares && m.IntN(3) == 0 {
			names = append(names, sharesTrait)
		}
		for _, name := range names {
			p.Traits = insertID(p.Traits, m.traits.intern(name))
		}
		p.Aggregates = m.some(3, modelAggregates)
		tell(Entry{Key: Key{KindProvider, p.UUID}, Value: encodeProvider(p, m.State)})
		for j, inv := range p.Inventories {
			if m.IntN(3) == 0 {
				c := ConsumerData{Allocations: []Allocation{{p.UUID, inv.Class, 1 + m.Int64N(3)}}}
				tell(Entry{Key: Key{KindConsumer, fmt.Sprintf("c%d%d", i, j)}, Value: encodeConsumer(&c, m.State)})
			}
		}
	}
	return m
}

func (m *model) traitTest(often int) (t TraitTest) {
	for m.IntN(often) == 0 {
		t.Required = append(t.Required, append(m.some(3, modelTraits), m.one(modelTraits)))
	}
	if m.IntN(2*often) == 0 {
		t.Forbidden = []string{m.one(modelTraits)}
	}
	return t
}

func (m *model) aggregateTest() (a AggregateTest) {
	for m.IntN(6) == 0 {
		a.Required = append(a.Required, append(m.some(3, modelAggregates), m.one(modelAggregates)))
	}
	if m.IntN(6) == 0 {
		a.Forbidden = []string{m.one(modelAggregates)}
	}
	return a
}

func (m *model) resources(least int) (list []NamedAmount) {
	for _, class := range append(m.some(3, modelClasses[:2]), m.some(5, modelClasses[2:])...) {
		list = append(list, NamedAmount{class, 1 + m.Int64N(3)})
	}
	if len(list) < least {
		list = []NamedAmount{{m.one(modelClasses), 1 + m.Int64N(3)}}
	}
	return list
}

func (m *model) request() *CandidateRequest {
	req := &CandidateRequest{Nested: m.IntN(4) > 0, Isolate: m.IntN(2) == 0}
	for i := range 1 + m.IntN(3) {
		g := RequestGroup{Traits: m.traitTest(5), Aggregates: m.aggregateTest()}
		if i > 0 || m.IntN(3) == 0 {
			g.Suffix = fmt.Sprint("_", i)
		}
		least := 1
		if g.Suffix != "" && i > 0 && m.IntN(3) == 0 {
			least = 0
		}
		if g.Resources = m.resources(least); len(g.Resources) > 0 && m.IntN(6) == 0 {
			g.Tree = m.all[m.IntN(len(m.all))].UUID
		}
		req.Groups = append(req.Groups, g)
	}
	if m.IntN(4) == 0 {
		req.RootTraits = m.traitTest(2)
	}
	if len(req.Groups) > 1 && m.IntN(2) == 0 {
		req.Subtrees = [][]string{m.some(2, []string{"_0", "_1", "_2"})}
	}
	return req
}

// satisfies reports whether traits pass a test.
func (m *model) satisfies(ids []ID, t TraitTest) bool {
	has := func(name string) bool { return slices.Contains(ids, m.traits.Get(name).id) }
	return all(t.Required, func(any []string) bool { return slices.ContainsFunc(any, has) }) &&
		!slices.ContainsFunc(t.Forbidden, has)
}

func all[T any](list []T, pass func(T) bool) bool {
	return !slices.ContainsFunc(list, func(x T) bool { return !pass(x) })
}

// member reports whether the aggregates of one or two providers pass a test.
func member(t AggregateTest, providers ...*Provider) bool {
	required := slices.ContainsFunc(providers, func(p *Provider) bool {
		return all(t.Required, func(any []string) bool {
			return slices.ContainsFunc(any, func(a string) bool { return slices.Contains(p.Aggregates, a) })
		})
	})
	return required && all(t.Forbidden, func(a string) bool {
		return all(providers, func(p *Provider) bool { return !slices.Contains(p.Aggregates, a) })
	})
}

// holds reports whether a provider has room for an amount.
func (m *model) holds(p *Provider, w NamedAmount) bool {
	for _, i := range p.Inventories {
		if m.ClassName(i.Class) == w.Class {
			return w.N >= i.MinUnit && w.N <= i.MaxUnit && w.N%i.StepSize == 0 &&
				float64(m.used(p, w.Class)+w.N) <= float64(i.Total-i.Reserved)*i.Ratio
		}
	}
	return false
}

// used sums the amounts of the consumers.
func (m *model) used(p *Provider, class string) (sum int64) {
	for _, c := range m.consumers {
		for _, a := range c.Allocations {
			if a.Provider == p.UUID && m.ClassName(a.Class) == class {
				sum += a.N
			}
		}
	}
	return sum
}

func (m *model) root(p *Provider) *Provider {
	for p.Parent != "" {
		p = m.providers[p.Parent]
	}
	return p
}

// picks lists the ways to serve a group from a tree: one provider for each resource.
func (m *model) picks(g *RequestGroup, root *Provider) [][]*Provider {
	var own, lent []*Provider
	for _, p := range m.all {
		if m.root(p) == root {
			own = append(own, p)
		}
	}
	for _, p := range m.all {
		borrows := func(q *Provider) bool {
			return slices.ContainsFunc(q.Aggregates, func(a string) bool { return slices.Contains(p.Aggregates, a) })
		}
		sharing := m.traits.Get(sharesTrait) // nil: no provider ever had it
		if sharing != nil && slices.Contains(p.Traits, sharing.id) && m.root(p) != root &&
			slices.ContainsFunc(own, borrows) {
			lent = append(lent, p)
		}
	}
	inTree := func(p *Provider) bool { return g.Tree == "" || m.root(p) == m.root(m.providers[g.Tree]) }
	if g.Single() {
		var out [][]*Provider
		asks := len(g.Resources) + len(g.Traits.Required) + len(g.Aggregates.Required)
		for _, p := range append(own, lent...) {
			if asks > 0 && inTree(p) && member(g.Aggregates, p) && m.satisfies(p.Traits, g.Traits) &&
				all(g.Resources, func(w NamedAmount) bool { return m.holds(p, w) }) {
				out = append(out, []*Provider{p})
			}
		}
		return out
	}
	may := func(p *Provider, w NamedAmount) bool {
		return inTree(p) && m.holds(p, w) && m.satisfies(p.Traits, TraitTest{Forbidden: g.Traits.Forbidden})
	}
	ways := [][]*Provider{nil}
	for _, w := range g.Resources {
		var longer [][]*Provider
		for _, way := range ways {
			for _, p := range own {
				if may(p, w) && member(g.Aggregates, p, root) {
					longer = append(longer, append(slices.Clone(way), p))
				}
			}
			for _, p := range lent {
				if g.Tree == "" && may(p, w) && member(g.Aggregates, p) && member(g.Aggregates, p, root) {
					longer = append(longer, append(slices.Clone(way), p))
				}
			}
		}
		ways = longer
	}
	return slices.DeleteFunc(ways, func(way []*Provider) bool {
		var together []ID
		for _, p := range way {
			together = append(together, p.Traits...)
		}
		return !m.satisfies(together, TraitTest{Required: g.Traits.Required})
	})
}

// candidates returns all candidates by the definitions, as text.
func (m *model) candidates(req *CandidateRequest) []string {
	var out []string
	for _, root := range m.all {
		if root.Parent != "" || !m.satisfies(root.Traits, req.RootTraits) {
			continue
		}
		combined := [][][]*Provider{nil}
		for i := range req.Groups {
			var longer [][][]*Provider
			for _, c := range combined {
				for _, pick := range m.picks(&req.Groups[i], root) {
					longer = append(longer, append(slices.Clone(c), pick))
				}
			}
			combined = longer
		}
		for _, c := range combined {
			if text, ok := m.permitted(req, c); ok {
				out = append(out, text)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// permitted checks the rules that span groups, and writes a candidate as text.
func (m *model) permitted(req *CandidateRequest, picks [][]*Provider) (string, bool) {
	type key struct {
		p     *Provider
		class string
	}
	sums, trees, alone := map[key]int64{}, map[*Provider]*Provider{}, map[*Provider]bool{}
	var options []string
	for i, pick := range picks {
		g := req.Groups[i]
		if g.Single() {
			if req.Isolate && alone[pick[0]] {
				return "", false
			}
			alone[pick[0]] = true
		}
		var names []string
		for j, p := range pick {
			if len(g.Resources) > 0 {
				if other := trees[m.root(p)]; other != nil && other != p && !req.Nested {
					return "", false
				}
				trees[m.root(p)] = p
			}
			names = append(names, p.UUID)
			if !g.Single() {
				sums[key{p, g.Resources[j].Class}] += g.Resources[j].N
			}
		}
		if g.Single() {
			for _, w := range g.Resources {
				sums[key{pick[0], w.Class}] += w.N
			}
		}
		slices.Sort(names)
		options = append(options, g.Suffix+"="+strings.Join(slices.Compact(names), ","))
	}
	var items []string
	for k, n := range sums {
		i := k.p.Inventory(m.classes.Get(k.class).id)
		if n > i.MaxUnit || m.used(k.p, k.class)+n > int64(float64(i.Total-i.Reserved)*i.Ratio) {
			return "", false
		}
		items = append(items, fmt.Sprintf("%s %s %d", k.p.UUID, k.class, n))
	}
	for _, suffixes := range req.Subtrees {
		var involved []*Provider
		for i, pick := range picks {
			if slices.Contains(suffixes, req.Groups[i].Suffix) {
				involved = append(involved, pick...)
			}
		}
		top := func(p *Provider) bool { return all(involved, func(q *Provider) bool { return m.below(q, p) }) }
		if len(involved) > 0 && !slices.ContainsFunc(involved, top) {
			return "", false
		}
	}
	slices.Sort(items)
	return strings.Join(append(items, options...), "; "), true
}

// below reports whether q is p or in the tree below it.
func (m *model) below(q, p *Provider) bool {
	for q != p && q.Parent != "" {
		q = m.providers[q.Parent]
	}
	return q == p
}

// texts formats the candidates of a search in the same way.
func (m *model) texts(req *CandidateRequest, found []Candidate) []string {
	var out []string
	for _, c := range found {
		var items, options []string
		for _, x := range c.Portions {
			items = append(items, fmt.Sprintf("%s %s %d", x.Provider.UUID, m.ClassName(x.Class), x.N))
		}
		for i, o := range c.Options {
			var names []string
			for _, p := range o.Providers {
				names = append(names, p.UUID)
			}
			slices.Sort(names)
			options = append(options, req.Groups[i].Suffix+"="+strings.Join(names, ","))
		}
		slices.Sort(items)
		out = append(out, strings.Join(append(items, options...), "; "))
	}
	return out
}

func TestASearchFindsWhatTheDefinitionsSay(t *testing.T) {
	begin := uint64(time.Now().UnixNano())
	found := 0
	for seed := begin; seed < begin+2500; seed++ {
		m := newModel(t, seed)
		for range 6 {
			req := m.request()
			want := m.candidates(req)
			got, err := m.Candidates(t.Context(), req)
			if err != nil {
				t.Fatalf("seed %d: %+v: %v", seed, req, err)
			}
			inOrder := m.texts(req, got)
			if !slices.Equal(slices.Sorted(slices.Values(inOrder)), want) {
				t.Fatalf("seed %d: %+v: got\n%s\nwant\n%s", seed, req, strings.Join(inOrder, "\n"),
					strings.Join(want, "\n"))
			}
			found += len(want)
			m.checkLimits(t, seed, req, inOrder)
		}
	}
	if found < 2500 {
		t.Errorf("%d candidates were found; the test shows too little", found)
	}
}

// checkLimits checks that a limit shortens the list, and that random order neither drops nor adds candidates.
func (m *model) checkLimits(t *testing.T, seed uint64, req *CandidateRequest, inOrder []string) {
	t.Helper()
	limited := *req
	limited.Limit = 1 + m.IntN(4)
	got, err := m.Candidates(t.Context(), &limited)
	if want := inOrder[:min(limited.Limit, len(inOrder))]; err != nil || !slices.Equal(m.texts(req, got), want) {
		t.Fatalf("seed %d: %+v: got %v, %v, want %v", seed, limited, m.texts(req, got), err, want)
	}
	limited.Randomize = true
	got, err = m.Candidates(t.Context(), &limited)
	texts := slices.Compact(slices.Sorted(slices.Values(m.texts(req, got))))
	if err != nil || len(texts) != min(limited.Limit, len(inOrder)) ||
		!all(texts, func(text string) bool { return slices.Contains(inOrder, text) }) {
		t.Fatalf("seed %d: %+v: got %v, %v, want some of %v", seed, limited, texts, err, inOrder)
	}
}

func TestFiltersFindWhatTheDefinitionsSay(t *testing.T) {
	begin := uint64(time.Now().UnixNano())
	found := 0
	for seed := begin; seed < begin+2500; seed++ {
		m := newModel(t, seed)
		for range 6 {
			f := Filter{Aggregates: m.aggregateTest(), Traits: m.traitTest(4)}
			if m.IntN(3) == 0 {
				f.Resources = m.resources(1)
			}
			pick := func(n int, of func(p *Provider) string, missing string) string {
				switch m.IntN(n) {
				case 0:
					return missing
				case 1:
					return of(m.all[m.IntN(len(m.all))])
				}
				return ""
			}
			f.Name = pick(12, func(p *Provider) string { return p.Name }, "nobody")
			f.UUID = pick(12, func(p *Provider) string { return p.UUID }, "nobody")
			f.Tree = pick(12, func(p *Provider) string { return p.UUID }, "nobody")
			var want []*Provider
			for _, p := range m.all {
				if (f.Name == "" || f.Name == p.Name) && (f.UUID == "" || f.UUID == p.UUID) &&
					(f.Tree == "" || m.providers[f.Tree] != nil && m.root(m.providers[f.Tree]) == m.root(p)) &&
					m.satisfies(p.Traits, f.Traits) && member(f.Aggregates, p) &&
					all(f.Resources, func(w NamedAmount) bool { return m.holds(p, w) }) {
					want = append(want, p)
				}
			}
			if got, err := m.Filter(f); err != nil || !slices.Equal(got, want) {
				t.Fatalf("seed %d: %+v: got %v, %v, want %v", seed, f, got, err, want)
			}
			found += len(want)
		}
	}
	if found < 2500 {
		t.Errorf("%d providers were found; the test shows too little", found)
	}
}
