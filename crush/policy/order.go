package policy

import "croft/crush"

// Offers reports whether the policy ever gives a device for one replica. It does not where each of its takes is for
// other replicas, as take -1 and select -1 T are.
func (c *Compiled) Offers() bool {
	for _, t := range c.takes {
		if t.first() {
			return true
		}
	}
	return false
}

// Begins returns the buckets at which those takes begin that give devices for one replica, in the order of the policy.
func (c *Compiled) Begins() (all []crush.ID) {
	for _, t := range c.takes {
		if t.first() {
			all = append(all, t.Steps[0].Item)
		}
	}
	return all
}

// first reports whether a take gives a device for one replica.
func (t Taking) first() bool {
	for _, s := range t.Steps {
		if s.Op != crush.Take && s.Op != crush.Emit && s.N < 0 {
			return false
		}
	}
	return true
}

// Order calls offer with the devices that the policy gives for one replica: the first one, then the one that it gives
// if that is refused, and so on, each once, until offer takes one by returning true. What the policy gives once some
// devices are refused is what it gives once they are out, so each place can be computed again with reweights alone.
// Where nothing is left to a pass, others follow with other inputs, as in Place; pass counts from 0.
func (c *Compiled) Order(m *crush.Mapper, x uint32, weights crush.Reweights, offer func(id crush.ID, pass int) bool) {
	offered, taken := map[crush.ID]bool{}, false
	defer m.Refuse(nil)
	var given [1]crush.ID
	for pass := range maxPasses {
		input := x
		if pass > 0 {
			input = crush.Hash2(x, uint32(pass))
		}
		m.Refuse(func(id crush.ID) bool {
			if !offered[id] {
				offered[id] = true
				taken = offer(id, pass)
				return !taken
			}
			return true
		})
		for _, t := range c.takes {
			if m.Run(t.Steps, input, 1, weights, given[:0]); taken {
				return
			}
		}
	}
}
