package crush

import (
	"math"
	"math/bits"
	"sync"
)

// lnTop is the fixed-point logarithm of 2^16, the greatest that lnOf returns: 44 binary places.
const lnTop = 1 << 48

// shortfalls returns, for each of the 2^16 values u that a hash may have, how far the logarithm of u+1 falls short of
// the greatest. An item's draw is the negative quotient of that and its weight.
var shortfalls = sync.OnceValue(func() *[1 << 16]uint64 {
	t := &[1 << 16]uint64{}
	for u := range t {
		t[u] = lnTop - lnOf(uint32(u))
	}
	return t
})

// lnOf is 2^44 * log2(u+1) in whole numbers, for u below 2^16, by the construction of Ceph: the argument is split into
// a power of two, an upper part of 7 bits and the rest, and the logarithms of the three are added. Both tables are
// computed.
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
	// The product of x and the inverse is 2^15 times the rest, of which 8 bits count.
	hi, lo := bits.Mul64(x, inverse)
	rest := (hi<<16 | lo>>48) & 0xff
	sum := logarithm(ratio) + logarithm(1+float64(rest)/(1<<15))
	return exponent<<44 + sum>>4
}

// logarithm is 2^48 * log2(x), rounded down.
func logarithm(x float64) uint64 { return uint64(lnTop * math.Log2(x)) }
