package crush

import "slices"

// Mapper computes mappings. It must not be used concurrently.
type Mapper struct {
	program *Program
	short   *[1 << 16]uint64
	watch   func(Event)
	refuse  func(ID) bool
	// The working lists of a rule: the current items, the items chosen below them, and their leaves.
	here, chosen, leaves []ID
	inputs
}

// inputs are the inputs of the current mapping.
type inputs struct {
	x       uint32
	weights Reweights
	seen    Event // the event for watch
}

// Reweights are weights by device ID: 0 is out, One or more is in, and a value between them makes a device refuse the
// remaining share of all inputs. A device beyond the end of the list is out; nil: all devices are in.
type Reweights []Weight

// NewMapper returns a Mapper.
func (p *Program) NewMapper() *Mapper { return &Mapper{program: p, short: shortfalls()} }

// Refuse treats the devices for which the function returns true as if they were out; nil: none.
func (m *Mapper) Refuse(refuse func(ID) bool) { m.refuse = refuse }

// Map appends to out the devices that a rule chooses for n replicas of x. There may be fewer; None marks a position
// that could not be filled. An unknown rule, or n <= 0, chooses nothing. Map allocates nothing if the Mapper has
// computed a mapping of that rule and n before, and out has room.
func (m *Mapper) Map(rule int, x uint32, n int, weights Reweights, out []ID) []ID {
	if n <= 0 {
		return out
	}
	return m.Run(m.program.rules[rule], x, n, weights, out)
}

// Run is Map for steps that are not part of a rule. A Take with a class must have the ID of the class's bucket.
func (m *Mapper) Run(steps []Step, x uint32, n int, weights Reweights, out []ID) []ID {
	n = min(n, maxReplicas)
	m.grow(n)
	m.x, m.weights = x, weights
	t := m.program.tunables
	tries, leafTries := t.TotalTries+1, 0
	here, end := m.here[:0], len(out)+n
	for i, s := range steps {
		m.seen.Step = i
		switch s.Op {
		case Take:
			if m.has(s.Item) {
				here = append(here[:0], s.Item)
			}
		case SetChooseTries:
			if s.N > 0 {
				tries = s.N
			}
		case SetChooseLeafTries:
			if s.N > 0 {
				leafTries = s.N
			}
		case ChooseFirstn, ChooseLeafFirstn, ChooseIndep, ChooseLeafIndep:
			c := choice{kind: s.Type, tries: tries, leaf: s.Op == ChooseLeafFirstn || s.Op == ChooseLeafIndep}
			here = m.chooseAll(here, s, c, leafTries, n)
		case Emit:
			out = append(out, here[:min(len(here), end-len(out))]...)
			here = here[:0]
		}
	}
	return out
}

func (m *Mapper) grow(n int) {
	if cap(m.here) < n {
		m.here, m.chosen, m.leaves = make([]ID, 0, n), make([]ID, n), make([]ID, n)
	}
}

func (m *Mapper) has(id ID) bool {
	return m.program.bucket(id) != nil || id >= 0 && int(id) < m.program.devices
}

// chooseAll performs a choose step below each bucket of here, and returns the chosen items, at most n.
func (m *Mapper) chooseAll(here []ID, s Step, c choice, leafTries, n int) []ID {
	chosen, leaves, size := m.chosen[:n], m.leaves[:n], 0
	for _, id := range here {
		want := s.N
		if want <= 0 {
			want += n
		}
		b := m.program.bucket(id)
		if want <= 0 || b == nil {
			continue
		}
		c.out, c.leaves = chosen[size:], leaves[size:]
		switch s.Op {
		case ChooseFirstn, ChooseLeafFirstn:
			c.leafTries = leafTries
			if leafTries == 0 {
				c.leafTries = c.tries
				if m.program.tunables.DescendOnce {
					c.leafTries = 1
				}
			}
			size += m.firstn(b, c, want, 0, 0, n-size)
		default:
			c.leafTries = max(leafTries, 1)
			left := min(want, n-size)
			m.indep(b, c, left, want, 0, 0)
			size += left
		}
	}
	if c.leaf {
		chosen = leaves
	}
	return append(here[:0], chosen[:size]...)
}

// unusable returns why a device refuses the input; 0: it is usable.
func (m *Mapper) unusable(id ID) Reason {
	switch {
	case m.weights != nil && int(id) >= len(m.weights), m.weights != nil && m.weights[id] == 0:
		return Out
	case m.weights != nil && m.weights[id] < One && Weight(Hash2(m.x, uint32(id))&0xffff) >= m.weights[id]:
		return Reweighted
	case m.refuse != nil && m.refuse(id):
		return Refused
	}
	return 0
}

// choice is one choice of distinct items below a bucket.
type choice struct {
	kind             Type // type of the chosen items
	tries, leafTries int
	leaf             bool // also choose a device in each bucket
	out, leaves      []ID
}

// firstn chooses items for the positions from first on, and returns the number of filled positions. Items after a
// failed position move up. It adds at most room items. above is the try of the parent bucket, which the tries here
// depend on.
func (m *Mapper) firstn(top *node, c choice, want, first int, above uint32, room int) (filled int) {
	t := m.program.tunables
	filled = first
	position := first
	if t.Stable {
		position = 0
	}
	for ; position < want && room > 0; position++ {
		for failed := 0; failed < c.tries; failed++ {
			r := uint32(position) + above + uint32(failed)
			item, why := m.descend(top, c.kind, r)
			if why == wrongType {
				m.tell(position, failed, item, why)
				break
			}
			if why == 0 && slices.Contains(c.out[:filled], item) {
				why = Collision
			}
			if why == 0 && c.leaf {
				why = m.leafOf(item, c, filled, r, room)
			}
			if why == 0 && c.kind == 0 {
				why = m.unusable(item)
			}
			m.tell(position, failed, item, why)
			if why == 0 {
				c.out[filled] = item
				filled++
				room--
				break
			}
		}
	}
	return filled
}

// leafOf chooses a device in a bucket that was chosen for a position.
func (m *Mapper) leafOf(item ID, c choice, position int, r uint32, room int) Reason {
	if item >= 0 {
		c.leaves[position] = item
		return 0
	}
	m.seen.Leaf, m.seen.Position = true, position
	defer m.outOfLeaf()
	t := m.program.tunables
	below := uint32(0)
	if t.VaryR > 0 {
		below = r >> (t.VaryR - 1)
	}
	want := position + 1
	if t.Stable {
		want = 1
	}
	inner := choice{tries: c.leafTries, out: c.leaves}
	if m.firstn(m.program.bucket(item), inner, want, position, below, room) <= position {
		return NoDevice
	}
	return 0
}

// indep chooses items for left positions from first on. Each keeps its position; None marks a position without an item.
// want is the number of positions in all.
func (m *Mapper) indep(top *node, c choice, left, want, first int, above uint32) {
	const undecided ID = None - 1
	for i := first; i < first+left; i++ {
		c.out[i] = undecided
		if c.leaf {
			c.leaves[i] = undecided
		}
	}
	end := first + left
	for failed := 0; left > 0 && failed < c.tries; failed++ {
		for i := first; i < end; i++ {
			if c.out[i] != undecided {
				continue
			}
			r := uint32(i) + above + uint32(want*failed)
			item, why := m.descend(top, c.kind, r)
			if why == 0 && slices.Contains(c.out[first:end], item) {
				why = Collision
			}
			if why == 0 && c.leaf {
				why = m.leafAt(item, c, i, want, r)
			}
			if why == 0 && c.kind == 0 {
				why = m.unusable(item)
			}
			m.tell(i, failed, item, why)
			switch why {
			case 0:
				c.out[i] = item
				left--
			case wrongType:
				c.out[i] = None
				if c.leaf {
					c.leaves[i] = None
				}
				left--
			}
		}
	}
	for i := first; i < end; i++ {
		if c.out[i] == undecided {
			c.out[i] = None
		}
		if c.leaf && c.leaves[i] == undecided {
			c.leaves[i] = None
		}
	}
}

// leafAt chooses a device in a bucket for a fixed position.
func (m *Mapper) leafAt(item ID, c choice, position, want int, r uint32) Reason {
	if item >= 0 {
		c.leaves[position] = item
		return 0
	}
	m.seen.Leaf, m.seen.Position = true, position
	defer m.outOfLeaf()
	m.indep(m.program.bucket(item), choice{tries: c.leafTries, out: c.leaves}, 1, want, position, r)
	if c.leaves[position] == None {
		return NoDevice
	}
	return 0
}

// descend walks down from a bucket, drawing an item at each level, to an item of the given type. With the reason
// wrongType, a retry cannot succeed.
func (m *Mapper) descend(in *node, kind Type, r uint32) (ID, Reason) {
	for {
		if len(in.weights) == 0 {
			return None, Empty
		}
		item := ID(in.items[in.draw(m.x, r, m.short)])
		if item >= 0 {
			if kind != 0 {
				return item, wrongType
			}
			return item, 0
		}
		if in = m.program.bucket(item); in.kind == kind {
			return item, 0
		}
	}
}
