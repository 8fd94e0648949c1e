package ipam

import (
	"path"
	"strings"

	"go4.org/netipx"

	"croft"
	"croft/grid/ipam/setexpr"
	"croft/internal/nearest"
)

// Evaluator returns an evaluator of expressions over this Net.
func (n *Net) Evaluator() *setexpr.Evaluator { return setexpr.NewEvaluator(source{n}) }

// source resolves the names in expressions.
type source struct{ *Net }

var _ setexpr.Source = source{}

// Tag implements setexpr.Source.
func (n source) Tag(name string) (*netipx.IPSet, error) {
	l, err := n.layout()
	if err != nil {
		return nil, err
	}
	if s := l.tags[name]; s != nil {
		return s, nil
	}
	return &netipx.IPSet{}, nil
}

// Pool implements setexpr.Source.
func (s source) Pool(name string) (*netipx.IPSet, error) {
	p, err := s.Net.Pool(name)
	if err != nil {
		return nil, err
	}
	var b netipx.IPSetBuilder
	b.AddPrefix(p.Prefix)
	return b.IPSet()
}

// Job implements setexpr.Source.
func (n source) Job(p setexpr.Pattern) (*netipx.IPSet, error) {
	var b netipx.IPSetBuilder
	matches := map[string]bool{} // jobs have many slots
	for _, l := range n.Leases {
		if l.Freed() {
			continue
		}
		is, known := matches[l.Owner.Job]
		if !known {
			is = p.Match(l.Owner.Job)
			matches[l.Owner.Job] = is
		}
		if is {
			b.Add(l.Addr)
		}
	}
	return b.IPSet()
}

// Node implements setexpr.Source.
func (n source) Node(p setexpr.Pattern) (*netipx.IPSet, error) {
	all, err := n.Grid.Nodes()
	if err != nil {
		return nil, err
	}
	var b netipx.IPSetBuilder
	for _, name := range all {
		if !p.Match(name) && (strings.Contains(string(p), "/") || !p.Match(path.Base(name))) {
			continue
		}
		node, err := n.Grid.Node(name)
		if err != nil {
			return nil, err
		}
		if len(node.Addresses) == 0 {
			return nil, croft.Errorf(croft.Invalid,
				"%s: no address of the node %s is known: write addresses: [...], even if address: is a "+
					"name", node.File, path.Base(name))
		}
		for _, a := range node.Addresses {
			b.Add(a)
		}
	}
	return b.IPSet()
}

// Set implements setexpr.Source.
func (n *Net) Set(name string) (*setexpr.Expr, error) {
	text, err := n.dir.read(path.Join(setDir, name))
	if croft.KindOf(err) == croft.NotFound {
		names, listErr := n.Sets()
		if listErr != nil {
			return nil, listErr
		}
		return nil, croft.Errorf(croft.NotFound, "there is no set @%s%s", name, nearest.Hint(name, names))
	} else if err != nil {
		return nil, err
	}
	return setexpr.Parse(string(text), path.Join(setDir, name), 1)
}

// Sets returns the names of all sets, in directory order.
func (n *Net) Sets() ([]string, error) {
	entries, err := n.dir.list(setDir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		name, err := named(setDir, e.Name(), "")
		if err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

// PutSet writes a set. Invalid: the text is not a valid expression, or the set would refer to itself.
func (n *Net) PutSet(name, text string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	x, err := setexpr.Parse(text, "", 1)
	if err != nil {
		return err
	}
	changed := changedSet{source{n}, name, x}
	if _, err := setexpr.NewEvaluator(changed).Eval(x); err != nil {
		return err
	}
	n.todo.replace(path.Join(setDir, name), []byte(strings.TrimSpace(text)+"\n"))
	return nil
}

// changedSet is a source in which one set has another expression.
type changedSet struct {
	source
	name string
	x    *setexpr.Expr
}

// Set implements setexpr.Source.
func (c changedSet) Set(name string) (*setexpr.Expr, error) {
	if name == c.name {
		return c.x, nil
	}
	return c.source.Set(name)
}

// RemoveSet removes a set. NotFound. Conflict: another set or a rule refers to it.
func (n *Net) RemoveSet(name string) error {
	if _, err := n.Set(name); croft.KindOf(err) == croft.NotFound {
		return err // a set that exists but cannot be read may be removed
	}
	names, err := n.Sets()
	if err != nil {
		return err
	}
	for _, other := range names {
		x, err := n.Set(other)
		if err != nil && other != name {
			return err
		}
		if other != name && mentions(x, name) {
			return croft.Errorf(croft.Conflict, "the set @%s is mentioned in %s", name, path.Join(setDir, other))
		}
	}
	rules, err := n.Access()
	if err != nil {
		return err
	}
	for _, r := range rules {
		if mentions(r.From, name) || mentions(r.To, name) {
			return croft.Errorf(croft.Conflict, "the set @%s is mentioned in %s", name, r.File)
		}
	}
	n.todo.remove(path.Join(setDir, name))
	return nil
}

func mentions(x *setexpr.Expr, name string) bool {
	for _, one := range x.Sets() {
		if one == name {
			return true
		}
	}
	return false
}

// FindNode finds a node by its path below nodes/ or by the last part of the path, which is unique. NotFound.
func (n *Net) FindNode(name string) (*Node, error) {
	all := n.shared.nodes
	if all == nil {
		var err error
		if all, err = n.Grid.Nodes(); err != nil {
			return nil, err
		}
		n.shared.nodes = all
	}
	var short []string
	for _, p := range all {
		if p == name || path.Base(p) == name {
			return n.Grid.Node(p)
		}
		short = append(short, path.Base(p))
	}
	hint := nearest.Hint(name, short)
	if len(all) == 0 {
		hint = "; there are none in nodes/"
	}
	return nil, croft.Errorf(croft.NotFound, "there is no node %q%s", name, hint)
}
