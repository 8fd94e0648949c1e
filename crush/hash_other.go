//go:build !amd64

package crush

// hashAll writes hash3(x, item, r) of the first n items; the values after them are undefined.
func hashAll(to *[lanes]uint32, items *[lanes]int32, n int, x, r uint32) {
	hashPairs(to, items, n, x, r)
}
