package crush

import "golang.org/x/sys/cpu"

// hashLanes writes hash3(x, item, r) of each item. It needs AVX2, and takes a fifth of the time of the same number of
// calls of hash3.
//
//go:noescape
func hashLanes(to *[lanes]uint32, items *[lanes]int32, x, r uint32)

// hashAll writes hash3(x, item, r) of the first n items; the values after them are undefined.
func hashAll(to *[lanes]uint32, items *[lanes]int32, n int, x, r uint32) {
	if cpu.X86.HasAVX2 {
		hashLanes(to, items, x, r)
		return
	}
	hashPairs(to, items, n, x, r)
}
