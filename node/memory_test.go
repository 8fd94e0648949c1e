package node

import (
	"math"
	"testing"
	"testing/fstest"
)

func TestHeapRules(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		name                   string
		live, perSecond, large uint64
		want                   heapRule
	}{
		{"a small heap stays small while little is asked", 30 * mib, 5 * mib, 1024 * mib, heapRule{100, 120 * mib}},
		{"a heap near the limit is not squeezed", 90 * mib, 5 * mib, 1024 * mib, heapRule{50, 180 * mib}},
		{"a large heap may grow by half while little is asked", 500 * mib, 0, 1024 * mib, heapRule{50, 1000 * mib}},
		{"a small heap may grow fivefold while much is asked", 30 * mib, 300 * mib, 1024 * mib,
			heapRule{400, 1024 * mib}},
		{"a heap may grow by what is allocated in half a second", 100 * mib, 150 * mib, 1024 * mib,
			heapRule{75, 1024 * mib}},
		{"a few large pages are no reason to grow by more than half", 115 * mib, 60 * mib, 1024 * mib,
			heapRule{50, 1024 * mib}},
		{"a heap grows to what the machine can spare", 64 * mib, 300 * mib, 128 * mib, heapRule{100, 128 * mib}},
		{"a heap grows up to the large memory", 512 * mib, 2000 * mib, 1024 * mib, heapRule{100, 1024 * mib}},
		{"a heap beyond the large memory is limited to a third more", 2400 * mib, 300 * mib, 1024 * mib,
			heapRule{50, 3200 * mib}},
		{"a process on a small machine has the smaller limit", 30 * mib, 5 * mib, 64 * mib, heapRule{100, 64 * mib}},
		{"a process that has not collected yet", 0, 300 * mib, 1024 * mib, heapRule{400, 1024 * mib}},
	} {
		if got := heapRuleFor(c.live, c.perSecond, c.large); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestTheSmallestLimitOfTheControlGroupsCounts(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  uint64
	}{
		{"there are no groups", nil, math.MaxUint64},
		{"there is no limit", map[string]string{"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "max\n"},
			math.MaxUint64},
		{"a group above has the limit", map[string]string{"proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "1000\n"}, 1000},
		{"the group has a smaller limit than the one above", map[string]string{"proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "500\n", "sys/fs/cgroup/a/memory.max": "1000\n"}, 500},
		{"a container sees its group at the top", map[string]string{"proc/self/cgroup": "0::/../host/path\n",
			"sys/fs/cgroup/memory.max": "700\n"}, 700},
		{"version 1", map[string]string{"proc/self/cgroup": "5:cpu:/a\n4:memory:/a\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "900\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":   "9223372036854771712\n"}, 900},
	} {
		files := fstest.MapFS{}
		for name, text := range c.files {
			files[name] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := cgroupMemory(files); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}
