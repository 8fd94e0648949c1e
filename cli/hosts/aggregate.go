package hosts

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/control/api"
	"croft/internal/out"
	"croft/internal/plain"
)

// AggregateCommand returns the command croft aggregate.
func AggregateCommand() *cobra.Command {
	return verb.CloudGroup("aggregate", "Manage aggregates: named sets of hosts that requests can select",
		`aggregate manages named sets of hosts, for example hosts with fast disks, hosts of one
customer, or hosts to be replaced. A host may be in any number of them. Requests select
by them (schedule --in, --in-any and --not-in); tenants can name only public ones. These
flags also accept sites, rows and racks. Groups are unrelated: they are instances that
are kept apart or together.`,
		`  croft aggregate create ssd host1 host2 --public --note "NVMe disks"
  croft aggregate change ssd --add host3 --remove host1
  schedule VCPU:1,MEMORY_MB:256,DISK_GB:1 --in ssd`,
		aggregateCreate(), aggregates.List("List the aggregates"), aggregateShow(), aggregateChange(),
		aggregates.Remove("Remove aggregates; their hosts stay",
			func(ctx context.Context, c *args.Client, name string) error {
				return c.RemoveAggregate(ctx, api.AggregateRemoval{Name: name})
			}))
}

var aggregates = verb.Noun[croft.Aggregate]{
	Name: "aggregate",
	All: func(ctx context.Context, c *args.Client) ([]croft.Aggregate, error) {
		list, err := c.ListAggregates(ctx)
		return list.Aggregates, err
	},
	Word: func(a croft.Aggregate) (string, string) { return a.Name, a.Note },
	Head: []string{"NAME", "PUBLIC", "HOSTS", "NOTE"},
	Row: func(a croft.Aggregate) []out.Cell {
		return verb.Texts(a.Name, verb.YesNo(a.Public), howMany(a), a.Note)
	},
}

func hostCount(n int) string {
	if n == 1 {
		return "1 host"
	}
	return fmt.Sprintf("%d hosts", n)
}

func aggregateCreate() *cobra.Command {
	var a api.NewAggregate
	cmd := &cobra.Command{
		Use:   "create NAME [HOST...]",
		Short: "Create an aggregate of these hosts",
		PreRunE: func(_ *cobra.Command, given []string) error {
			a.Name, a.Hosts = given[0], given[1:]
			return croft.Aggregate{Name: a.Name, Note: a.Note}.Check()
		},
		RunE: verb.Run(func(ctx context.Context, c *args.Client) (err error) {
			made, err := c.CreateAggregate(ctx, a)
			if err != nil {
				return err
			}
			return c.Report(made, "aggregate %s has %s", made.Name, hostCount(len(made.Hosts)))
		}),
		ValidArgsFunction: func(cmd *cobra.Command, given []string, prefix string) ([]string,
			cobra.ShellCompDirective) {
			if len(given) == 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return args.CompleteHosts(cmd, nil, prefix)
		},
	}
	cmd.Flags().StringVar(&a.Note, "note", "", "`text` for people")
	cmd.Flags().BoolVar(&a.Public, "public", false, "tenants see its name and may select by it")
	return cmd
}

// howMany returns the number of hosts, if the caller may see them.
func howMany(a croft.Aggregate) string {
	if a.Generation == 0 {
		return "-"
	}
	return fmt.Sprint(len(a.Hosts))
}

func aggregateShow() *cobra.Command {
	return &cobra.Command{
		Use:               "show NAME",
		Short:             "Show an aggregate and its hosts",
		ValidArgsFunction: aggregates.Complete(1),
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			a, err := c.GetAggregate(ctx, api.AggregateNamed{Name: c.Args[0]})
			if err != nil {
				return err
			}
			var names []string
			if !c.WantsData() {
				if names, err = hostNames(ctx, c, a); err != nil {
					return err
				}
			}
			return c.Print(a, func(t *out.Table) {
				t.Head(aggregates.Head...)
				t.Texts(a.Name, verb.YesNo(a.Public), out.OrDash(strings.Join(names, " ")), plain.Line(a.Note))
			})
		}),
	}
}

// hostNames returns the names of an aggregate's hosts, sorted.
func hostNames(ctx context.Context, c *args.Client, a croft.Aggregate) ([]string, error) {
	if len(a.Hosts) == 0 {
		return nil, nil
	}
	known, err := c.HostNames(ctx)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, id := range a.Hosts {
		names = append(names, plain.Line(cmp.Or(known[id], string(id))))
	}
	slices.Sort(names)
	return names, nil
}

func aggregateChange() *cobra.Command {
	var change api.AggregateChange
	var note string
	var public bool
	cmd := &cobra.Command{
		Use:   "change NAME",
		Short: "Add hosts to an aggregate, remove hosts from it, or change its note",
		Long: `change makes all of the changes or none. Instances stay where they are, even if their
request named the aggregate: aggregates are used only when a host is chosen.`,
		ValidArgsFunction: aggregates.Complete(1),
		RunE: func(cmd *cobra.Command, given []string) error {
			change.Name = given[0]
			if cmd.Flags().Changed("note") {
				change.Note = &note
			}
			if cmd.Flags().Changed("public") {
				change.Public = &public
			}
			if change.Note == nil && change.Public == nil && len(change.AddHosts)+len(change.RemoveHosts) == 0 {
				return croft.Errorf(croft.Invalid,
					"no change is given: give --add, --remove, --note or --public")
			}
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				a, err := c.ChangeAggregate(ctx, change)
				if err != nil {
					return err
				}
				return c.Report(a, "aggregate %s has %s", a.Name, hostCount(len(a.Hosts)))
			})
		},
	}
	cmd.Flags().StringSliceVar(&change.AddHosts, "add", nil, "`host` to add; repeat for more")
	cmd.Flags().StringSliceVar(&change.RemoveHosts, "remove", nil, "`host` to remove; repeat for more")
	cmd.Flags().StringVar(&note, "note", "", "`text` for people")
	cmd.Flags().BoolVar(&public, "public", false,
		"tenants see its name and may select by it; --public=false: they do not")
	return cmd
}
