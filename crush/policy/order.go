package policy

import "croft/crush"

// Offers reports whether the policy can return a device for one replica. It cannot if all its takes are for further
// replicas, as take -1 and select -1 T are.
func (c *Compiled) Offers() bool {
	for _, t := range c.takes {
		if t.first() {
			return true
		}
	}
	return false
}

// Begins returns the start buckets of the takes that return devices for one replica, in the order of the policy.
func (c *Compiled) Begins() (all []crush.ID) {
	for _, t := range c.takes {
		if t.first() {
			all = append(all, t.Steps[0].Item)
		}
	}
	return all
}

// first reports whether a take returns a device for one replica.
func (t Taking) first() bool {
	for _, s := range t.Steps {
		if s.Op != crush.Take && s.Op != crush.Emit && s.N < 0 {
			return false
		}
	}
	return true
}

// Order calls offer with the devices that the policy returns for one replica: the first one, then the one that it
// returns if the first is refused, and so on, each once, until offer accepts one by returning true. Refusing devices
// has the same effect as marking them out, so each result can be reproduced with reweights alone. When a pass has no
// devices left, passes with other inputs follow, as in Place; pass counts from 0.
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
