// Package clusters has the commands about clusters and what they are built by: croft cluster, croft site, croft
// credential and croft appliance. Results go to stdout and words to stderr.
package clusters

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/out"
	"croft/cluster"
	"croft/control/api"
	"croft/internal/nearest"
)

// Command makes the command croft cluster.
func Command() *cobra.Command {
	cmd := group("cluster", "Ask for clusters of machines, here or at other sites", `cluster asks for clusters: a master and any number of slaves that an appliance describes,
such as slurm. A site builds it: the hosts of this cloud (local), or an OpenStack with
Heat, for which you need a credential. Which site, croft chooses among those that have
room; croft cluster explain says which it would be, and why not another.

Whoever asks again for the same appliance gets the cluster that is there, if it is large
enough (--no-reuse: a new one). Nobody gets that of another user.`, `  croft cluster create web slurm --slaves 3
  croft cluster explain web slurm --slaves 3
  croft cluster resize web 5
  croft cluster ssh web
  croft cluster delete web`)
	cmd.AddCommand(createCommand(), explainCommand(), listCommand(), showCommand(), eventsCommand(), setCommand(),
		resizeCommand(), growCommand(), shrinkCommand(), deleteCommand(), useCommand(), accountCommand(), sshCommand())
	args.CompleteFlag(cmd, "output", out.Formats)
	return cmd
}

// group makes a command that only has subcommands.
func group(use, short, long, example string) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short, Long: long, Example: example,
		Args: func(cmd *cobra.Command, given []string) error {
			if len(given) > 0 {
				return args.OnlySubcommands(cmd, given)
			}
			words := args.Subcommands(cmd)
			return croft.Errorf(croft.Invalid, "usage: %s %s or %s", cmd.CommandPath(),
				strings.Join(words[:len(words)-1], ", "), words[len(words)-1])
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	args.AddCloudFlags(cmd.PersistentFlags())
	return cmd
}

// isData reports whether the result is for machines.
func isData(c *args.Client) bool {
	return c.Settings.Output == out.FormatJSON || c.Settings.Output == out.FormatYAML
}

// print prints a result for machines, or else as table does.
func print(cmd *cobra.Command, c *args.Client, data any, table func(*out.Table)) error {
	if isData(c) {
		return out.PrintData(cmd.OutOrStdout(), c.Settings.Output, data)
	}
	t := out.Table{Color: out.IsColored(cmd.OutOrStdout())}
	table(&t)
	return t.Print(cmd.OutOrStdout())
}

// told says what was done, or prints the result for machines.
func told(cmd *cobra.Command, c *args.Client, data any, format string, words ...any) error {
	if isData(c) {
		return out.PrintData(cmd.OutOrStdout(), c.Settings.Output, data)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), format+"\n", words...)
	return nil
}

// removals removes what is named, and says so.
func removals(cmd *cobra.Command, given []string, what string, remove func(context.Context, *args.Client, string) error,
) error {
	return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
		var errs []error
		for _, name := range given {
			err := remove(ctx, c, name)
			if errs = append(errs, err); err == nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s %s is removed\n", what, name)
			}
		}
		return errors.Join(errs...)
	})
}

// completing completes names of what list offers, as the first argument, or any number of them.
func completing(most int, list func(context.Context, *args.Client, args.Offer) error) cobra.CompletionFunc {
	return func(cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
		if most >= 0 && len(given) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return args.StoredNames(cmd, given, prefix, list), cobra.ShellCompDirectiveNoFileComp
	}
}

func offerClusters(ctx context.Context, c *args.Client, offer args.Offer) error {
	all, err := c.Clusters.List(ctx, c.Project, cluster.Filter{})
	for _, one := range all {
		offer(one.Name, strings.ToLower(string(one.State))+", "+one.Appliance)
	}
	return err
}

// find reads a cluster. NotFound has the nearest name.
func find(ctx context.Context, c *args.Client, idOrName string) (cluster.Cluster, error) {
	have, err := c.Clusters.Find(ctx, c.Project, idOrName)
	return have, near(err, idOrName, func() (names []string) {
		all, _ := c.Clusters.List(ctx, c.Project, cluster.Filter{}) // the hint is optional
		for _, one := range all {
			names = append(names, one.Name)
		}
		return names
	})
}

// near adds the nearest of the known names to a NotFound error.
func near(err error, name string, known func() []string) error {
	if !errors.Is(err, croft.NotFound) || strings.Contains(err.Error(), "did you mean") {
		return err
	}
	if hint := nearest.Hint(name, known()); hint != "" {
		return croft.Errorf(croft.NotFound, "%w%s", err, hint)
	}
	return err
}

func listCommand() *cobra.Command {
	var f cluster.Filter
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the clusters of the project",
		Args:    args.Count(0, 0),
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
				all, err := c.Clusters.List(ctx, c.Project, f)
				if err != nil {
					return err
				}
				shown := []api.Cluster{} // never null
				for _, one := range all {
					shown = append(shown, api.ClusterOf(one))
				}
				return print(cmd, c, shown, func(t *out.Table) {
					t.Head("NAME", "STATE", "APPLIANCE", "SITE", "HOSTS", "MASTER", "USER", "WHAT NOW")
					for _, one := range all {
						t.Row(out.Cell{Text: one.Name}, state(one.State), out.Cell{Text: one.Appliance},
							out.Cell{Text: out.OrDash(one.Site)}, out.Cell{Text: howMany(one)},
							out.Cell{Text: out.OrDash(one.MasterIP)}, out.Cell{Text: one.User},
							out.Cell{Text: out.OrDash(now(one))})
					}
				})
			})
		},
	}
	cmd.Flags().StringVar((*string)(&f.State), "state", "", "only those in this `state`")
	cmd.Flags().StringVar(&f.Appliance, "appliance", "", "only those of this `appliance`")
	cmd.Flags().StringVar(&f.Site, "site", "", "only those at this `site`")
	return cmd
}

// state is a state with its color.
func state(s cluster.State) out.Cell {
	colors := map[cluster.State]out.Cell{cluster.Ready: {Color: out.Green}, cluster.Failed: {Color: out.Red},
		cluster.Degraded: {Color: out.Yellow}}
	cell := colors[s]
	cell.Text = string(s)
	return cell
}

// howMany says how many hosts are ready of those that are wanted.
func howMany(one cluster.Cluster) string {
	ready := 0
	for _, m := range one.Members {
		if m.State == cluster.MemberReady {
			ready++
		}
	}
	return fmt.Sprintf("%d/%d", ready, 1+one.Slaves)
}

// now says what happens to a cluster, or is wrong with it.
func now(one cluster.Cluster) string {
	if one.Error != nil && one.State != cluster.Building {
		return one.Error.Message
	}
	return one.Step
}

func showCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show UUID|NAME",
		Short: "Show a cluster, its hosts and its uses",
		Long: `show shows a cluster, for 24 hours after its end too, by its UUID. With -o json or yaml it
shows everything that the API tells, without secrets.`,
		Args:              args.Count(1, 1),
		ValidArgsFunction: completing(1, offerClusters),
		RunE: func(cmd *cobra.Command, given []string) error {
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				have, err := find(ctx, c, given[0])
				if err != nil {
					return err
				}
				return show(cmd, c, have)
			})
		},
	}
}

func eventsCommand() *cobra.Command {
	var consoles bool
	cmd := &cobra.Command{
		Use:   "events UUID|NAME",
		Short: "List what happened to a cluster",
		Long: `events lists what happened to a cluster, oldest first. Of hosts that failed, the ends of
their consoles are kept: --console prints them.`,
		Args:              args.Count(1, 1),
		ValidArgsFunction: completing(1, offerClusters),
	}
	cmd.Flags().BoolVar(&consoles, "console", false, "print what hosts that failed said on their consoles, too")
	cmd.RunE = func(cmd *cobra.Command, given []string) error {
		return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
			all, err := c.Clusters.Events(ctx, c.Project, given[0])
			if err != nil {
				return err
			}
			err = print(cmd, c, append([]cluster.Event{}, all...), func(t *out.Table) { eventRows(t, all) })
			if err != nil || !consoles || isData(c) {
				return err
			}
			return printConsoles(cmd, all)
		})
	}
	return cmd
}
