package clusters

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/cluster"
	"croft/control/api"
	"croft/internal/nearest"
	"croft/internal/out"
)

func listCommand() *cobra.Command {
	var f api.ClusterFilter
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the clusters of the project",
		RunE: func(cmd *cobra.Command, _ []string) error {
			var states []string
			for _, s := range cluster.States {
				states = append(states, string(s))
			}
			f.State = cluster.State(strings.ToUpper(string(f.State)))
			if f.State != "" && !slices.Contains(states, string(f.State)) {
				return croft.Errorf(croft.Invalid, "--state %q is not one of %s%s", f.State, strings.Join(states, ", "),
					nearest.Hint(string(f.State), states))
			}
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				f.Project = c.Project
				list, err := c.ListClusters(ctx, f)
				if err != nil {
					return err
				}
				c.NoteUnknownProject(cmd, len(list.Clusters))
				return clusters.Print(c, list.Clusters)
			})
		},
	}
	cmd.Flags().StringVar((*string)(&f.State), "state", "", "only those in this `state`")
	cmd.Flags().StringVar(&f.Appliance, "appliance", "", "only those of this `appliance`")
	cmd.Flags().StringVar(&f.Site, "site", "", "only those at this `site`")
	return cmd
}

func showCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show UUID|NAME",
		Short: "Show a cluster, its hosts and its uses",
		Long: `show shows a cluster, for 24 hours after its end too, by its UUID. With -o json or yaml it
shows everything, and to the user of the cluster also its secret outputs: each of these reads
is in the action log, as with croft cluster output.`,
		ValidArgsFunction: clusters.Complete(1),
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			have, err := find(ctx, c, c.Args[0])
			if err != nil {
				return err
			}
			if c.WantsData() {
				if err := readSecretOutputs(ctx, c.Cmd, c, &have); err != nil {
					return err
				}
			}
			return show(c.Cmd, c, have)
		}),
	}
}

func eventsCommand() *cobra.Command {
	var consoles bool
	cmd := &cobra.Command{
		Use:   "events UUID|NAME",
		Short: "List what happened to a cluster",
		Long: `events lists what happened to a cluster, oldest first. Of hosts that failed, the ends of
their consoles are kept: --console prints them.`,
		ValidArgsFunction: clusters.Complete(1),
	}
	cmd.Flags().BoolVar(&consoles, "console", false, "print what hosts that failed said on their consoles, too")
	cmd.RunE = verb.Run(func(ctx context.Context, c *args.Client) error {
		list, err := c.ListClusterEvents(ctx, named(c, c.Args[0]))
		if err != nil {
			return err
		}
		err = c.Print(list.Events, func(t *out.Table) { eventRows(t, list.Events) })
		if err != nil || !consoles || c.WantsData() {
			return err
		}
		return printConsoles(c.Cmd, list.Events)
	})
	return cmd
}
