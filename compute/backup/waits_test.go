package backup_test

import (
	"testing"
	"time"

	"croft/compute/backup"
)

func TestAJobSaysThatItWaitsOnlyAfterAWhileAndWhileItDoes(t *testing.T) {
	t.Parallel()
	now := time.Date(2027, 1, 2, 3, 4, 5, 0, time.UTC)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for _, c := range []struct {
		name  string
		r     backup.Report
		waits bool
	}{
		{"it never waited", backup.Report{At: now}, false},
		{"it waits for a moment", backup.Report{Locked: ago(30 * time.Second), At: now}, false},
		{"it waits", backup.Report{Locked: ago(5 * time.Minute), At: ago(10 * time.Second)}, true},
		{"it waited, and goes on", backup.Report{Locked: ago(5 * time.Minute), At: ago(3 * time.Minute)}, false},
		{"it ended", backup.Report{Locked: ago(5 * time.Minute), At: now, Done: true}, false},
	} {
		if says := c.r.Waits(now); (says != "") != c.waits {
			t.Errorf("%s: %q", c.name, says)
		}
	}
}
