package crush

import "math/bits"

// lanes is the number of items that are hashed together.
const lanes = 16

// draw returns the index of the winning item of a non-empty bucket, for input x and try r. As in straw2, the draw of
// each item is the logarithm of its hash divided by its weight, and the greatest draw wins. Among equal draws the first
// one wins, and weight 0 loses to all others.
//
// A division per item would take a third of the time. An item's shortfall s is compared by s/w < best without division,
// since for integers that is equivalent to s < best*w.
func (n *node) draw(x, r uint32, short *[1 << 16]uint64) int {
	var hashes [lanes]uint32
	winner, best := 0, uint64(1)<<63
	for from := 0; from < len(n.weights); from += lanes {
		weights := n.weights[from:min(from+lanes, len(n.weights))]
		hashAll(&hashes, (*[lanes]int32)(n.items[from:]), len(weights), x, r)
		for i, w := range weights {
			s := short[hashes[i%lanes]&0xffff]
			if hi, lo := bits.Mul64(best, uint64(w)); hi != 0 || s < lo {
				winner, best = from+i, s/uint64(w)
			}
		}
	}
	return winner
}

// hashPairs writes hash3(x, item, r) of the first n items, and of one more if n is odd.
func hashPairs(to *[lanes]uint32, items *[lanes]int32, n int, x, r uint32) {
	for i := 0; i < n; i += 2 {
		to[i], to[i+1] = hash3twice(x, uint32(items[i]), uint32(items[i+1]), r)
	}
}

// hash3twice returns hash3(a, b, c) and hash3(a, b2, c). A processor computes two independent chains in little more
// time than one.
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

// Draw returns the number by which an item competes in a bucket for input x and try r: the smallest wins. An item of
// weight 0 has the maximum.
func Draw(x uint32, item ID, r uint32, w Weight) uint64 {
	if w == 0 {
		return ^uint64(0)
	}
	return shortfalls()[hash3(x, uint32(item), r)&0xffff] / uint64(w)
}
