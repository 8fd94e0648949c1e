package node

import (
	"math"
	"testing"
)

func TestHeapRules(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name                   string
		live, perSecond, large uint64
		want                   heapRule
	}{
		{"a small heap stays small while little is asked", 30 * mib, 5 * mib, 1024 * mib, heapRule{100, 120 * mib}},
		{"a heap near the limit is not squeezed", 90 * mib, 5 * mib, 1024 * mib, heapRule{100, math.MaxInt64}},
		{"a large heap may double while little is asked", 500 * mib, 0, 1024 * mib, heapRule{100, math.MaxInt64}},
		{"a small heap may grow fivefold while much is asked", 30 * mib, 300 * mib, 1024 * mib,
			heapRule{400, math.MaxInt64}},
		{"a heap grows to what the machine can spare", 64 * mib, 300 * mib, 128 * mib, heapRule{100, math.MaxInt64}},
		{"a heap grows up to the large memory", 256 * mib, 300 * mib, 1024 * mib, heapRule{300, math.MaxInt64}},
		{"a heap beyond the large memory may still double", 2048 * mib, 300 * mib, 1024 * mib,
			heapRule{100, math.MaxInt64}},
		{"a process that has not collected yet", 0, 300 * mib, 1024 * mib, heapRule{400, math.MaxInt64}},
	} {
		if got := heapRuleFor(c.live, c.perSecond, c.large); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}
