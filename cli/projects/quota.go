package projects

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/control/api"
	"croft/internal/out"
	"croft/tenant"
)

// QuotaCommand returns the command croft quota.
func QuotaCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quota",
		Short: "Limit what projects may use",
		Long: `quota limits what a project and the projects below it may use together: each resource
class that instances claim, such as VCPU and MEMORY_MB, the sizes in GiB of images
(IMAGE_GB) and of the disks of backups (BACKUP_GB), and numbers: of instances, volumes,
snapshots, images, backups, access tokens (tokens), pools, open tickets of pools (tickets)
and others that croft quota show lists. A stopped instance counts; a removed one does not.
A limit below the current use removes nothing and only prevents growth.`,
	}
	args.AddCloudFlags(cmd.PersistentFlags())
	cmd.AddCommand(showQuotaCommand(), setQuotaCommand(), checkQuotaCommand())
	return cmd
}

// row is one line of a quota: a limit, the use, or both.
type row struct {
	measure tenant.Measure
	limit   string
	used    int64
}

// rows lists the measures that are limited or used, in the order of their names.
func rows(a tenant.Account, defaults tenant.Limits) []row {
	limits := a.Effective(defaults)
	measures := slices.Collect(maps.Keys(limits))
	used := a.Used.Plus(a.Stored)
	for m := range used {
		measures = append(measures, m)
	}
	slices.Sort(measures)
	var all []row
	for _, m := range slices.Compact(measures) {
		limit := unlimited
		if n, is := a.Limit(defaults, m); is {
			limit = strconv.FormatInt(n, 10)
		}
		all = append(all, row{m, limit, used[m]})
	}
	return all
}

// effective returns the limits of all rows that have one.
func effective(a tenant.Account, defaults tenant.Limits) tenant.Limits {
	all := tenant.Limits{}
	for _, r := range rows(a, defaults) {
		if n, is := a.Limit(defaults, r.measure); is {
			all[r.measure] = n
		}
	}
	return all
}

// Words for limits that are no numbers.
const (
	unlimited = "unlimited"
	byDefault = "default"
)

func showQuotaCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "show [PROJECT...]",
		Short:             "Show limits and use; without names, of all projects",
		ValidArgsFunction: projects.Complete(-1),
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			names, err := namesOf(ctx, c, c.Args)
			if err != nil {
				return err
			}
			var accounts []tenant.Account
			for _, name := range names {
				a, err := c.GetQuota(ctx, api.ProjectNamed{Project: name})
				if err != nil {
					return err
				}
				accounts = append(accounts, a)
			}
			if len(c.Args) > 0 {
				if err := checkUnused(ctx, c, accounts); err != nil {
					return err
				}
			}
			defaults, err := c.GetDefaultQuota(ctx)
			if err != nil {
				return err
			}
			return printAccounts(c.Cmd, c, accounts, defaults.Limits)
		}),
	}
}

// checkUnused returns a NotFound error for the first name that has neither a project nor a use.
func checkUnused(ctx context.Context, c *args.Client, accounts []tenant.Account) error {
	for _, a := range accounts {
		if len(a.Used)+len(a.Stored) > 0 || a.Project == croft.DefaultProject {
			continue
		}
		if err := args.UnknownProject(ctx, c, a.Project); err != nil {
			return err
		}
	}
	return nil
}

// namesOf checks the given names, or returns all projects if none are given.
func namesOf(ctx context.Context, c *args.Client, given []string) (names []croft.Project, err error) {
	for _, name := range given {
		if err := croft.Project(name).Check(); err != nil {
			return nil, err
		}
		names = append(names, croft.Project(name))
	}
	if len(given) > 0 {
		return names, nil
	}
	list, err := c.ListProjects(ctx)
	for _, p := range tenant.NewTree(list.Projects).Sorted() {
		names = append(names, p.Name)
	}
	return names, err
}

func printAccounts(cmd *cobra.Command, c *args.Client, accounts []tenant.Account, defaults tenant.Limits) error {
	if c.WantsData() {
		type shown struct {
			tenant.Account

			Effective tenant.Limits `json:"effective"` // the limits that the table shows
		}
		all := []shown{}
		for _, a := range accounts {
			all = append(all, shown{a, effective(a, defaults)})
		}
		return c.PrintData(struct {
			Defaults tenant.Limits `json:"defaults"`
			Projects []shown       `json:"projects"`
		}{defaults, all})
	}
	if len(accounts) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "no project has been created: croft project create makes one, and croft quota show "+
			"NAME shows the use of a name without a project, such as default")
		return nil
	}
	t := out.Table{Color: out.IsColored(cmd.OutOrStdout())}
	t.Head("PROJECT", "RESOURCE", "USED", "LIMIT")
	for _, a := range accounts {
		for _, r := range rows(a, defaults) {
			t.Texts(string(a.Project), string(r.measure), strconv.FormatInt(r.used, 10), r.limit)
		}
	}
	return t.Print(cmd.OutOrStdout())
}

func setQuotaCommand() *cobra.Command {
	var defaults bool
	cmd := &cobra.Command{
		Use:   "set [PROJECT] RESOURCE=LIMIT...",
		Short: "Set limits of a project, or with --default of all projects without their own limits",
		Long: `set sets limits: whole numbers, "unlimited", or "default" for the limit that all
projects have. Limits that are not named stay.`,
		Example: `  croft quota set lab VCPU=20 instances=10
  croft quota set lab VCPU=unlimited instances=default
  croft quota set --default instances=5`,
		RunE: func(cmd *cobra.Command, given []string) error {
			name := given[0]
			if !defaults {
				given = given[1:]
			}
			change, err := parseLimits(given, defaults)
			if err != nil {
				return err
			}
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				if defaults {
					return setDefaults(ctx, cmd, c, change)
				}
				p, err := args.FindProject(ctx, c, croft.Project(name))
				if err != nil {
					return err
				}
				if p, err = c.SetQuota(ctx, api.Limits{ProjectBase: baseOf(p), Limits: change(p.Limits)}); err != nil {
					return err
				}
				return c.Report(p, "the quota of project %s is set", p.Name)
			})
		},
	}
	cmd.Flags().BoolVar(&defaults, "default", false, "set the limits of projects without their own limits")
	return cmd
}

func setDefaults(ctx context.Context, cmd *cobra.Command, c *args.Client,
	change func(tenant.Limits) tenant.Limits) error {
	d, err := c.GetDefaultQuota(ctx)
	if err != nil {
		return err
	}
	d.Limits = change(d.Limits)
	if _, err := c.SetDefaultQuota(ctx, d); err != nil {
		return err
	}
	fmt.Fprintln(cmd.ErrOrStderr(), "the quota of projects without their own limits is set")
	return nil
}

// parseLimits parses texts RESOURCE=LIMIT, and returns a function that applies them to limits. Invalid.
func parseLimits(given []string, defaults bool) (func(tenant.Limits) tenant.Limits, error) {
	if len(given) == 0 {
		return nil, croft.Errorf(croft.Invalid, "no limit is given: write it as VCPU=20")
	}
	set, removed := tenant.Limits{}, []tenant.Measure{}
	for _, text := range given {
		name, value, is := strings.Cut(text, "=")
		m := tenant.Measure(name)
		if err := m.Check(); err != nil {
			return nil, err
		}
		n, err := strconv.ParseInt(value, 10, 64)
		switch {
		case value == byDefault, value == unlimited && defaults:
			removed = append(removed, m)
		case value == unlimited:
			set[m] = tenant.Unlimited
		case !is || err != nil || n < 0:
			return nil, croft.Errorf(croft.Invalid,
				"%q is not a limit: write RESOURCE=LIMIT with a whole number from 0, %s or %s", text, unlimited, byDefault)
		default:
			set[m] = n
		}
	}
	return func(l tenant.Limits) tenant.Limits {
		l = maps.Clone(l)
		if l == nil {
			l = tenant.Limits{}
		}
		maps.Copy(l, set)
		for _, m := range removed {
			delete(l, m)
		}
		return l
	}, nil
}

func checkQuotaCommand() *cobra.Command {
	var repair bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Compare the counted use with the records, at one revision of etcd",
		Long: `check compares the counted use of each project with its records, at one revision of
etcd. It exits with 1 if they differ; --repair counts again. They differ only if a
program of an older version has written records.`,
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			list, err := c.CheckQuotas(ctx)
			if err != nil {
				return err
			}
			found := list.Discrepancies
			if c.WantsData() {
				err = c.PrintData(found)
			} else if len(found) == 0 {
				fmt.Fprintln(c.Cmd.ErrOrStderr(), "the counted use agrees with the records")
			}
			for _, d := range found {
				c.Say("project %s: %s is counted, but the records have %s", d.Project,
					d.Counted, d.Records)
				if repair && err == nil {
					_, err = c.RecountQuota(ctx, api.ProjectNamed{Project: d.Project})
				}
			}
			if err == nil && len(found) > 0 && !repair {
				return fmt.Errorf("%d projects are counted wrongly: count again with --repair", len(found))
			}
			return err
		}),
	}
	cmd.Flags().BoolVar(&repair, "repair", false, "correct wrong counts")
	return cmd
}
