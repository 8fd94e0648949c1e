package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/out"
	poolclient "croft/pool/api"
)

// poolCommand looks after pools, and runs their manager.
func poolCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pool",
		Short: "Keep resources warm and hand them out: the manager, and its pools",
		Long: `A pool keeps resources ready before anybody asks: virtual machines of this cloud, or
whatever shell commands can make. croft pool serve runs the manager, which reads
pools.yaml and hands resources out to tickets (croft ticket); the other commands here
are for those who look after it.`,
		Args: args.OnlySubcommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, sub := range []*cobra.Command{
		poolListCommand(), poolShowCommand(),
		poolChangeCommand("pause", "Have a pool start nothing and hand out nothing", (*poolclient.Client).Pause),
		poolChangeCommand("resume", "Have a paused or drained pool go on", (*poolclient.Client).Resume),
		poolChangeCommand("drain", "Pause a pool and have it delete what nobody has", (*poolclient.Client).Drain),
		poolResourcesCommand(), poolResourceCommand(), poolDeleteCommand(), poolLogsCommand(),
	} {
		addPoolClientFlags(sub)
		cmd.AddCommand(sub)
	}
	cmd.AddCommand(poolServeCommand(), poolTokenCommand())
	return cmd
}

func poolListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the pools and how many resources they have",
		Args:  args.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return askPools(cmd, func(ctx context.Context, c *poolclient.Client, output string) error {
				all, err := c.Pools(ctx)
				if err != nil {
					return err
				}
				return printPools(cmd.OutOrStdout(), output, all)
			})
		},
	}
}

func printPools(w io.Writer, output string, all []poolclient.Pool) error {
	if output == out.FormatJSON || output == out.FormatYAML {
		return out.PrintData(w, output, all)
	}
	t := &out.Table{Color: out.IsColored(w)}
	t.Head("POOL", "MODE", "MAX", "UP", "READY", "TAKEN", "STARTING", "RELEASING", "DELETING", "WAITING", "START TIME", "SUCCESS")
	for _, p := range all {
		row := []out.Cell{{Text: p.Name}, poolMode(p)}
		for _, n := range []int{p.Max, p.Up, p.Ready, p.Taken, p.Starting, p.Releasing, p.DeleteRequest + p.Deleting, p.Waiting} {
			row = append(row, out.Cell{Text: strconv.Itoa(n)})
		}
		took, rate := startTexts(p.Stats)
		t.Row(append(row, out.Cell{Text: took}, out.Cell{Text: rate})...)
	}
	return t.Print(w)
}

func poolMode(p poolclient.Pool) out.Cell {
	switch {
	case p.Mode != "active":
		return out.Cell{Text: p.Mode, Color: out.Yellow}
	case !p.BackOff.IsZero():
		return out.Cell{Text: "failing", Color: out.Red}
	}
	return out.Cell{Text: p.Mode, Color: out.Green}
}

// startTexts are the average time and success of starts.
func startTexts(s poolclient.Stats) (took, rate string) {
	took, rate = "-", "-"
	if !s.Succeeded.IsZero() {
		took = time.Duration(s.StartTime).Round(time.Millisecond).String()
	}
	if !s.Attempted.IsZero() {
		rate = fmt.Sprintf("%.0f%%", 100*s.SuccessRate)
	}
	return took, rate
}

func poolShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "show POOL",
		Short:             "Show a pool",
		Args:              args.Count(1, 1),
		ValidArgsFunction: completePoolNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return askPools(cmd, func(ctx context.Context, c *poolclient.Client, output string) error {
				p, err := c.Pool(ctx, args[0])
				if err != nil {
					return err
				}
				return printPool(cmd.OutOrStdout(), output, p)
			})
		},
	}
}

func printPool(w io.Writer, output string, p poolclient.Pool) error {
	if output == out.FormatJSON || output == out.FormatYAML {
		return out.PrintData(w, output, p)
	}
	t := &out.Table{Color: out.IsColored(w)}
	line := func(name, value string) {
		if value != "" {
			t.Row(out.Cell{Text: name, Color: out.Bold}, out.Cell{Text: value})
		}
	}
	took, rate := startTexts(p.Stats)
	line("pool", p.Name)
	line("description", p.Description)
	line("mode", poolMode(p).Text)
	line("tags", tagTexts(p.Tags))
	line("on demand", tagTexts(p.OnDemand))
	line("resources", fmt.Sprintf("%d up (%d ready, %d taken), %d starting, %d releasing, %d deleting; at most %d",
		p.Up, p.Ready, p.Taken, p.Starting, p.Releasing, p.DeleteRequest+p.Deleting, p.Max))
	line("warm", fmt.Sprintf("%d never used, %d wanted", p.Free, p.MaxPrealloc))
	line("waiting tickets", strconv.Itoa(p.Waiting))
	line("starts", fmt.Sprintf("%d, of which %d failed; lately %s succeed, in %s", p.Stats.Starts, p.Stats.Failures, rate, took))
	line("tickets served", strconv.FormatInt(p.Stats.Served, 10))
	line("last start", stamp(p.Stats.Succeeded))
	line("no start before", stamp(p.BackOff))
	line("last error", p.LastError)
	if f := p.LastFailure; f != nil && p.LastError == "" {
		line("last failure", fmt.Sprintf("resource %d at %s: %s", f.Resource, stamp(f.At), cmp.Or(f.Error, "an admin sees why")))
	}
	return t.Print(w)
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format(time.DateTime)
}

func tagTexts(tags []poolclient.Tag) string {
	var all []string
	for _, t := range tags {
		text := t.Name
		if t.Priority != 0 {
			text += ":" + strconv.Itoa(t.Priority)
		}
		all = append(all, text)
	}
	return strings.Join(all, ", ")
}

func poolChangeCommand(verb, short string, change func(*poolclient.Client, context.Context, string) (poolclient.Pool, error)) *cobra.Command {
	return &cobra.Command{
		Use:               verb + " POOL",
		Short:             short,
		Args:              args.Count(1, 1),
		ValidArgsFunction: completePoolNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return askPools(cmd, func(ctx context.Context, c *poolclient.Client, output string) error {
				p, err := change(c, ctx, args[0])
				if err != nil || output == out.FormatText {
					return err
				}
				return printPools(cmd.OutOrStdout(), output, []poolclient.Pool{p})
			})
		},
	}
}

func poolResourcesCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:               "resources [POOL]",
		Short:             "List the resources",
		Args:              args.Count(0, 1),
		ValidArgsFunction: completePoolNames,
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "list those that ended too, as far as they are remembered")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return askPools(cmd, func(ctx context.Context, c *poolclient.Client, output string) error {
			of := strings.Join(args, "")
			if of != "" {
				if _, err := c.Pool(ctx, of); err != nil {
					return err
				}
			}
			list, err := c.Resources(ctx, of, all)
			if err != nil {
				return err
			}
			return printResources(cmd.OutOrStdout(), output, list)
		})
	}
	return cmd
}

func printResources(w io.Writer, output string, all []poolclient.Resource) error {
	if output == out.FormatJSON || output == out.FormatYAML {
		return out.PrintData(w, output, all)
	}
	t := &out.Table{Color: out.IsColored(w)}
	t.Head("ID", "NAME", "POOL", "STATE", "TICKET", "USES", "CREATED", "NOTE")
	for _, r := range all {
		ticket, uses := "-", r.Releases
		if r.Ticket != 0 {
			ticket = strconv.FormatInt(r.Ticket, 10)
			uses++
		}
		note := r.Reason
		if r.Error != "" {
			note = strings.TrimPrefix(note+": "+r.Error, ": ")
		}
		t.Row(out.Cell{Text: strconv.FormatInt(r.ID, 10)}, out.Cell{Text: r.Name}, out.Cell{Text: r.Pool}, resourceState(r), out.Cell{Text: ticket},
			out.Cell{Text: strconv.Itoa(uses)}, out.Cell{Text: stamp(r.Created)}, out.Cell{Text: note})
	}
	return t.Print(w)
}

func resourceState(r poolclient.Resource) out.Cell {
	switch {
	case r.State == "UP" && r.Ticket != 0:
		return out.Cell{Text: "taken", Color: out.Green}
	case r.State == "UP" && r.Failures > 0:
		return out.Cell{Text: "failing", Color: out.Red}
	case r.State == "UP":
		return out.Cell{Text: "ready", Color: out.Green}
	case r.State == "ENDED":
		return out.Cell{Text: "ended"}
	}
	return out.Cell{Text: strings.ToLower(r.State), Color: out.Yellow}
}

func poolResourceCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "resource ID|NAME",
		Short:             "Show a resource, with what it hands out",
		Args:              args.Count(1, 1),
		ValidArgsFunction: completeResources,
		RunE: func(cmd *cobra.Command, args []string) error {
			return askPools(cmd, func(ctx context.Context, c *poolclient.Client, output string) error {
				r, err := c.Resource(ctx, args[0])
				if err != nil {
					return err
				}
				if output == out.FormatText {
					output = out.FormatYAML
				}
				if out.IsTable(output) {
					return printResources(cmd.OutOrStdout(), output, []poolclient.Resource{r})
				}
				return out.PrintData(cmd.OutOrStdout(), output, r)
			})
		},
	}
}

func poolDeleteCommand() *cobra.Command {
	var all, unused bool
	cmd := &cobra.Command{
		Use:   "delete ID|NAME... | --all | --unused",
		Short: "Have resources deleted; pools start others in their place",
		Long: `delete has resources deleted, whoever has them: an open ticket with one fails. One that
is being started is stopped. It prints the numbers of the resources and does not wait
for their end (croft pool resources shows it).`,
		Args:              args.Count(0, -1),
		ValidArgsFunction: completeResources,
	}
	cmd.Flags().BoolVar(&all, "all", false, "delete all that are up")
	cmd.Flags().BoolVar(&unused, "unused", false, "delete all that are up and that nobody has")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if given := len(args) > 0; given == (all || unused) || all && unused {
			return croft.Errorf(croft.Invalid, "usage: %s", cmd.UseLine())
		}
		return askPools(cmd, func(ctx context.Context, c *poolclient.Client, output string) error {
			d, err := c.Delete(ctx, whichOf(all, unused), args...)
			if err != nil {
				return err
			}
			if output == out.FormatJSON || output == out.FormatYAML {
				return out.PrintData(cmd.OutOrStdout(), output, d.Deleted)
			}
			for _, id := range d.Deleted {
				fmt.Fprintln(cmd.OutOrStdout(), id)
			}
			return nil
		})
	}
	return cmd
}

// whichOf is the API's word for these flags.
func whichOf(all, unused bool) string {
	switch {
	case all:
		return "all"
	case unused:
		return "unused"
	}
	return "none"
}

func poolLogsCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "logs ID|NAME",
		Short:             "Print what the commands of a resource printed",
		Args:              args.Count(1, 1),
		ValidArgsFunction: completeResources,
		RunE: func(cmd *cobra.Command, args []string) error {
			return askPools(cmd, func(ctx context.Context, c *poolclient.Client, _ string) error {
				text, err := c.Logs(ctx, args[0])
				if err != nil {
					return err
				}
				_, err = cmd.OutOrStdout().Write(text)
				return err
			})
		},
	}
}

func completePoolNames(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completePools(cmd, args, prefix, func(ctx context.Context, c *poolclient.Client) (all []string, err error) {
		pools, err := c.Pools(ctx)
		for _, p := range pools {
			all = append(all, cobra.CompletionWithDesc(p.Name, fmt.Sprintf("%d ready, %d taken", p.Ready, p.Taken)))
		}
		return all, err
	})
}

func completeResources(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 && !slices.Contains([]string{"delete"}, cmd.Name()) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return completePools(cmd, args, prefix, func(ctx context.Context, c *poolclient.Client) (all []string, err error) {
		resources, err := c.Resources(ctx, "", false)
		for _, r := range resources {
			all = append(all, cobra.CompletionWithDesc(r.Name, resourceState(r).Text))
		}
		return all, err
	})
}
