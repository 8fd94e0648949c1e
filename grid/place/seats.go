package place

import (
	"croft/crush/policy"
	"croft/grid/state"
)

// block is one take of a pass: the seats that its instructions give, and who sits there.
type block struct {
	taking policy.Taking
	from   *state.Bucket
	kinds  []string // of the selections
	counts []int    // how many of each below one of the one before; the last: nodes
	seats  int      // in all; less, once some are taken
	seen   map[*state.Bucket]bool
	below  map[*state.Bucket]int
}

// blocks are those of one pass for so many replicas.
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

// add adds a level. As in CRUSH, 0 is all that are wanted, and below it so many fewer.
func (b *block) add(n, want int) {
	if n <= 0 {
		n = max(0, n+want)
	}
	b.counts = append(b.counts, n)
	b.seats = min(b.seats*n, want)
}

// fits reports whether the block has a seat for a node, and takes it if so asked.
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

// contains reports whether a directory is somewhere in another one.
func contains(outer, b *state.Bucket) bool {
	for b = b.Parent; b != nil && b != outer; b = b.Parent {
	}
	return b != nil
}
