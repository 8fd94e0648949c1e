package projects

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/out"
	"croft/internal/wording"
	"croft/tenant"
	"croft/tenant/usage"
)

// UsageCommand returns the command croft usage.
func UsageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "usage",
		Short: "Show what projects used, by day",
		Long: `usage shows what projects used: for each day in UTC the amounts times the time for which
they were charged, such as VCPU-hours, and the most at once. Usage counts the same as
quotas: a stopped instance and a held claim count, a removed one does not. The use of a
project includes that of the projects below it. Tenants see their project, admins of a
project also those below it, operators all.

A note gives the time for which a day's amounts are estimated: they changed while no
server recorded usage, so half of that time is charged with the amounts before it, half
with the amounts after it. Days are kept for 400 days, also those of removed projects,
which operators see with --former. With very many projects the oldest days are removed
sooner. With -o json, operators also see what the hosts that took instances offered on each
day (capacity).`,
		Example: `  croft usage
  croft usage --project lab --since 30d --by project
  croft usage --since 2026-01-01 --until 2026-01-31 -o json`,
	}
	args.AddCloudFlags(cmd.Flags())
	since := cmd.Flags().String("since", "7d",
		"the first day: a number of `days` that end today, such as 7d, or a date such as 2026-01-31")
	until := cmd.Flags().String("until", "", "the last `day`, such as 2026-01-31; today by default")
	by := cmd.Flags().String("by", byDay, "a line for each `day` of a project, or project for their sum")
	former := cmd.Flags().Bool("former", false, "show removed projects too")
	command.CompleteFlag(cmd, "by", []string{byDay, byProject})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f := api.Days{Former: *former, Until: *until}
		var err error
		if f.Since, err = firstDay(*since, time.Now()); err != nil {
			return err
		}
		if err := (usage.Filter{Since: f.Since, Until: f.Until, Former: f.Former}).Check(); err != nil {
			return err
		}
		if *by != byDay && *by != byProject {
			return croft.Errorf(croft.Invalid, "--by %q: use %s or %s", *by, byDay, byProject)
		}
		return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
			var r usage.Report
			if cmd.Flags().Changed("project") {
				r, err = c.GetUsage(ctx, api.ProjectDays{ProjectNamed: api.ProjectNamed{Project: c.Project}, Days: f})
				if err == nil && !slices.ContainsFunc(r.Projects,
					func(a usage.Account) bool { return len(a.Days) > 0 }) {
					err = args.SimilarProject(ctx, c, c.Project)
				}
			} else {
				r, err = c.ListUsage(ctx, f)
			}
			if err != nil {
				return err
			}
			if c.WantsData() {
				if *by == byProject {
					return c.PrintData(totalled(r))
				}
				return c.PrintData(r)
			}
			warnAboutUsage(cmd, r, time.Now())
			if *by == byProject {
				return printTotals(cmd, r)
			}
			return printDays(cmd, r)
		})
	}
	return args.ForAnyProject(cmd)
}

// These are what each line of usage can stand for.
const (
	byDay     = "day"
	byProject = "project"
)

// firstDay parses a day, or a number of days that ends today. Invalid.
func firstDay(text string, now time.Time) (string, error) {
	if days, is := strings.CutSuffix(text, "d"); is {
		n, err := strconv.Atoi(days)
		if err != nil || n < 1 || n > int(usage.Kept/(24*time.Hour)) {
			return "", croft.Errorf(croft.Invalid,
				"--since %.40q: use a number of days from 1d to %s, or a day such as "+
					"2026-01-31", text, wording.Duration(usage.Kept))
		}
		return now.UTC().AddDate(0, 0, 1-n).Format(time.DateOnly), nil
	}
	if _, err := time.Parse(time.DateOnly, text); err != nil {
		return "", croft.Errorf(croft.Invalid,
			"--since %.40q: use a number of days such as 7d, or a day such as 2026-01-31",
			text)
	}
	return text, nil
}

// stale is the age from which a history counts as not being recorded.
const stale = 2 * time.Minute

// warnAboutUsage prints a warning if the history is incomplete.
func warnAboutUsage(cmd *cobra.Command, r usage.Report, now time.Time) {
	switch {
	case r.Until.IsZero():
		fmt.Fprintln(cmd.ErrOrStderr(), "nothing is recorded yet: a server of the API does that")
	case now.Sub(r.Until) > stale:
		fmt.Fprintf(cmd.ErrOrStderr(), "this is what was used until %s: no server of the API has recorded more since\n",
			r.Until.Local().Format(time.DateTime))
	}
}

// projectTotal is the sum over all days of a project.
type projectTotal struct {
	Project     croft.Project  `json:"project"`
	Former      bool           `json:"former,omitempty"`
	Days        int            `json:"days"` // number of days with any use
	UnitSeconds tenant.Amounts `json:"unit_seconds"`
	Peak        tenant.Amounts `json:"peak"`
	Estimated   int64          `json:"estimated_seconds,omitempty"`
}

// usageTotals is a report by project.
type usageTotals struct {
	Until    time.Time      `json:"recorded_until,omitzero"`
	Projects []projectTotal `json:"projects"`
	Capacity []usage.Day    `json:"capacity,omitempty"`
}

func totalled(r usage.Report) usageTotals {
	all := usageTotals{Until: r.Until, Projects: []projectTotal{}, Capacity: r.Capacity}
	for _, a := range r.Projects {
		sum := usage.Sum(a.Days)
		all.Projects = append(all.Projects, projectTotal{a.Project, a.Former, len(a.Days), sum.UnitSeconds, sum.Peak,
			sum.Estimated})
	}
	return all
}

func printDays(cmd *cobra.Command, r usage.Report) error {
	t := out.Table{Color: out.IsColored(cmd.OutOrStdout())}
	t.Head("DAY", "PROJECT", "RESOURCE", "USED", "UNIT", "PEAK", "NOTE")
	type line struct {
		usage.Account
		usage.Day
	}
	var lines []line
	for _, a := range r.Projects {
		for _, d := range a.Days {
			lines = append(lines, line{a, d})
		}
	}
	slices.SortStableFunc(lines, func(a, b line) int { return strings.Compare(a.Date, b.Date) })
	for _, l := range lines {
		for _, r := range usedRows(l.Account, l.Day) {
			t.Texts(append([]string{l.Date}, r...)...)
		}
	}
	return t.Print(cmd.OutOrStdout())
}

func printTotals(cmd *cobra.Command, r usage.Report) error {
	t := out.Table{Color: out.IsColored(cmd.OutOrStdout())}
	t.Head("PROJECT", "RESOURCE", "USED", "UNIT", "PEAK", "NOTE")
	for _, a := range r.Projects {
		for _, r := range usedRows(a, usage.Sum(a.Days)) {
			t.Texts(r...)
		}
	}
	return t.Print(cmd.OutOrStdout())
}

// usedRows has a line for each resource of a day, or of a sum of days.
func usedRows(a usage.Account, d usage.Day) (rows [][]string) {
	note := "-"
	if d.Estimated > 0 {
		note = wording.Duration(time.Duration(d.Estimated)*time.Second) + " estimated"
	}
	if a.Former {
		note = strings.TrimSuffix("removed, "+note, ", -")
	}
	for _, m := range slices.Sorted(maps.Keys(d.Peak)) {
		used, unit := inHours(m, d.UnitSeconds[m])
		rows = append(rows, []string{string(a.Project), string(m), used, unit, strconv.FormatInt(d.Peak[m], 10), note})
	}
	if len(rows) == 0 { // no use is known, but there may have been some
		rows = append(rows, []string{string(a.Project), "-", "-", "-", "-", note})
	}
	return rows
}

// inHours converts unit-seconds to the customary unit.
func inHours(m tenant.Measure, unitSeconds int64) (amount, unit string) {
	hours := float64(unitSeconds) / 3600
	switch m {
	case tenant.Measure(croft.MemoryMB):
		hours, unit = hours/1024, "GB-hours"
	case tenant.Measure(croft.DiskGB), tenant.ImageGB, tenant.BackupGB:
		unit = "GB-hours"
	default: // counts have plural names
		unit = strings.TrimSuffix(string(m), "s") + "-hours"
	}
	return strconv.FormatFloat(hours, 'f', 2, 64), unit
}
