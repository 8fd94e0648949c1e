package place

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"

	"croft"
	"croft/crush"
	"croft/crush/policy"
	"croft/grid/state"
)

// Input returns the CRUSH input by which a job is placed: the first 31 bits of the SHA-256 of its name.
func Input(job string) uint32 {
	sum := sha256.Sum256([]byte(job))
	return binary.BigEndian.Uint32(sum[:4]) >> 1
}

// Map returns the CRUSH map of a cluster. For a job that requires or avoids facts, the map contains only the matching
// nodes, and bucket ids that no other filter uses: those in ids, to which Map adds missing ones.
func Map(s *state.State, j *state.Job, ids *state.IDs) *crush.Map {
	m := &crush.Map{Tunables: crush.Jewel}
	for i, name := range s.Cluster.Types {
		m.Types = append(m.Types, crush.TypeName{Type: crush.Type(i), Name: name})
	}
	filter := ""
	if j != nil {
		filter = j.Filter()
	}
	idOf := func(b *state.Bucket) crush.ID {
		if filter == "" {
			return crush.ID(b.ID)
		}
		return crush.ID(ids.Shadow(filter, b.ID))
	}
	// IDs of the filter are assigned in the order of the buckets' own ids, independent of the order of the files.
	for _, b := range slices.SortedFunc(slices.Values(s.Buckets), func(x, y *state.Bucket) int {
		return cmp.Compare(y.ID, x.ID)
	}) {
		idOf(b)
	}
	var add func(b *state.Bucket) crush.Item
	add = func(b *state.Bucket) crush.Item {
		made := crush.Bucket{ID: idOf(b), Name: b.Name, Type: crush.Type(slices.Index(s.Cluster.Types, b.Type))}
		for _, sub := range b.Buckets {
			made.Items = append(made.Items, add(sub))
		}
		for _, n := range b.Nodes {
			if filter == "" || j.Admits(n) {
				made.Items = append(made.Items, crush.Item{ID: crush.ID(n.ID), Weight: n.Weight})
			}
		}
		slices.SortFunc(made.Items, func(x, y crush.Item) int { return cmp.Compare(x.ID, y.ID) })
		m.Buckets = append(m.Buckets, made)
		return crush.Item{ID: made.ID, Weight: made.Weight()}
	}
	add(s.Root)
	for _, n := range s.Leaves {
		if filter == "" || j.Admits(n) {
			m.Devices = append(m.Devices, crush.Device{ID: crush.ID(n.ID), Name: n.Name})
		}
	}
	slices.SortFunc(m.Devices, func(x, y crush.Device) int { return cmp.Compare(x.ID, y.ID) })
	return m
}

// tree is a CRUSH map that jobs are placed on.
type tree struct {
	m       *crush.Map
	program *crush.Program
	mapper  *crush.Mapper
	buckets map[crush.ID]*state.Bucket
	nodes   map[crush.ID]*state.Node
	ranked  []*state.Node // the nodes of the tree, by id
	rules   map[string]*compiled
}

func newTree(s *state.State, j *state.Job, ids *state.IDs) (*tree, error) {
	t := &tree{m: Map(s, j, ids), buckets: map[crush.ID]*state.Bucket{}, nodes: map[crush.ID]*state.Node{},
		rules: map[string]*compiled{}}
	var err error
	if t.program, err = crush.Compile(t.m); err != nil {
		return nil, croft.Errorf(croft.Invalid, "make the CRUSH map of nodes/: %w", err)
	}
	t.mapper = t.program.NewMapper()
	byName := map[string]*state.Bucket{}
	for _, b := range s.Buckets {
		byName[b.Name] = b
	}
	for _, b := range t.m.Buckets {
		t.buckets[b.ID] = byName[b.Name]
	}
	for _, d := range t.m.Devices {
		n := s.Node(d.Name)
		t.nodes[d.ID], t.ranked = n, append(t.ranked, n)
	}
	return t, nil
}

// compiled is a rule compiled for one tree.
type compiled struct {
	takes []policy.Taking
	c     *policy.Compiled
}

func (t *tree) compile(r Rule) (*compiled, error) {
	key := r.Policy.String()
	if had := t.rules[key]; had != nil {
		return had, nil
	}
	p, err := hostless(r.Policy, t.m)
	if err != nil {
		return nil, err
	}
	c, err := policy.Compile(p, t.m)
	if err != nil {
		return nil, err
	}
	for _, taking := range c.Takes() {
		for _, sel := range taking.Selects {
			if !slices.ContainsFunc(t.m.Buckets, func(b crush.Bucket) bool { return b.Type == sel.Type }) {
				name := t.m.Types[sel.Type].Name
				return nil, errors.New("it selects a " + name + ", and no directory below nodes/ is one")
			}
		}
	}
	t.rules[key] = &compiled{c.Takes(), c}
	return t.rules[key], nil
}

// hostless adapts a policy that selects hosts to a tree without directories of type host: each node counts as a host.
func hostless(p policy.Policy, m *crush.Map) (policy.Policy, error) {
	if !withoutHosts(m) {
		return p, nil
	}
	var out policy.Policy
	for i := 0; i < len(p); i++ {
		if !selectsHost(p[i]) {
			out = append(out, p[i])
			continue
		}
		if i+1 == len(p) || p[i+1].Op != policy.Take || p[i+1].N != 1 {
			return nil, errors.New("no directory below nodes/ is a host, so each node is one: \"select N host\" is " +
				"followed by \"take 1\" then")
		}
		i++
		out = append(out, policy.Instruction{Op: policy.Take, N: p[i-1].N, Line: p[i].Line})
	}
	return out, nil
}

// withoutHosts reports whether the cluster has the type host, but no directory of that type.
func withoutHosts(m *crush.Map) bool {
	at := slices.IndexFunc(m.Types, func(t crush.TypeName) bool { return t.Name == "host" && t.Type != 0 })
	return at >= 0 && !slices.ContainsFunc(m.Buckets, func(b crush.Bucket) bool { return b.Type == m.Types[at].Type })
}

func selectsHost(i policy.Instruction) bool { return i.Op == policy.Select && i.Name == "host" }

// above returns the directory of a type that contains a node, or nil.
func above(n *state.Node, kind string) *state.Bucket {
	b := n.Parent
	for b != nil && b.Type != kind {
		b = b.Parent
	}
	return b
}

func isBelow(n *state.Node, in *state.Bucket) bool {
	b := n.Parent
	for b != nil && b != in {
		b = b.Parent
	}
	return b != nil
}
