package state

import (
	"cmp"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"croft/crush"
)

// byDepth are the default types of directories, by depth.
var byDepth = []string{"root", "site", "rack", "host"}

// inheritedFile is the name of the file from which everything in a directory inherits.
const inheritedFile = "_"

// leaf is a node's file to be read.
type leaf struct {
	entry
	in *Bucket
}

// loadTree reads nodes/. It keeps problems of ids apart, because renumbering fixes them.
func (l *loading) loadTree() {
	s := l.s
	dirs := map[string]*Bucket{}
	var leaves []leaf
	l.files.walk("nodes", ".yaml", &l.problems, func(dir string, in []entry) {
		b := &Bucket{Path: dir, Parent: dirs[path.Dir(dir)]}
		dirs[dir] = b
		var above *Value
		if b.Parent != nil {
			above = b.Parent.Values.without("id", "type")
			b.Parent.Buckets = append(b.Parent.Buckets, b)
			if !validName.MatchString(path.Base(dir)) {
				l.problems.add(Position{File: dir}, "%q is no name of a directory: %s", path.Base(dir), nameHint)
			}
		} else {
			s.Root = b
		}
		own := newMap(Position{File: dir}, 0)
		for _, e := range in {
			switch {
			case e.link:
				l.problems.add(Position{File: e.path}, "a symbolic link has no place among the nodes")
			case e.name == inheritedFile:
				own = l.read(e.path, &l.problems)
			case !validName.MatchString(e.name):
				l.problems.add(Position{File: e.path}, "%q is no name of a node: %s", e.name, nameHint)
			default:
				leaves = append(leaves, leaf{e, b})
			}
		}
		b.Values = inherit(above, own, &l.problems)
		l.bucket(b, own)
		s.Buckets = append(s.Buckets, b)
	})
	nodes := make([]*Node, len(leaves))
	l.parallel(len(leaves), func(i int, p *problems) { nodes[i] = l.node(leaves[i], p) })
	for i, n := range nodes {
		if n != nil {
			leaves[i].in.Nodes = append(leaves[i].in.Nodes, n)
			s.Leaves = append(s.Leaves, n)
		}
	}
	slices.SortFunc(s.Leaves, func(a, b *Node) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Path, b.Path))
	})
	slices.SortFunc(s.Buckets, func(a, b *Bucket) int { return cmp.Compare(a.Path, b.Path) })
	l.checkNodes()
	l.checkIDs()
	l.nameBuckets()
}

// bucket reads a directory's own values.
func (l *loading) bucket(b *Bucket, own *Value) {
	f := fields{own, &l.problems, ""}
	depth := strings.Count(b.Path, "/")
	order := l.s.Cluster.Types
	if b.Type = f.text("type"); b.Type == "" {
		if depth >= len(byDepth) || !slices.Contains(order, byDepth[depth]) {
			l.problems.add(Position{File: b.Path}, "the directory needs a type in its _.yaml: one of %s",
				strings.Join(order[1:], ", "))
			return
		}
		b.Type = byDepth[depth]
	}
	at := slices.Index(order, b.Type)
	switch {
	case at < 1:
		l.problems.add(f.at("type"), "type: %q is none of %s; the key types of cluster.yaml can name others", b.Type,
			strings.Join(order[1:], ", "))
	case b.Parent != nil && at >= slices.Index(order, b.Parent.Type):
		l.problems.add(f.at("type"), "a %s has no place in a %s: the order is %s", b.Type, b.Parent.Type,
			strings.Join(order, " < "))
	}
	b.ID = f.number("id", 1-crush.MaxBuckets, -1, 0)
}

// node reads a node's file; nil: it cannot be read.
func (l *loading) node(from leaf, p *problems) *Node {
	own := l.read(from.path, p)
	n := &Node{Name: from.name, Path: from.path, Parent: from.in}
	merged := inherit(from.in.Values.without("id", "type"), own, p)
	s := scope{names: map[string]*Value{"name": text(n.Name)}, own: merged, ofNode: true}
	values, problem := s.expand(merged)
	if problem != nil {
		p.list = append(p.list, *problem)
		return n.unread()
	}
	n.Values = values
	id := fields{own, p, ""}
	n.ID = id.number("id", 0, crush.MaxDevice-1, -1)
	f := fields{values, p, ""}
	n.State = f.one("state", Up, Up, Out, Drain, Maintenance)
	n.Weight = weight(f)
	n.Local, n.User, n.HostKey, n.StateDir = f.boolean("local"), f.text("user"), f.text("host_key"), f.text("state_dir")
	n.Address = cmp.Or(f.text("address"), n.Name)
	if n.Local && f.get("address") == nil {
		n.Address = ""
	}
	if strings.HasPrefix(n.Address, "-") || strings.ContainsAny(n.Address, " \t\n/") {
		p.add(f.at("address"), "address: %q is no host, host:port or Host of the ssh configuration", n.Address)
	}
	if n.IP = f.text("ip"); n.IP != "" {
		if _, err := netip.ParseAddr(n.IP); err != nil {
			p.add(f.at("ip"), "ip: %q is no IP address", n.IP)
		}
	}
	if n.HostKey != "" && !strings.HasPrefix(n.HostKey, "SHA256:") {
		p.add(f.at("host_key"), "host_key: want the key's fingerprint, SHA256:...")
	}
	if n.StateDir != "" && !path.IsAbs(n.StateDir) {
		p.add(f.at("state_dir"), "state_dir: %q is no absolute path", n.StateDir)
	}
	n.Facts, n.Capacity = facts(f), f.amounts("capacity")
	return n
}

// unread fills in a node whose file has mistakes, so that the other checks can read it.
func (n *Node) unread() *Node {
	n.ID, n.State, n.Values = -1, Out, newMap(Position{File: n.Path}, 0)
	return n
}

func weight(f fields) crush.Weight {
	v := f.get("weight")
	if v == nil {
		return crush.One
	}
	w, err := strconv.ParseFloat(v.Text, 64)
	most := float64(crush.MaxWeight / crush.One)
	if (v.Kind != Int && v.Kind != Float) || err != nil || !(w >= 0 && w <= most) {
		f.wants(v, "weight", "a number from 0 to "+strconv.Itoa(int(most)))
		return 0
	}
	if w > 0 && crush.WeightOf(w) == 0 {
		f.p.add(v.At, "weight: %s is less than 1/65536, the least that counts: give 0 or more than that", v.Text)
	}
	return crush.WeightOf(w)
}

// facts reads facts: a list of name or name=value, or a map from names to values.
func facts(f fields) map[string]string {
	v := f.get("facts")
	if v == nil {
		return nil
	}
	out := map[string]string{}
	switch v.Kind {
	case List:
		for _, one := range f.texts("facts") {
			name, value, given := strings.Cut(one, "=")
			if !given {
				value = "true"
			}
			out[name] = value
		}
	case Map:
		for _, name := range v.Keys {
			one := v.Fields[name]
			if one.Kind == Map || one.Kind == List || one.Sealed() {
				f.wants(one, "facts."+name, "a text, a number, true or false")
				continue
			}
			out[name] = one.Text
		}
	default:
		f.wants(v, "facts", "a list of facts, or a map of their values")
	}
	for name := range out {
		if !validFact(name) {
			f.p.add(v.At, "facts: %q is no name of a fact: it has letters, digits and . _ - alone", name)
		}
	}
	return out
}

func validFact(name string) bool {
	return name != "" && strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789._-") == ""
}

// Matches reports whether the node has a fact: name, or name=value. A node whose fact is false does not have it.
func (n *Node) Matches(fact string) bool {
	name, want, given := strings.Cut(fact, "=")
	has, there := n.Facts[name]
	if given {
		return there && has == want
	}
	return there && has != "false"
}
