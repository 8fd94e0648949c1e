package state

import (
	"context"
	"fmt"

	"croft/grid/unit"
)

// Ports returns a function that returns the ports which a slot of the job takes on a node, and whether they depend on
// the slot or the node. It leaves out invalid ports, and ports of addresses that are not given yet. The function caches
// its results and is not safe for concurrent use.
func (s *State) Ports(j *Job) (of func(slot int, n *Node) []unit.Port, vary bool) {
	if j.Values == nil || j.Values.Get("ports") == nil {
		return func(int, *Node) []unit.Port { return nil }, false
	}
	all := j.scope()
	all.later = true
	ports, known := portsIn(j, all)
	if known {
		return func(int, *Node) []unit.Port { return ports }, false
	}
	type seat struct {
		slot int
		n    *Node
	}
	had := map[seat][]unit.Port{}
	m := &making{ctx: context.Background(), s: s, dry: true}
	return func(slot int, n *Node) []unit.Port {
		at := seat{slot, n}
		ports, known := had[at]
		if !known {
			scope, err := m.scope(j, slot, n)
			if err == nil {
				ports, _ = portsIn(j, scope)
			}
			had[at] = ports
		}
		return ports
	}, true
}

// portsIn reads the ports of a job, and reports whether all of them are known in this scope.
func portsIn(j *Job, s *scope) (ports []unit.Port, known bool) {
	values := newMap(j.Values.At, 2)
	for _, key := range []string{"ports", "network"} {
		v := j.Values.Get(key)
		if v == nil {
			continue
		}
		expanded, problem := s.expand(v)
		if problem != nil {
			return nil, false
		}
		values.set(key, expanded)
	}
	m := &making{dry: true}
	f := fields{values, &m.problems, ""}
	u := unit.Unit{Network: f.one("network", "", "host", "bridge", "none")}
	m.ports(&u, f)
	return u.NodePorts(), !later(values)
}

// later reports whether a value has parts that are known only for a slot.
func later(v *Value) bool {
	if v.Kind == Anything {
		return true
	}
	for _, item := range v.Items {
		if later(item) {
			return true
		}
	}
	for _, item := range v.Fields {
		if later(item) {
			return true
		}
	}
	return false
}

// portUses records which slots take which port of a node.
type portUses map[portOf][]portUse

type portOf struct {
	on       *Node
	number   int
	protocol string
}

type portUse struct {
	unit.Port
	who string
}

// add records the ports of a slot, and reports each that another slot has taken.
func (p portUses) add(j *Job, slot int, n *Node, u unit.Unit, to *problems) {
	who := fmt.Sprintf("slot %d of %s", slot, j.Name)
	for _, one := range u.NodePorts() {
		at := portOf{n, one.Node, one.Protocol}
		for _, other := range p[at] {
			if other.who != who && one.Overlaps(other.Port) {
				to.add(fields{v: j.Values}.at("ports"), "the port %s of %s, which %s has, is also taken by %s", one,
					n.Name, who, other.who)
				break
			}
		}
		p[at] = append(p[at], portUse{one, who})
	}
}
