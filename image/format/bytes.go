package format

import "fmt"

// Bytes formats a number of bytes for people: 1.5 GiB.
func Bytes(n int64) string {
	const units = "KMGTPE"
	if n < 1<<10 {
		return fmt.Sprintf("%d bytes", n)
	}
	value, unit := float64(n)/(1<<10), 0
	for value >= 1023.95 && unit < len(units)-1 {
		value /= 1 << 10
		unit++
	}
	if value == float64(int64(value)) {
		return fmt.Sprintf("%.0f %ciB", value, units[unit])
	}
	return fmt.Sprintf("%.1f %ciB", value, units[unit])
}
