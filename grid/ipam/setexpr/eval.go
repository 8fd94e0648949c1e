package setexpr

import (
	"fmt"
	"net/netip"
	"strings"

	"go4.org/netipx"

	"croft"
)

// Source resolves the names in expressions to sets of addresses. The evaluator adds the position of the name to errors.
type Source interface {
	Tag(name string) (*netipx.IPSet, error)  // empty: no address has the tag
	Pool(name string) (*netipx.IPSet, error) // NotFound
	Job(p Pattern) (*netipx.IPSet, error)    // empty: no job matches, or no matching job has an address
	Node(p Pattern) (*netipx.IPSet, error)   // empty: no node matches
	Set(name string) (*Expr, error)          // NotFound, Invalid
}

// An Evaluator computes expressions. It computes each set and name once. It must be used by one goroutine only.
type Evaluator struct {
	source Source
	sets   map[string]*netipx.IPSet
	exprs  map[string]*Expr
	words  map[string]*netipx.IPSet
	open   []*Expr // the stack of references to sets under evaluation
	notes  []string
}

// NewEvaluator returns an Evaluator with an empty cache.
func NewEvaluator(s Source) *Evaluator {
	return &Evaluator{source: s, sets: map[string]*netipx.IPSet{}, exprs: map[string]*Expr{},
		words: map[string]*netipx.IPSet{}}
}

// Notes returns sentences about likely mistakes in the computed expressions, such as names without any addresses.
func (e *Evaluator) Notes() []string { return e.notes }

// Eval computes an expression. It returns the errors of the source. Invalid: a set refers to itself through others.
func (e *Evaluator) Eval(x *Expr) (*netipx.IPSet, error) {
	switch x.kind {
	case literal:
		return x.value, nil
	case set:
		return e.set(x)
	case tag, pool, job, node:
		return e.named(x)
	}
	var b netipx.IPSetBuilder
	for i, part := range x.parts {
		s, err := e.Eval(part)
		switch {
		case err != nil:
			return nil, err
		case i == 0 || x.kind == union:
			b.AddSet(s)
		case x.kind == difference:
			b.RemoveSet(s)
		default:
			b.Intersect(s)
		}
	}
	if x.kind == complement {
		b.Complement()
	}
	return b.IPSet()
}

func (e *Evaluator) named(x *Expr) (*netipx.IPSet, error) {
	if s, ok := e.words[x.word]; ok {
		return s, nil
	}
	var s *netipx.IPSet
	var err error
	nothing := "nothing has"
	switch x.kind {
	case tag:
		s, err = e.source.Tag(x.name)
	case pool:
		s, err = e.source.Pool(x.name)
	case job:
		s, err = e.source.Job(Pattern(x.name))
		nothing = "no leased address is of"
	case node:
		s, err = e.source.Node(Pattern(x.name))
		nothing = "there is no"
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", x.at, err)
	}
	if x.kind != pool && len(s.Ranges()) == 0 {
		e.notes = append(e.notes, fmt.Sprintf("%s: %s %s", x.at, nothing, x.word))
	}
	e.words[x.word] = s
	return s, nil
}

// set computes the addresses of a named set.
func (e *Evaluator) set(x *Expr) (*netipx.IPSet, error) {
	if s, ok := e.sets[x.name]; ok {
		return s, nil
	}
	for i, mention := range e.open {
		if mention.name == x.name {
			return nil, e.circle(e.open[i:], x)
		}
	}
	of, err := e.expr(x)
	if err != nil {
		return nil, err
	}
	e.open = append(e.open, x)
	defer func() { e.open = e.open[:len(e.open)-1] }()
	s, err := e.Eval(of)
	if err == nil {
		e.sets[x.name] = s
	}
	return s, err
}

func (e *Evaluator) expr(x *Expr) (*Expr, error) {
	if of, ok := e.exprs[x.name]; ok {
		return of, nil
	}
	of, err := e.source.Set(x.name)
	if croft.KindOf(err) == croft.NotFound {
		return nil, fmt.Errorf("%s: %w", x.at, err)
	} else if err != nil {
		return nil, err // the error has a position
	}
	e.exprs[x.name] = of
	return of, nil
}

// circle returns the error for a cycle of sets, in which each set refers to the next and the last one to the first.
// Each position is that of a reference, in the definition of the preceding set.
func (e *Evaluator) circle(open []*Expr, last *Expr) error {
	var chain []string
	for _, mention := range append(open[1:len(open):len(open)], last) {
		chain = append(chain, fmt.Sprintf("%s says %s", mention.at, mention.word))
	}
	return croft.Errorf(croft.Invalid, "the set @%s refers to itself: %s", last.name, strings.Join(chain, ", "))
}

// An Explanation explains whether and why an address is in an expression.
type Explanation struct {
	Expr  string        `json:"expr"`
	In    bool          `json:"in"`
	By    string        `json:"by,omitempty"` // for a name or literal with the address: the prefix that contains it
	At    string        `json:"at,omitempty"` // for a set: the position of its definition
	Parts []Explanation `json:"parts,omitempty"`
}

// Explain explains whether the address is in the expression and in each of its parts. If a set occurs several times,
// only the first occurrence has parts.
func (e *Evaluator) Explain(x *Expr, a netip.Addr) (Explanation, error) {
	return e.explain(x, a.Unmap(), map[string]bool{})
}

func (e *Evaluator) explain(x *Expr, a netip.Addr, told map[string]bool) (Explanation, error) {
	s, err := e.Eval(x)
	if err != nil {
		return Explanation{}, err
	}
	found := Explanation{Expr: x.String(), In: s.Contains(a)}
	parts := x.parts
	switch {
	case x.kind == set:
		of, err := e.expr(x)
		if err != nil {
			return found, err
		}
		found.At = of.at.String()
		if !told[x.name] {
			told[x.name], parts = true, []*Expr{of}
		}
	case x.parts == nil && found.In:
		found.By = with(s, a)
	}
	for _, part := range parts {
		p, err := e.explain(part, a, told)
		if err != nil {
			return found, err
		}
		found.Parts = append(found.Parts, p)
	}
	return found, nil
}

// with returns the prefix of the set that contains the address.
func with(s *netipx.IPSet, a netip.Addr) string {
	for _, r := range s.Ranges() {
		if !r.Contains(a) {
			continue
		}
		for _, p := range r.Prefixes() {
			if p.Contains(a) && p.IsSingleIP() {
				return a.String()
			} else if p.Contains(a) {
				return p.String()
			}
		}
	}
	return ""
}
