package placement

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
)

// group is a part of a candidate request: what the parameters of one suffix ask for.
type group struct {
	suffix     string // empty: of any providers of a tree together; else all of it of one provider
	resources  []want
	traits     traitTest
	aggregates aggregateTest
	tree       string // UUID of any provider in the tree to stay in
}

func (g *group) single() bool { return g.suffix != "" }

// candidateRequest asks for ways to satisfy all groups in one tree, with what
// providers elsewhere share with it.
type candidateRequest struct {
	groups     []group
	limit      int // 0: none
	isolate    bool
	rootTraits traitTest
	subtrees   [][]string // suffixes whose providers one of them is above
	nested     bool       // several providers of one tree may take part
	randomize  bool
}

// part is so much of a class from a provider.
type part struct {
	p     *provider
	class id
	n     int64
}

// option is one way to satisfy one group.
type option struct {
	parts     []part
	providers []*provider // each once; also where the group asks for no resources
}

// candidate is one way to satisfy all groups.
type candidate struct {
	parts   []part // by provider and class no two
	options []option
}

// search looks for candidates in a state, tree after tree, and stops at the limit.
type search struct {
	st     *state
	req    *candidateRequest
	groups []searchGroup
	roots  traitSets
	seen   map[string]bool // nil where nothing can come twice
	found  []candidate
}

// searchGroup is a group with its names looked up.
type searchGroup struct {
	*group
	wants []amount
	sets  traitSets
	root  *provider // of the tree to stay in; nil: any
}

// candidates returns the ways to satisfy a request, in order of the trees' creation.
// None is not an error; a name that does not exist is.
func (st *state) candidates(ctx context.Context, req *candidateRequest) ([]candidate, error) {
	s := &search{st: st, req: req}
	sets, unknown := req.rootTraits.find(st.traits)
	if unknown != "" {
		return nil, badRequest("No such trait(s): %s.", unknown)
	}
	s.roots = sets
	if !req.rootTraits.empty() && !slices.ContainsFunc(st.roots, s.anchors) {
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
	if req.randomize {
		rand.Shuffle(len(s.found), func(i, j int) { s.found[i], s.found[j] = s.found[j], s.found[i] })
	}
	return s.found, nil
}

// anchors tells whether candidates may stand on a root.
func (s *search) anchors(root *provider) bool {
	return s.roots.met(root.traits) && !s.roots.broken(root.traits)
}

// resolve looks up what the groups name. False: one of them cannot be satisfied by
// anybody. The original looks at the groups one after the other and stops at the
// first without candidates, so an unknown name behind it goes unnoticed.
func (s *search) resolve(ctx context.Context) (bool, error) {
	for i := range s.req.groups {
		g := searchGroup{group: &s.req.groups[i]}
		possible, err := s.resolveGroup(&g)
		if err != nil {
			for _, earlier := range s.groups {
				alone := &search{st: s.st, req: &candidateRequest{limit: 1, nested: true}, groups: []searchGroup{earlier}, roots: s.roots}
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
	for _, w := range g.resources {
		c := s.st.classes.byName[w.class]
		if c == nil {
			return false, badRequest("Invalid resource class in resources parameter: No such resource class %s.", w.class)
		}
		g.wants = append(g.wants, amount{c.id, w.n})
	}
	slices.SortFunc(g.wants, func(a, b amount) int { return cmp.Compare(a.class, b.class) })
	var unknown string
	if g.sets, unknown = g.traits.find(s.st.traits); unknown != "" {
		inAggregates := func(p *provider) bool { return p.memberOfAll(g.aggregates.required) }
		if len(g.aggregates.required) > 0 && !slices.ContainsFunc(s.st.all, inAggregates) {
			return false, nil
		}
		return false, badRequest("No such trait(s): %s.", unknown)
	}
	if g.tree != "" {
		p := s.st.providers[g.tree]
		if p == nil {
			return false, nil
		}
		g.root = p.root
	}
	return true, nil
}

// run goes through the trees that can anchor candidates.
func (s *search) run(ctx context.Context) error {
	roots := s.trees()
	for _, g := range s.groups {
		if g.root != nil && (!g.single() || len(s.st.sharing) == 0) {
			roots = []*provider{g.root}
		}
	}
	start, stride := 0, 1
	if s.req.randomize && len(roots) > 1 {
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

func (s *search) full() bool { return s.req.limit > 0 && len(s.found) >= s.req.limit }

// randomWalk gives a start and a stride that together visit n places once each.
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

// tree finds the candidates that one tree anchors.
func (s *search) tree(ctx context.Context, root *provider) error {
	if len(root.children) == 0 && len(s.st.sharing) == 0 && len(s.groups) == 1 {
		if g := &s.groups[0]; g.admits(root, root, true) && g.holdsAll(root) && !g.idle() {
			o := g.option(root)
			s.found = append(s.found, candidate{o.parts, []option{o}})
		}
		return nil
	}
	own := subtree(nil, root)
	lent := s.lent(own, root)
	options := make([][]option, len(s.groups))
	for i := range s.groups {
		g := &s.groups[i]
		if g.single() {
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

// subtree lists a provider and all below it.
func subtree(list []*provider, p *provider) []*provider {
	list = append(list, p)
	for _, c := range p.children {
		list = subtree(list, c)
	}
	return list
}

// lent lists the providers outside of a tree that share with one in it.
func (s *search) lent(own []*provider, root *provider) []*provider {
	if len(s.st.sharing) == 0 {
		return nil
	}
	var out []*provider
	for _, p := range own {
		for _, a := range p.aggregates {
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

// idle tells whether the group asks for nothing that a provider could be found by.
func (g *searchGroup) idle() bool {
	return len(g.wants) == 0 && len(g.sets.required) == 0 && len(g.aggregates.required) == 0
}

// admits tells whether a provider may take part: by its aggregates, and for single
// groups by its traits. spans: membership of the root counts for its whole tree.
func (g *searchGroup) admits(p, root *provider, spans bool) bool {
	in := func(sets [][]string) bool {
		return p.memberOfAll(sets) || spans && root.memberOfAll(sets)
	}
	if len(g.aggregates.required) > 0 && !in(g.aggregates.required) {
		return false
	}
	if len(g.aggregates.forbidden) > 0 && (p.member(g.aggregates.forbidden) || spans && root.member(g.aggregates.forbidden)) {
		return false
	}
	return true
}

// holdsAll tells whether one provider satisfies the group alone.
func (g *searchGroup) holdsAll(p *provider) bool {
	for _, w := range g.wants {
		if !p.has(w.class, w.n) {
			return false
		}
	}
	if g.root != nil && p.root != g.root && len(g.wants) > 0 {
		return false
	}
	return g.sets.met(p.traits) && !g.sets.broken(p.traits)
}

func (g *searchGroup) option(p *provider) option {
	parts := make([]part, len(g.wants))
	for i, w := range g.wants {
		parts[i] = part{p, w.class, w.n}
	}
	return option{parts, []*provider{p}}
}

// singles are the options of a group that one provider has to satisfy.
func (g *searchGroup) singles(own, lent []*provider, root *provider) []option {
	if g.idle() {
		return nil
	}
	var out []option
	for _, list := range [][]*provider{own, lent} {
		for _, p := range list {
			if g.admits(p, root, false) && g.holdsAll(p) {
				out = append(out, g.option(p))
			}
		}
	}
	return out
}

// together are the options of the group that a tree satisfies together with those
// who lend to it: each class from whom has it, all providers with the traits.
func (g *searchGroup) together(own, lent []*provider, root *provider) []option {
	choices := make([][]*provider, len(g.wants))
	for i, w := range g.wants {
		for _, p := range own {
			if (g.root == nil || p.root == g.root) && g.admits(p, root, true) && p.has(w.class, w.n) && !g.sets.broken(p.traits) {
				choices[i] = append(choices[i], p)
			}
		}
		for _, p := range lent {
			if g.root == nil && g.admits(p, p, false) && g.admits(p, root, true) && p.has(w.class, w.n) && !g.sets.broken(p.traits) {
				choices[i] = append(choices[i], p)
			}
		}
		if len(choices[i]) == 0 {
			return nil
		}
	}
	var out []option
	product(choices, func(pick []*provider) bool {
		if o := g.assemble(pick); g.collectively(o.providers) {
			out = append(out, o)
		}
		return true
	})
	return out
}

func (g *searchGroup) assemble(pick []*provider) option {
	o := option{parts: make([]part, len(pick))}
	for i, p := range pick {
		o.parts[i] = part{p, g.wants[i].class, g.wants[i].n}
		if !slices.Contains(o.providers, p) {
			o.providers = append(o.providers, p)
		}
	}
	return o
}

// collectively tells whether the providers have the required traits between them.
func (g *searchGroup) collectively(providers []*provider) bool {
	for _, any := range g.sets.required {
		if !slices.ContainsFunc(providers, func(p *provider) bool { return hasAny(p.traits, any) }) {
			return false
		}
	}
	return true
}
