package checkup

import (
	"strings"
	"testing"
	"time"

	"croft"
	"croft/internal/checks"
	"croft/schedule/backups"
)

func TestInstancesWithoutARecentBackupAreNamedWithTheTime(t *testing.T) {
	now := time.Date(2027, 1, 2, 3, 0, 0, 0, time.UTC)
	one := func(name string, created, last time.Duration) backups.Unprotected {
		inst := croft.Instance{Name: name, Project: "dev", Created: now.Add(-created)}
		u := backups.Unprotected{Instance: &inst}
		if last > 0 {
			u.Last = now.Add(-last)
		}
		return u
	}
	many := make([]backups.Unprotected, 7)
	for i := range many {
		many[i] = one("web", 48*time.Hour, 0)
	}
	for name, c := range map[string]struct {
		found []backups.Unprotected
		level checks.Level
		says  string
	}{
		"all have one":      {nil, checks.OK, "every instance has a recent one"},
		"one never had any": {[]backups.Unprotected{one("web", 3*time.Hour, 0)}, checks.Warn, "created 3h ago"},
		"one has an old one": {[]backups.Unprotected{one("db", 90*time.Hour, 50*time.Hour)}, checks.Warn,
			"db of project dev: none for 2d2h"},
		"not too many are named": {many, checks.Warn, "and 2 more"},
	} {
		t.Run(name, func(t *testing.T) {
			got := judgeBackups(c.found, now)
			if got.Level != c.level || !strings.Contains(got.Found, c.says) {
				t.Errorf("%s: %s", got.Level, got.Found)
			}
		})
	}
}
