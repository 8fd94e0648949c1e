package backups

import (
	"context"
	"testing"
	"time"

	"croft"
	"croft/compute/backup"
)

// pooled has an instance of a user and a machine of a pool, and the schedules of a project.
type pooled struct {
	Instances
	plans []backup.Schedule
}

func (p pooled) Overview(context.Context, croft.Project) ([]*croft.Status, error) {
	old := time.Now().Add(-48 * time.Hour)
	return []*croft.Status{
		{Instance: croft.Instance{ID: "1", Name: "runner", Project: "anna", MadeFor: "pool runners", Created: old}},
		{Instance: croft.Instance{ID: "2", Name: "web", Project: "anna", Created: old}}}, nil
}

func (p pooled) Backups(context.Context, croft.Project) ([]backup.Backup, error) { return nil, nil }

func (p pooled) Plans(context.Context, croft.Project) ([]backup.Schedule, error) { return p.plans, nil }

func TestMachinesOfPoolsNeedBackupsOnlyOfASchedule(t *testing.T) {
	t.Parallel()
	all := []backup.Schedule{{Name: "nightly", Project: "anna", Every: 3600,
		Created: time.Now().Add(-24 * time.Hour)}}
	for name, c := range map[string]struct {
		plans []backup.Schedule
		than  time.Duration
		want  int
	}{
		"without a schedule":       {nil, 0, 1},
		"a schedule has them":      {all, 0, 2},
		"a time that a user gives": {nil, time.Hour, 2},
	} {
		p := pooled{plans: c.plans}
		found, err := Protection{Instances: p, Records: p}.Overdue(t.Context(), "anna", time.Now(), c.than)
		if err != nil || len(found) != c.want || found[len(found)-1].Instance.Name != "web" {
			t.Errorf("%s: %v, %v", name, found, err)
		}
	}
}
