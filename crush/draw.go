package crush

import "math/bits"

// draw returns the index of the item that wins in a bucket that is not empty, for input x and try r. As in straw2,
// each item draws a number by its hash, divided by its weight, and the greatest wins; the first one among equals, and
// weight 0 loses to all others.
//
// A division for each item would take a third of the time. An item's shortfall s is compared by s/w < best without
// dividing, since for whole numbers that is s < best*w.
func (n *node) draw(x, r uint32, short *[1 << 16]uint64) int {
	items, weights := n.items, n.weights[:len(n.items)]
	winner, best := 0, uint64(1)<<63
	i := 0
	for ; i+1 < len(items); i += 2 {
		h, h2 := hash3twice(x, uint32(items[i]), uint32(items[i+1]), r)
		if w := uint64(weights[i]); w != 0 {
			s := short[h&0xffff]
			if hi, lo := bits.Mul64(best, w); hi != 0 || s < lo {
				winner, best = i, s/w
			}
		}
		if w := uint64(weights[i+1]); w != 0 {
			s := short[h2&0xffff]
			if hi, lo := bits.Mul64(best, w); hi != 0 || s < lo {
				winner, best = i+1, s/w
			}
		}
	}
	if i < len(items) {
		if w := uint64(weights[i]); w != 0 {
			s := short[hash3(x, uint32(items[i]), r)&0xffff]
			if hi, lo := bits.Mul64(best, w); hi != 0 || s < lo {
				winner = i
			}
		}
	}
	return winner
}

// hash3twice returns hash3(a, b, c) and hash3(a, b2, c). A processor computes two chains in little more time than one.
func hash3twice(a, b, b2, c uint32) (uint32, uint32) {
	h, h2 := seed^a^b^c, seed^a^b2^c
	a2, c2 := a, c
	x, y, x2, y2 := uint32(padX), uint32(padY), uint32(padX), uint32(padY)
	a, b, h, a2, b2, h2 = mixTwice(a, b, h, a2, b2, h2)
	c, x, h, c2, x2, h2 = mixTwice(c, x, h, c2, x2, h2)
	y, _, h, y2, _, h2 = mixTwice(y, a, h, y2, a2, h2)
	_, _, h, _, _, h2 = mixTwice(b, x, h, b2, x2, h2)
	_, _, h, _, _, h2 = mixTwice(y, c, h, y2, c2, h2)
	return h, h2
}

func mixTwice(a, b, c, d, e, f uint32) (uint32, uint32, uint32, uint32, uint32, uint32) {
	a, d = (a-b-c)^c>>13, (d-e-f)^f>>13
	b, e = (b-c-a)^a<<8, (e-f-d)^d<<8
	c, f = (c-a-b)^b>>13, (f-d-e)^e>>13
	a, d = (a-b-c)^c>>12, (d-e-f)^f>>12
	b, e = (b-c-a)^a<<16, (e-f-d)^d<<16
	c, f = (c-a-b)^b>>5, (f-d-e)^e>>5
	a, d = (a-b-c)^c>>3, (d-e-f)^f>>3
	b, e = (b-c-a)^a<<10, (e-f-d)^d<<10
	c, f = (c-a-b)^b>>15, (f-d-e)^e>>15
	return a, b, c, d, e, f
}

// Draw returns the number by which an item competes in a bucket for input x and try r: the least wins. An item of
// weight 0 has the greatest possible.
func Draw(x uint32, item ID, r uint32, w Weight) uint64 {
	if w == 0 {
		return ^uint64(0)
	}
	return shortfalls()[hash3(x, uint32(item), r)&0xffff] / uint64(w)
}
