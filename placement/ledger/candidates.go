package ledger

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
)

// RequestGroup is one group of a candidate request: the parameters that share a suffix.
type RequestGroup struct {
	Suffix     string // empty: several providers of a tree may serve the group together; else one must serve it
	Resources  []NamedAmount
	Traits     TraitTest
	Aggregates AggregateTest
	Tree       string // UUID of any provider of the tree to search; empty: all trees
}

// Single reports whether one provider must serve the whole group.
func (g *RequestGroup) Single() bool { return g.Suffix != "" }

// CandidateRequest asks for ways to serve all groups from one tree and the providers that share with it.
type CandidateRequest struct {
	Groups     []RequestGroup
	Limit      int  // 0: no limit
	Isolate    bool // no provider serves two groups for which Single is true
	RootTraits TraitTest
	Subtrees   [][]string // suffixes of groups; one of the groups' providers must be an ancestor of all the others
	Nested     bool       // several providers of one tree may be used
	Randomize  bool
}

// Portion is an amount of a class from a provider.
type Portion struct {
	Provider *Provider
	Class    ID
	N        int64
}

// Option is one way to serve one group.
type Option struct {
	Portions  []Portion
	Providers []*Provider // no duplicates; set even for a group without resources
}

// Candidate is one way to serve all groups.
type Candidate struct {
	Portions []Portion // at most one per provider and class
	Options  []Option  // by group
}

// search finds candidates in a state, tree by tree, up to the limit.
type search struct {
	st     *State
	req    *CandidateRequest
	groups []searchGroup
	roots  traitSets
	seen   map[string]bool // keys of found; nil if duplicates are impossible
	found  []Candidate
}

// searchGroup is a group whose names are resolved.
type searchGroup struct {
	*RequestGroup
	wants []Amount
	sets  traitSets
	root  *Provider // of the tree to search; nil: any tree
}

// Candidates returns the ways to serve a request, trees by order of creation. An empty result is not an error; an
// unknown name is.
func (st *State) Candidates(ctx context.Context, req *CandidateRequest) ([]Candidate, error) {
	s := &search{st: st, req: req}
	sets, unknown := req.RootTraits.find(st.traits)
	if unknown != "" {
		return nil, invalid("No such trait(s): %s.", unknown)
	}
	s.roots = sets
	if !req.RootTraits.empty() && !slices.ContainsFunc(st.roots, s.anchors) {
		return nil, nil
	}
	possible, err := s.resolve(ctx)
	if err != nil || !possible {
		return nil, err
	}
	if len(s.groups) > 1 || len(st.sharing) > 0 {
		s.seen = map[string]bool{}
	}
	if err := s.run(ctx); err != nil {
		return nil, err
	}
	if req.Randomize {
		rand.Shuffle(len(s.found), func(i, j int) { s.found[i], s.found[j] = s.found[j], s.found[i] })
	}
	return s.found, nil
}

// anchors reports whether a root has the traits that the request requires of roots.
func (s *search) anchors(root *Provider) bool {
	return s.roots.met(root.Traits) && !s.roots.broken(root.Traits)
}

// resolve looks up the names in the groups. False: no provider can serve one of the groups. Like the original, it stops
// at the first group without candidates, so an unknown name in a later group goes unnoticed.
func (s *search) resolve(ctx context.Context) (bool, error) {
	for i := range s.req.Groups {
		g := searchGroup{RequestGroup: &s.req.Groups[i]}
		possible, err := s.resolveGroup(&g)
		if err != nil {
			for _, earlier := range s.groups {
				alone := &search{st: s.st, req: &CandidateRequest{Limit: 1, Nested: true}, roots: s.roots,
					groups: []searchGroup{earlier}}
				if err := alone.run(ctx); err != nil {
					return false, err
				}
				if len(alone.found) == 0 {
					return false, nil
				}
			}
			return false, err
		}
		if !possible {
			return false, nil
		}
		s.groups = append(s.groups, g)
	}
	return true, nil
}

func (s *search) resolveGroup(g *searchGroup) (bool, error) {
	for _, w := range g.Resources {
		c := s.st.classes.byName[w.Class]
		if c == nil {
			return false, invalid("Invalid resource class in resources parameter: No such resource class %s.", w.Class)
		}
		g.wants = append(g.wants, Amount{c.id, w.N})
	}
	slices.SortFunc(g.wants, func(a, b Amount) int { return cmp.Compare(a.Class, b.Class) })
	var unknown string
	if g.sets, unknown = g.Traits.find(s.st.traits); unknown != "" {
		inAggregates := func(p *Provider) bool { return p.inAnyOfEach(g.Aggregates.Required) }
		if len(g.Aggregates.Required) > 0 && !slices.ContainsFunc(s.st.all, inAggregates) {
			return false, nil
		}
		return false, invalid("No such trait(s): %s.", unknown)
	}
	if g.Tree != "" {
		p := s.st.providers[g.Tree]
		if p == nil {
			return false, nil
		}
		g.root = p.root
	}
	return true, nil
}

// run visits the trees that may hold candidates.
func (s *search) run(ctx context.Context) error {
	roots := s.trees()
	for _, g := range s.groups {
		if g.root != nil && (!g.Single() || len(s.st.sharing) == 0) {
			roots = []*Provider{g.root}
		}
	}
	start, stride := 0, 1
	if s.req.Randomize && len(roots) > 1 {
		start, stride = randomWalk(len(roots))
	}
	at := start
	for n := range roots {
		if n%256 == 255 && ctx.Err() != nil {
			return unavailable(ctx.Err())
		}
		if root := roots[at]; s.anchors(root) {
			if err := s.tree(ctx, root); err != nil {
				return err
			}
			if s.full() {
				return nil
			}
		}
		if at += stride; at >= len(roots) {
			at -= len(roots)
		}
	}
	return nil
}

func (s *search) full() bool { return s.req.Limit > 0 && len(s.found) >= s.req.Limit }

// randomWalk returns a start and a stride that visit each of n indexes once.
func randomWalk(n int) (start, stride int) {
	gcd := func(a, b int) int {
		for b != 0 {
			a, b = b, a%b
		}
		return a
	}
	for stride = 1 + rand.IntN(n-1); gcd(stride, n) != 1; {
		stride = 1 + rand.IntN(n-1)
	}
	return rand.IntN(n), stride
}

// tree finds the candidates of one tree.
func (s *search) tree(ctx context.Context, root *Provider) error {
	if len(root.children) == 0 && len(s.st.sharing) == 0 && len(s.groups) == 1 {
		if g := &s.groups[0]; g.inAggregates(root, root, true) && g.holdsAll(root) && !g.idle() {
			o := g.option(root)
			s.found = append(s.found, Candidate{o.Portions, []Option{o}})
		}
		return nil
	}
	own := root.AppendTree(nil)
	lent := s.lent(own, root)
	options := make([][]Option, len(s.groups))
	for i := range s.groups {
		g := &s.groups[i]
		if g.Single() {
			options[i] = g.singles(own, lent, root)
		} else {
			options[i] = g.together(own, lent, root)
		}
		if len(options[i]) == 0 {
			return nil
		}
	}
	return s.combine(ctx, options)
}

// lent lists the providers outside a tree that share with a provider in the tree.
func (s *search) lent(own []*Provider, root *Provider) []*Provider {
	if len(s.st.sharing) == 0 {
		return nil
	}
	var out []*Provider
	for _, p := range own {
		for _, a := range p.Aggregates {
			for _, lender := range s.st.sharing[a] {
				if lender.root != root && !slices.Contains(out, lender) {
					out = append(out, lender)
				}
			}
		}
	}
	slices.SortFunc(out, compareProviders)
	return out
}

// idle reports whether the group asks for nothing.
func (g *searchGroup) idle() bool {
	return len(g.wants) == 0 && len(g.sets.required) == 0 && len(g.Aggregates.Required) == 0
}

// inAggregates reports whether a provider is in the aggregates that the group requires. spans: membership of the root
// extends to its whole tree.
func (g *searchGroup) inAggregates(p, root *Provider, spans bool) bool {
	in := func(sets [][]string) bool {
		return p.inAnyOfEach(sets) || spans && root.inAnyOfEach(sets)
	}
	if len(g.Aggregates.Required) > 0 && !in(g.Aggregates.Required) {
		return false
	}
	if out := g.Aggregates.Forbidden; len(out) > 0 {
		return !p.inAny(out) && !(spans && root.inAny(out))
	}
	return true
}

// holdsAll reports whether one provider can serve the group alone.
func (g *searchGroup) holdsAll(p *Provider) bool {
	for _, w := range g.wants {
		if !p.has(w.Class, w.N) {
			return false
		}
	}
	if g.root != nil && p.root != g.root && len(g.wants) > 0 {
		return false
	}
	return g.sets.met(p.Traits) && !g.sets.broken(p.Traits)
}

func (g *searchGroup) option(p *Provider) Option {
	portions := make([]Portion, len(g.wants))
	for i, w := range g.wants {
		portions[i] = Portion{p, w.Class, w.N}
	}
	return Option{portions, []*Provider{p}}
}

// singles returns the options of a group for which Single is true.
func (g *searchGroup) singles(own, lent []*Provider, root *Provider) []Option {
	if g.idle() {
		return nil
	}
	var out []Option
	for _, list := range [][]*Provider{own, lent} {
		for _, p := range list {
			if g.inAggregates(p, root, false) && g.holdsAll(p) {
				out = append(out, g.option(p))
			}
		}
	}
	return out
}

// together returns the options of a group that several providers, of a tree or lent to it, may serve together: each
// class comes from one provider, and together the providers have the required traits.
func (g *searchGroup) together(own, lent []*Provider, root *Provider) []Option {
	choices := make([][]*Provider, len(g.wants))
	for i, w := range g.wants {
		for _, p := range own {
			if (g.root == nil || p.root == g.root) && g.inAggregates(p, root, true) && g.offers(p, w) {
				choices[i] = append(choices[i], p)
			}
		}
		for _, p := range lent {
			if g.root == nil && g.inAggregates(p, p, false) && g.inAggregates(p, root, true) && g.offers(p, w) {
				choices[i] = append(choices[i], p)
			}
		}
		if len(choices[i]) == 0 {
			return nil
		}
	}
	var out []Option
	product(choices, func(pick []*Provider) bool {
		if o := g.assemble(pick); g.collectively(o.Providers) {
			out = append(out, o)
		}
		return true
	})
	return out
}

// offers reports whether a provider has enough of a class and no forbidden trait.
func (g *searchGroup) offers(p *Provider, w Amount) bool {
	return p.has(w.Class, w.N) && !g.sets.broken(p.Traits)
}

func (g *searchGroup) assemble(pick []*Provider) Option {
	o := Option{Portions: make([]Portion, len(pick))}
	for i, p := range pick {
		o.Portions[i] = Portion{p, g.wants[i].Class, g.wants[i].N}
		if !slices.Contains(o.Providers, p) {
			o.Providers = append(o.Providers, p)
		}
	}
	return o
}

// collectively reports whether the providers together have the required traits.
func (g *searchGroup) collectively(providers []*Provider) bool {
	for _, any := range g.sets.required {
		if !slices.ContainsFunc(providers, func(p *Provider) bool { return hasAny(p.Traits, any) }) {
			return false
		}
	}
	return true
}
