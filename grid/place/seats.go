package place

import (
	"croft/crush/policy"
	"croft/grid/state"
)

// block is one take of a pass: its seats, and the nodes that have taken them.
type block struct {
	taking policy.Taking
	from   *state.Bucket
	kinds  []string // the types of the selections
	counts []int    // maximum number of each below one of the level above; last: nodes
	seats  int      // number of free seats
	seen   map[*state.Bucket]bool
	below  map[*state.Bucket]int
}

// blocks returns the blocks of one pass for a number of replicas.
func (t *tree) blocks(c *compiled, want int) []*block {
	var all []*block
	for _, taking := range c.takes {
		b := &block{taking: taking, from: t.buckets[taking.From], seats: 1, seen: map[*state.Bucket]bool{},
			below: map[*state.Bucket]int{}}
		for _, s := range taking.Selects {
			b.kinds = append(b.kinds, t.m.Types[s.Type].Name)
			b.add(s.N, want)
		}
		b.add(taking.N, want)
		all = append(all, b)
	}
	return all
}

// add adds a level. As in CRUSH, n = 0 means as many as are wanted, and a negative n means that many fewer.
func (b *block) add(n, want int) {
	if n <= 0 {
		n = max(0, n+want)
	}
	b.counts = append(b.counts, n)
	b.seats = min(b.seats*n, want)
}

// fits reports whether the block has a seat for a node, and takes the seat if take is set.
func (b *block) fits(n *state.Node, take bool) bool {
	if b.seats <= 0 || !isBelow(n, b.from) {
		return false
	}
	at := b.from
	for i, kind := range b.kinds {
		next := above(n, kind)
		if next == nil || !contains(at, next) || !b.seen[next] && b.below[at] >= b.counts[i] {
			return false
		}
		at = next
	}
	if b.below[at] >= b.counts[len(b.kinds)] {
		return false
	}
	if !take {
		return true
	}
	at = b.from
	for _, kind := range b.kinds {
		next := above(n, kind)
		if !b.seen[next] {
			b.seen[next] = true
			b.below[at]++
		}
		at = next
	}
	b.below[at]++
	b.seats--
	return true
}

// contains reports whether the directory b is below outer, at any depth.
func contains(outer, b *state.Bucket) bool {
	for b = b.Parent; b != nil && b != outer; b = b.Parent {
	}
	return b != nil
}
