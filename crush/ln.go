package crush

import (
	"math"
	"math/bits"
	"sync"
)

// lnTop is the fixed-point logarithm of 2^16 with 44 binary places, the maximum that lnOf returns.
const lnTop = 1 << 48

// shortfalls returns, for each of the 2^16 possible hash values u, the difference between the maximum and the logarithm
// of u+1. The draw of an item is this difference, negated and divided by its weight.
var shortfalls = sync.OnceValue(func() *[1 << 16]uint64 {
	t := &[1 << 16]uint64{}
	for u := range t {
		t[u] = lnTop - lnOf(uint32(u))
	}
	return t
})

// lnOf returns 2^44 * log2(u+1) in integers, for u below 2^16, with Ceph's method: the argument is split into a power
// of two, an upper part of 7 bits and the rest, and the logarithms of the three are added. Both tables are computed.
func lnOf(u uint32) uint64 {
	x := uint64(u) + 1
	exponent := uint64(15)
	if x&0x18000 == 0 {
		shift := bits.LeadingZeros32(uint32(x)) - 16
		x <<= shift
		exponent -= uint64(shift)
	}
	upper := x>>8 - 128 // 0 to 128
	ratio := 1 + float64(upper)/128
	inverse := uint64(math.Ceil(lnTop / ratio))
	// The product of x and the inverse is 2^15 times the rest, of which 8 bits are used.
	hi, lo := bits.Mul64(x, inverse)
	rest := (hi<<16 | lo>>48) & 0xff
	sum := logarithm(ratio) + logarithm(1+float64(rest)/(1<<15))
	return exponent<<44 + sum>>4
}

// logarithm returns 2^48 * log2(x), rounded down.
func logarithm(x float64) uint64 { return uint64(lnTop * math.Log2(x)) }
