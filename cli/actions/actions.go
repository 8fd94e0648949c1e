// Package actions has the command about the action log: croft log.
package actions

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/control/actions"
	"croft/control/api"
	"croft/internal/out"
	"croft/internal/wording"
)

// shown is the number of entries printed by default.
const shown = 100

// Command returns the command croft log.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "log [OBJECT]",
		Short: "Show who did what",
		Long: `log shows the action log: who did what to which object, when, from where, and with what
result. Tenants see the log of their project, admins of a project also those of the
projects below it, operators all.

OBJECT is KIND/NAME or KIND/ID: instance/web, key/laptop, project/lab, token/1f3a5b7c9d0e
or host/h1; a name alone is that of an instance.

The API records every request that changes something, also refused ones; commands that
use etcd directly record their changes of hosts, projects, quotas and tokens. Entries
are kept for 90 days, at most 2000 of one project.`,
		Example: `  croft log --since 24h
  croft log instance/web
  croft log --project lab --user ann -o json`,
		ValidArgsFunction: args.CompleteInstances(1),
	}
	args.AddCloudFlags(cmd.Flags())
	since := cmd.Flags().String("since", "", "entries since this `time`, such as 24h (ago), 2026-01-31 or "+
		"2026-01-31T12:00:00Z")
	user := cmd.Flags().String("user", "", "entries of this user (`name`)")
	limit := cmd.Flags().Int("limit", shown, "show at most this number of entries, the newest ones")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		f := api.LogFilter{User: *user, Limit: *limit}
		from, err := moment(*since, time.Now())
		if err != nil {
			return err
		}
		if !from.IsZero() {
			f.Since = from.UTC().Format(time.RFC3339Nano)
		}
		if *limit < 1 || *limit > actions.MostLimit {
			return croft.Errorf(croft.Invalid, "--limit %d: use something between 1 and %d", *limit, actions.MostLimit)
		}
		if len(given) > 0 {
			object, err := actions.ParseObject(given[0])
			if err != nil {
				return err
			}
			f.Object = object.String()
		}
		return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
			if cmd.Flags().Changed("project") {
				f.Project = c.Project
			}
			page, err := c.ListActions(ctx, f)
			if err == nil && len(page.Entries) == 0 {
				err = args.SimilarProject(ctx, c, f.Project)
			}
			if err != nil {
				return err
			}
			if c.WantsData() {
				return c.PrintData(page.Entries)
			}
			if page.Next != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "there are older entries: see more with --limit %d, or less with --since\n",
					min(10**limit, actions.MostLimit))
			}
			return printTable(cmd, page.Entries)
		})
	}
	return args.ForAnyProject(cmd)
}

// moment parses a time, or a duration before now; an empty text means the zero time. Invalid.
func moment(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := wording.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	if t, err := time.ParseInLocation(time.DateOnly, text, time.Local); err == nil {
		return t, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	return time.Time{}, croft.Errorf(croft.Invalid,
		"--since %q: use a duration such as 24h, a day such as 2026-01-31 or a time such as 2026-01-31T12:00:00Z", text)
}

func printTable(cmd *cobra.Command, all []actions.Entry) error {
	t := out.Table{Color: out.IsColored(cmd.OutOrStdout())}
	t.Head("TIME", "PROJECT", "USER", "ACTION", "OBJECT", "RESULT", "VIA", "FROM")
	for _, e := range all {
		result := out.Cell{Text: e.Result}
		if e.Result != actions.Done {
			result.Color = out.Yellow
		}
		object := e.Object.String()
		if e.Object.Kind == actions.Instance && e.Object.Name != "" && e.Object.ID != "" {
			object += " (" + strings.SplitN(e.Object.ID, "-", 2)[0] + ")"
		}
		t.Row(out.Cell{Text: e.Time.Local().Format(time.DateTime)}, out.Cell{Text: out.OrDash(string(e.Project))},
			out.Cell{Text: e.User}, out.Cell{Text: e.Operation}, out.Cell{Text: object}, result,
			out.Cell{Text: out.OrDash(e.Via)}, out.Cell{Text: out.OrDash(e.From)})
		if e.Missed > 0 {
			t.Texts("", string(e.Project), "", fmt.Sprintf("(%d before are missing)", e.Missed))
		}
	}
	return t.Print(cmd.OutOrStdout())
}
