package place

import (
	"slices"

	"croft/grid/state"
	"croft/grid/unit"
)

// ports maps each port that the slots of a node take to its owners.
type ports map[portNumber][]portOwner

type portNumber struct {
	number   int
	protocol string
}

type portOwner struct {
	unit.Port
	of *placing
}

// taken returns a port of a node that a slot of the job needs and another job has, or "". Two slots of one job are
// never on one node.
func (d *deciding) taken(p *placing, slot int, n *state.Node) string {
	for _, want := range p.ports(slot, n) {
		for _, had := range d.used[n].ports[portNumber{want.Node, want.Protocol}] {
			if had.of != p && want.Overlaps(had.Port) {
				return want.String()
			}
		}
	}
	return ""
}

// takenForAny is like taken, for every slot that the job may get on the node. Nodes are chosen before slots, so all
// slots must fit.
func (d *deciding) takenForAny(p *placing, n *state.Node) string {
	if len(d.used[n].ports) == 0 {
		return ""
	}
	slots := 1
	if p.portsVary {
		slots = max(p.want, p.job.Want)
	}
	if p.portsVary && p.rule.Every {
		slots = len(d.s.Leaves)
	}
	for slot := range slots {
		if port := d.taken(p, slot, n); port != "" {
			return port
		}
	}
	return ""
}

// claim counts the ports of a slot on its node.
func (d *deciding) claim(p *placing, slot int, n *state.Node) {
	for _, port := range p.ports(slot, n) {
		at, on := portNumber{port.Node, port.Protocol}, d.used[n]
		if on.ports == nil {
			on.ports = ports{}
		}
		on.ports[at] = append(on.ports[at], portOwner{port, p})
	}
}

// unclaim reverts claim.
func (d *deciding) unclaim(p *placing, slot int, n *state.Node) {
	for _, port := range p.ports(slot, n) {
		at := portNumber{port.Node, port.Protocol}
		d.used[n].ports[at] = slices.DeleteFunc(d.used[n].ports[at], func(o portOwner) bool { return o.of == p })
	}
}
