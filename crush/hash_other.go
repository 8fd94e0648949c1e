//go:build !amd64

package crush

// hashAll writes hash3(x, item, r) of the first n items; what it writes beyond them is undefined.
func hashAll(to *[lanes]uint32, items *[lanes]int32, n int, x, r uint32) {
	hashPairs(to, items, n, x, r)
}
