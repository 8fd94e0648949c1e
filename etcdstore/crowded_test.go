package etcdstore

import "testing"

func TestTheRestOfTheQuotaIsKeptForRemovals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		quota, file, inUse int64
		want               bool
	}{
		"an empty server":                                {1600, 10, 10, false},
		"just below seven eighths":                       {1600, 1399, 1399, false},
		"seven eighths":                                  {1600, 1400, 1400, true},
		"a large file with few free pages":               {1600, 1400, 1200, true},
		"a large file of which a quarter is free":        {1600, 1400, 1199, false},
		"a server that does not tell its quota":          {0, 1500, 1500, false},
		"a file beyond the quota after it was made less": {1600, 1700, 1399, true},
	} {
		if got := crowded(c.quota, c.file, c.inUse); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
