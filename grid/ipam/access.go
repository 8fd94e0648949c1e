package ipam

import (
	"context"
	"net/netip"
	"path"
	"strconv"
	"strings"

	"go4.org/netipx"
	"gopkg.in/yaml.v3"

	"croft"
	"croft/grid/ipam/nft"
	"croft/grid/ipam/setexpr"
)

// Access is a firewall rule: it allows addresses to reach other addresses.
type Access struct {
	Name     string
	From, To *setexpr.Expr
	Protocol string
	Ports    []nft.Ports
	Log      bool
	File     string
}

// accessFile is the YAML form of a rule.
type accessFile struct {
	From  string   `yaml:"from"`
	To    string   `yaml:"to"`
	Proto string   `yaml:"proto,omitempty"`
	Ports []string `yaml:"ports,omitempty,flow"`
	Log   bool     `yaml:"log,omitempty"`
}

// Access reads all rules, in directory order. Invalid: a file cannot be read or has a wrong value.
func (n *Net) Access() ([]*Access, error) {
	entries, err := n.dir.list(accessDir)
	if err != nil {
		return nil, err
	}
	var all []*Access
	for _, e := range entries {
		name, err := named(accessDir, e.Name(), yamlEnding)
		if err != nil {
			return nil, err
		}
		r, err := n.dir.reader(path.Join(accessDir, e.Name()))
		if err != nil {
			return nil, err
		}
		a, err := readAccess(name, r)
		if err != nil {
			return nil, err
		}
		all, n.Notes = append(all, a), append(n.Notes, r.unknown()...)
	}
	return all, nil
}

func readAccess(name string, r *reader) (*Access, error) {
	a := &Access{Name: name, File: r.file, From: r.expr("from"), To: r.expr("to"), Log: r.flag("log"),
		Protocol: r.oneOf("proto", nft.Any, nft.TCP, nft.UDP, nft.ICMP, nft.Any)}
	for _, item := range r.scalars("ports") {
		p, err := ParsePorts(item.Value)
		if err != nil {
			r.wrong(item, "ports: %w", err)
		}
		a.Ports = append(a.Ports, p)
	}
	if r.err == nil && len(a.Ports) > 0 && a.Protocol != nft.TCP && a.Protocol != nft.UDP {
		r.wrong(r.at("ports"), "ports: they are those of a protocol: write proto: tcp or proto: udp")
	}
	return a, r.err
}

// expr parses the expression in the value of a key. Errors give its position in the file.
func (r *reader) expr(key string) *setexpr.Expr {
	n := r.at(key)
	if n == nil {
		r.wrong(&yaml.Node{Line: 1}, "%s is missing: write an expression, or all4 | all6", key)
		return nil
	}
	at := setexpr.Pos{File: r.file, Line: n.Line, Column: n.Column}
	switch {
	case n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		at.Line, at.Column = n.Line+1, 1 // the text starts on the line after | or >
	case n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0:
		at.Column++
	}
	x, err := setexpr.ParseAt(r.text(n, key), at)
	if err != nil && r.err == nil {
		r.err = croft.Errorf(croft.Invalid, "%w (in %s)", err, key)
	}
	return x
}

// ParsePorts parses a port such as 80, or a range such as 8000-8100. Invalid.
func ParsePorts(text string) (nft.Ports, error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	from, err := strconv.ParseUint(first, 10, 16)
	to, err2 := strconv.ParseUint(last, 10, 16)
	if err != nil || err2 != nil || from == 0 || to < from {
		return nft.Ports{}, croft.Errorf(croft.Invalid, "%q is no port: want 1 to 65535, or a range such as 8000-8100",
			text)
	}
	return nft.Ports{First: uint16(from), Last: uint16(to)}, nil
}

// PutAccess writes a new rule. from and to are the texts of expressions. Conflict: a rule of this name exists. Invalid.
func (n *Net) PutAccess(name, from, to, protocol string, ports []string, log bool) error {
	if err := CheckName(name); err != nil {
		return err
	}
	file := path.Join(accessDir, name+yamlEnding)
	if _, err := n.dir.root.Lstat(file); err == nil {
		return croft.Errorf(croft.Conflict, "there is an access rule %s already: change its file, %s", name, file)
	}
	text, err := inYAML(accessFile{from, to, protocol, ports, log})
	if err != nil {
		return err
	}
	root, err := parse(file, text)
	if err != nil {
		return err
	}
	a, err := readAccess(name, &reader{file: file, root: root})
	if err != nil {
		return err
	}
	if _, err := computed(n.Evaluator(), a); err != nil {
		return err
	}
	n.todo.replace(file, text)
	return nil
}

// RemoveAccess removes a rule. NotFound.
func (n *Net) RemoveAccess(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	file := path.Join(accessDir, name+yamlEnding)
	if _, err := n.dir.root.Lstat(file); err != nil {
		return croft.Errorf(croft.NotFound, "there is no access rule %s", name)
	}
	n.todo.remove(file)
	return nil
}

// computed evaluates the expressions of a rule to address sets.
func computed(e *setexpr.Evaluator, a *Access) (r nft.Rule, err error) {
	r = nft.Rule{Name: a.Name, Protocol: a.Protocol, Ports: a.Ports, Log: a.Log}
	if r.From, err = e.Eval(a.From); err == nil {
		r.To, err = e.Eval(a.To)
	}
	return r, err
}

// Rules evaluates all rules. It adds likely mistakes to Notes.
func (n *Net) Rules() ([]nft.Rule, error) {
	all, err := n.Access()
	if err != nil {
		return nil, err
	}
	e := n.Evaluator()
	var rules []nft.Rule
	for _, a := range all {
		r, err := computed(e, a)
		if err != nil {
			return nil, err
		}
		rules = append(rules, r)
	}
	n.Notes = append(n.Notes, e.Notes()...)
	return rules, nil
}

// Firewall returns the firewall table of a node. With a nil node, it returns the table of a machine in front of all
// leased addresses. The parts that all nodes share are computed once per Net.
func (n *Net) Firewall(ctx context.Context, node *Node) (nft.Table, error) {
	var t nft.Table
	var err error
	if t.Cluster, err = n.Grid.Cluster(); err != nil {
		return t, err
	}
	var managed netipx.IPSetBuilder
	if node == nil {
		for a, l := range n.Leases {
			if !l.Freed() {
				managed.Add(a)
			}
		}
		t.SSHPort = 22
	} else {
		placed, err := n.placed(ctx)
		if err != nil {
			return t, err
		}
		for _, a := range placed[node.Path] {
			managed.Add(a)
		}
		for _, a := range node.Addresses {
			t.SSH = append(t.SSH, netip.AddrPortFrom(a, node.SSHPort))
		}
		if len(node.Names) > 0 || len(node.Addresses) == 0 {
			t.SSHPort = node.SSHPort // a name may resolve to any address of the node
		}
	}
	if t.Managed, err = managed.IPSet(); err != nil {
		return t, err
	}
	if n.shared.rules == nil {
		if n.shared.rules, err = n.Rules(); err != nil {
			return t, err
		}
	}
	t.Rules = n.shared.rules
	return t, nil
}

// placed returns the leased addresses of each node, keyed by the node's path. An address belongs to the node that its
// owner is placed on.
func (n *Net) placed(ctx context.Context) (map[string][]netip.Addr, error) {
	if n.shared.placed != nil {
		return n.shared.placed, nil
	}
	placed := map[string][]netip.Addr{}
	for a, l := range n.Leases {
		if l.Freed() {
			continue
		}
		at, err := n.Grid.NodeOf(l.Owner)
		if err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		placed[at] = append(placed[at], a)
	}
	delete(placed, "") // owners without a node
	n.shared.placed = placed
	return placed, nil
}
