package place

import (
	"cmp"
	"slices"

	"croft/crush"
	"croft/grid/state"
)

const (
	maxPasses = 16
	// drawn is added to the number of a further candidate, so that its input differs from the inputs of further passes.
	drawn = 1 << 16
)

// everywhere assigns each usable node to the job.
func (d *deciding) everywhere(p *placing, had map[int]*state.Node) {
	var nodes []*state.Node
	on := map[*state.Node]bool{}
	for _, n := range p.has {
		on[n] = true
	}
	for _, n := range p.tree.ranked {
		if !on[n] && d.usable(p, n) {
			nodes = append(nodes, n)
			d.count(p, n, 1)
		}
	}
	p.give(nodes, had)
	p.want = len(p.has)
}

// pinned assigns the job's pinned node to it.
func (d *deciding) pinned(p *placing) {
	if n := d.s.Node(p.rule.Pin); p.want > 0 && len(p.has) == 0 && d.usable(p, n) {
		p.has[0] = n
		d.count(p, n, 1)
	}
}

// filling is the state of filling one job: the nodes that have a seat already, and the added nodes.
type filling struct {
	*placing
	d     *deciding
	taken map[*state.Node]bool
	added []*state.Node
	x     uint32 // the input of this pass
	kept  []int  // slots whose node has not found a seat in any pass so far
	seats int    // number of taken seats
}

// fill assigns the job's current nodes to seats of its rule, pass by pass, and fills the free seats with other nodes.
// When enough seats are taken, slots whose node found no seat lose their node.
func (d *deciding) fill(p *placing, had map[int]*state.Node, afresh bool) {
	f := &filling{placing: p, d: d, taken: map[*state.Node]bool{}, x: p.x, kept: sorted(p.has)}
	for _, n := range p.has {
		f.taken[n] = true
	}
	for pass := range maxPasses {
		if f.seats >= p.want {
			break
		}
		if pass > 0 {
			f.x = crush.Hash2(p.x, uint32(pass))
		}
		before := f.seats
		blocks := p.tree.blocks(p.c, p.want)
		f.seat(blocks)
		for _, b := range blocks {
			f.fillBlock(b)
		}
		if f.seats == before {
			break
		}
	}
	for _, slot := range f.kept {
		n := p.has[slot]
		d.count(p, n, -1)
		d.unclaim(p, slot, n)
		delete(p.has, slot)
		delete(p.kept, slot)
		p.why[slot] = "the rule has no place left for " + n.Name + " beside the others"
	}
	if !afresh {
		had = nil
	}
	p.give(f.added, had)
}

// seat assigns the job's current nodes to seats of the blocks.
func (f *filling) seat(blocks []*block) {
	var left []int
	for _, slot := range f.kept {
		at := slices.IndexFunc(blocks, func(b *block) bool { return f.seats < f.want && b.fits(f.has[slot], true) })
		if at < 0 {
			left = append(left, slot)
			continue
		}
		f.seats++
	}
	f.kept = left
}

// fillBlock fills the seats of a block with the nodes that the rule draws, and, if these are too few, with the
// best-ranked nodes that fit.
func (f *filling) fillBlock(b *block) {
	if f.job.Balance > 1 {
		for f.wanted(b) && f.balanced(b) {
		}
	} else if f.wanted(b) {
		for _, id := range f.run(b, f.x) {
			f.take(b, f.tree.nodes[id])
		}
	}
	if f.wanted(b) {
		for _, n := range f.ranked(b) {
			f.take(b, n)
		}
	}
}

func (f *filling) wanted(b *block) bool { return b.seats > 0 && f.seats < f.want }

// free reports whether a node can take a seat of the block.
func (f *filling) free(b *block, n *state.Node) bool {
	return n != nil && !f.taken[n] && f.d.usable(f.placing, n) && b.fits(n, false)
}

func (f *filling) take(b *block, n *state.Node) bool {
	if !f.wanted(b) || !f.free(b, n) || !b.fits(n, true) {
		return false
	}
	f.taken[n] = true
	f.added = append(f.added, n)
	f.seats++
	f.d.count(f.placing, n, 1)
	return true
}

// run returns the nodes that the rule of a block draws for the input x.
func (f *filling) run(b *block, x uint32) []crush.ID {
	m := f.tree.mapper
	m.Refuse(func(id crush.ID) bool { return !f.free(b, f.tree.nodes[id]) })
	defer m.Refuse(nil)
	return m.Run(b.taking.Steps, x, f.want, nil, nil)
}

// balanced draws as many candidates as the job's Balance and takes the least loaded, the first one if several are
// equal. It returns false if no candidate was found.
func (f *filling) balanced(b *block) bool {
	var best *state.Node
	for k := range uint32(f.job.Balance) {
		x := f.x
		if k > 0 {
			x = crush.Hash2(f.x, drawn+k)
		}
		for _, id := range f.run(b, x) {
			n := f.tree.nodes[id]
			if !f.free(b, n) {
				continue
			}
			if best == nil || f.d.less(f.placing, n, best) {
				best = n
			}
			break
		}
	}
	return best != nil && f.take(b, best)
}

// less reports whether node a is less loaded than b: first by the scarcest resource that the job needs, then by the
// number of slots relative to the weight.
func (d *deciding) less(p *placing, a, b *state.Node) bool {
	share := func(n *state.Node) (most float64) {
		for key, need := range p.job.Uses {
			if n.Capacity[key] > 0 {
				most = max(most, float64(d.used[n].uses[key]+need)/float64(n.Capacity[key]))
			}
		}
		return most
	}
	if x, y := share(a), share(b); x != y {
		return x < y
	}
	return uint64(d.used[a].slots+1)*uint64(b.Weight) < uint64(d.used[b].slots+1)*uint64(a.Weight)
}

// ranked returns the free nodes that fit in a block, best first: each gets the draw that it would have as an item of
// one bucket with all nodes.
func (f *filling) ranked(b *block) []*state.Node {
	type ranking struct {
		n    *state.Node
		draw uint64
	}
	var list []ranking
	for _, n := range f.tree.ranked {
		if f.free(b, n) {
			list = append(list, ranking{n, crush.Draw(f.x, crush.ID(n.ID), 0, n.Weight)})
		}
	}
	slices.SortFunc(list, func(x, y ranking) int { return cmp.Or(cmp.Compare(x.draw, y.draw), x.n.ID-y.n.ID) })
	nodes := make([]*state.Node, len(list))
	for i, one := range list {
		nodes[i] = one.n
	}
	return nodes
}
