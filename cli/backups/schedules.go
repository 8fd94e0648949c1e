package backups

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft/cli/args"
	"croft/cli/verb"
	"croft/compute/backup"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/out"
	"croft/internal/wording"
)

var schedules = verb.Noun[api.BackupSchedule]{
	Name: "schedule",
	All: func(ctx context.Context, c *args.Client) ([]api.BackupSchedule, error) {
		list, err := c.ListBackupSchedules(ctx, api.InProject{Project: c.Project})
		return list.Schedules, err
	},
	Find: func(ctx context.Context, c *args.Client, name string) (api.BackupSchedule, error) {
		return c.GetBackupSchedule(ctx, scheduleNamed(c, name))
	},
	Word: func(s api.BackupSchedule) (string, string) { return s.Name, times(s) },
	Head: []string{"NAME", "OF", "TIMES", "KEEP", "STORE", "LAST", "NEXT", "OVERDUE", "ERROR"},
	Row: func(s api.BackupSchedule) []out.Cell {
		return verb.Texts(s.Name, of(s), times(s), keeps(s.Keep), s.Store, clock(s.Last), s.Next.Format(time.DateTime),
			strconv.Itoa(len(s.Overdue)), s.Error)
	},
	Rows: func(t *out.Table, s api.BackupSchedule) {
		for _, row := range [][2]string{{"name", s.Name}, {"project", string(s.Project)}, {"of", of(s)},
			{"times", times(s)}, {"keep", keeps(s.Keep)}, {"store", s.Store}, {"last", clock(s.Last)},
			{"next", s.Next.Format(time.DateTime)}, {"error", s.Error}, {"missed", strings.Join(s.Missed, "; ")},
			{"overdue", strings.Join(s.Overdue, ", ")}} {
			if row[1] != "" {
				t.Texts(row[0], row[1])
			}
		}
	},
}

func scheduleNamed(c *args.Client, name string) api.BackupScheduleNamed {
	return api.BackupScheduleNamed{InProject: api.InProject{Project: c.Project}, Name: name}
}

// of describes of which instances a schedule makes backups.
func of(s api.BackupSchedule) string {
	switch {
	case s.Instance != "":
		return s.Instance
	case len(s.Labels) > 0:
		return strings.Join(s.Labels, ", ")
	}
	return "all instances"
}

func times(s api.BackupSchedule) string {
	if s.At != "" {
		return "daily at " + s.At + " UTC"
	}
	return "every " + wording.Duration(time.Duration(s.Every)*time.Second)
}

func keeps(k backup.Keep) string {
	var all []string
	for _, one := range []struct {
		n    int
		word string
	}{{k.Last, "last"}, {k.Hourly, "hourly"}, {k.Daily, "daily"}, {k.Weekly, "weekly"}, {k.Monthly, "monthly"}} {
		if one.n > 0 {
			all = append(all, fmt.Sprintf("%d %s", one.n, one.word))
		}
	}
	if len(all) == 0 {
		return "all"
	}
	return strings.Join(all, ", ")
}

func scheduleCommand() *cobra.Command {
	return verb.CloudGroup("schedule", "Make backups at times, and remove old ones",
		`schedule makes backups of instances at times, and removes those of its backups that are not
to be kept. Of each instance it keeps the newest ones, and the newest one of each of the
last hours, days, weeks and months that have one, as restic forget does.`,
		`  croft backup schedule create nightly --at 03:00 --keep-daily 7 --keep-weekly 4
  croft backup schedule create hourly --instance web --every 1h --keep-last 24
  croft backup schedule list`,
		scheduleCreate(), schedules.List("List the schedules"), schedules.Show("Show a schedule"),
		schedules.Remove("Remove schedules; their backups stay",
			func(ctx context.Context, c *args.Client, name string) error {
				return c.RemoveBackupSchedule(ctx, scheduleNamed(c, name))
			}))
}

func scheduleCreate() *cobra.Command {
	var in api.NewBackupSchedule
	var every time.Duration
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a schedule",
		Long: `create makes backups of an instance, of the instances with all of some labels, or of all
instances of the project, at intervals or once a day. An instance whose backup is still
being made gets none. Without a flag --keep all backups are kept.`,
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			in.InProject, in.Name, in.Every = api.InProject{Project: c.Project}, c.Args[0], int64(every/time.Second)
			if every != 0 && in.Every == 0 {
				in.Every = 1 // less than the minimum, and not the same as no interval
			}
			// The check of the server would name the fields of the API.
			asked := backup.Schedule{Name: in.Name, Instance: in.Instance, Labels: in.Labels, Every: in.Every,
				At: in.At}
			if err := asked.Check(); err != nil {
				return err
			}
			s, err := c.CreateBackupSchedule(ctx, in)
			if err != nil {
				return err
			}
			return c.Report(s, "schedule %s makes backups of %s %s, next at %s", s.Name, of(s), times(s),
				s.Next.Format(time.DateTime))
		}),
	}
	f := cmd.Flags()
	f.StringVar(&in.Instance, "instance", "", "make backups of this `instance`")
	f.StringSliceVar(&in.Labels, "label", nil, "make backups of the instances with this `NAME=VALUE`; can be repeated")
	f.StringVar(&in.Store, "store", "", "the `store` (the only one that the project may use)")
	command.DurationVar(f, &every, "every", 0, "make one at this `interval`, such as 6h, from now on; at least 5m")
	f.StringVar(&in.At, "at", "", "make one every day at this `time`, as HH:MM in UTC")
	f.IntVar(&in.Keep.Last, "keep-last", 0, "keep the newest `n`")
	f.IntVar(&in.Keep.Hourly, "keep-hourly", 0, "keep the newest of each of the last `n` hours that have one")
	f.IntVar(&in.Keep.Daily, "keep-daily", 0, "keep the newest of each of the last `n` days that have one")
	f.IntVar(&in.Keep.Weekly, "keep-weekly", 0, "keep the newest of each of the last `n` weeks that have one")
	f.IntVar(&in.Keep.Monthly, "keep-monthly", 0, "keep the newest of each of the last `n` months that have one")
	return cmd
}
