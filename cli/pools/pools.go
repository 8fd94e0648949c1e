// Package pools has the commands for pools and tickets: croft pool and croft pool ticket. They call a manager of pools
// over its API and print its answers.
package pools

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
	"croft/internal/command"
	"croft/internal/out"
	"croft/internal/wording"
	"croft/pool/api"
)

// Command returns the command croft pool, with commands for operators of pools, and serve, which runs their manager.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pool",
		Short: "Manage pools, which keep resources ready and hand them out",
		Long: `A pool keeps resources ready in advance: virtual machines of this cloud, or anything
that shell commands can create. croft serve pool runs the manager, which reads
pools.yaml and hands resources out to tickets (croft pool ticket); the commands here are
for its administrators. With CROFT_URL and a token of a project, list, show, resources,
resource and logs ask the cloud for the pools that the project may use.`,
	}
	for _, sub := range []*cobra.Command{
		listCommand(), showCommand(),
		changeCommand("pause", "Pause a pool: it starts nothing and hands out nothing", (*api.Client).Pause),
		changeCommand("resume", "Resume a paused or drained pool", (*api.Client).Resume),
		changeCommand("drain", "Pause a pool and delete its unused resources", (*api.Client).Drain),
		setCommand(), resourcesCommand(), resourceCommand(), removeCommand(), logsCommand(),
	} {
		addFlags(sub)
		cmd.AddCommand(sub)
	}
	cmd.AddCommand(TicketCommand(), runnerCommand())
	return cmd
}

// nearPool adds the name of a similar pool to a NotFound error.
func nearPool(ctx context.Context, c manager, name string, err error) error {
	return args.Near(name, err, func(offer args.Offer) error {
		all, listed := c.Pools(ctx)
		for _, p := range all {
			offer(p.Name, "")
		}
		return listed
	})
}

func listCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the pools and how many resources they have",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(cmd, func(ctx context.Context, c manager, output string) error {
				all, err := c.Pools(ctx)
				if err != nil {
					return err
				}
				return printPools(cmd.OutOrStdout(), output, all)
			})
		},
	}
}

func printPools(w io.Writer, output string, all []api.Pool) error {
	return out.Print(w, output, all, func(t *out.Table) { poolRows(t, all) })
}

func poolRows(t *out.Table, all []api.Pool) {
	t.Head("POOL", "MODE", "MAX", "UP", "READY", "TAKEN", "STARTING", "RELEASING", "DELETING", "WAITING",
		"START TIME", "SUCCESS")
	for _, p := range all {
		row := []out.Cell{{Text: p.Name}, modeCell(p)}
		if p.Stock == nil { // another project's shared pool
			row = append(row, unknown, unknown, out.Cell{Text: strconv.Itoa(p.Free)})
			t.Row(append(row, slices.Repeat([]out.Cell{unknown}, 7)...)...)
			continue
		}
		deleting := p.DeleteRequest + p.Deleting
		for _, n := range []int{p.Max, p.Up, p.Ready, p.Taken, p.Starting, p.Releasing, deleting, p.Waiting} {
			row = append(row, out.Cell{Text: strconv.Itoa(n)})
		}
		took, rate := startTexts(p.Stats)
		t.Row(append(row, out.Cell{Text: took}, out.Cell{Text: rate})...)
	}
}

// unknown replaces values that the caller may not see.
var unknown = out.Cell{Text: "-"}

func modeCell(p api.Pool) out.Cell {
	switch {
	case p.Mode != "active":
		return out.Cell{Text: p.Mode, Color: out.Yellow}
	case p.Stock != nil && !p.BackOff.IsZero():
		return out.Cell{Text: "failing", Color: out.Red}
	}
	return out.Cell{Text: p.Mode, Color: out.Green}
}

// startTexts returns the average duration and success rate of starts.
func startTexts(s api.Stats) (took, rate string) {
	took, rate = "-", "-"
	if !s.Succeeded.IsZero() {
		took = wording.Exact(time.Duration(s.StartTime).Round(time.Millisecond))
	}
	if !s.Attempted.IsZero() {
		rate = fmt.Sprintf("%.0f%%", 100*s.SuccessRate)
	}
	return took, rate
}

func showCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "show POOL",
		Short:             "Show a pool",
		ValidArgsFunction: completePoolNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(cmd, func(ctx context.Context, c manager, output string) error {
				p, err := c.Pool(ctx, args[0])
				if err != nil {
					return nearPool(ctx, c, args[0], err)
				}
				return out.Print(cmd.OutOrStdout(), output, p, func(t *out.Table) { showPool(t, p) })
			})
		},
	}
}

func showPool(t *out.Table, p api.Pool) {
	line := func(name, value string) {
		if value != "" {
			t.Row(out.Cell{Text: name, Color: out.Bold}, out.Cell{Text: value})
		}
	}
	line("pool", p.Name)
	line("description", p.Description)
	line("project", p.Project)
	line("mode", modeCell(p).Text)
	line("tags", tagList(p.Tags))
	line("on demand", tagList(p.OnDemand))
	if p.Stock == nil { // another project's shared pool
		line("warm", fmt.Sprintf("%d never used", p.Free))
		return
	}
	took, rate := startTexts(p.Stats)
	most, warm := strconv.Itoa(p.Max), strconv.Itoa(p.MaxPrealloc)
	if f := p.InFile; f != nil {
		most += fmt.Sprintf(" (%d in the file)", f.Max)
		warm += fmt.Sprintf(" (%d in the file)", f.MaxPrealloc)
	}
	line("resources", fmt.Sprintf("%d up (%d ready, %d taken), %d starting, %d releasing, %d deleting; at most %s",
		p.Up, p.Ready, p.Taken, p.Starting, p.Releasing, p.DeleteRequest+p.Deleting, most))
	if p.GivenUp > 0 {
		line("given up", fmt.Sprintf("%d, whose start failed; deleting them is retried", p.GivenUp))
	}
	line("warm", fmt.Sprintf("%d never used, %s wanted", p.Free, warm))
	line("waiting tickets", strconv.Itoa(p.Waiting))
	line("starts", fmt.Sprintf("%d, of which %d failed; lately %s succeed, in %s",
		p.Stats.Starts, p.Stats.Failures, rate, took))
	line("tickets served", strconv.FormatInt(p.Stats.Served, 10))
	line("last start", stamp(p.Stats.Succeeded))
	line("no start before", stamp(p.BackOff))
	line("last error", p.LastError)
	if f := p.LastFailure; f != nil && p.LastError == "" {
		why := cmp.Or(f.Error, "an admin sees why")
		line("last failure", fmt.Sprintf("resource %d at %s: %s", f.Resource, stamp(f.At), why))
	}
}

func tagList(tags []api.Tag) string {
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

func setCommand() *cobra.Command {
	var most, warm int
	var reset bool
	cmd := &cobra.Command{
		Use:   "set POOL --max N --warm N | --reset",
		Args:  command.Count(1, 1),
		Short: "Change the size of a pool",
		Long: `set replaces the sizes that pools.yaml gives the pool, until --reset: --max is the number
of resources that the pool may have, --warm the number that it keeps ready. Both are
kept when the manager restarts or the file changes; croft pool show shows them beside
those of the file. A smaller pool deletes nothing that a ticket has.`,
		ValidArgsFunction: completePoolNames,
	}
	cmd.Flags().IntVar(&most, "max", 0, "the most resources that the pool may have (`number`)")
	cmd.Flags().IntVar(&warm, "warm", 0, "keep this `number` of resources ready")
	cmd.Flags().BoolVar(&reset, "reset", false, "return to the sizes in the file")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var size api.Size
		if cmd.Flags().Changed("max") {
			size.Max = api.To(most)
		}
		if cmd.Flags().Changed("warm") {
			size.MaxPrealloc = api.To(warm)
		}
		if reset == (size.Max.Given || size.MaxPrealloc.Given) {
			return croft.Errorf(croft.Invalid, "give --max, --warm or both, or else --reset")
		}
		if reset {
			back := api.Change{Given: true, Reset: true}
			size = api.Size{Max: back, MaxPrealloc: back}
		}
		return ask(cmd, func(ctx context.Context, c manager, output string) error {
			p, err := c.Resize(ctx, args[0], size)
			if err != nil {
				return nearPool(ctx, c, args[0], err)
			}
			if output == out.FormatText {
				return nil
			}
			return printPools(cmd.OutOrStdout(), output, []api.Pool{p})
		})
	}
	return cmd
}

func changeCommand(verb, short string,
	change func(*api.Client, context.Context, string) (api.Pool, error)) *cobra.Command {
	return &cobra.Command{
		Use:               verb + " POOL",
		Short:             short,
		ValidArgsFunction: completePoolNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return operate(cmd, func(ctx context.Context, c *api.Client, output string) error {
				p, err := change(c, ctx, args[0])
				if err != nil {
					return nearPool(ctx, c, args[0], err)
				}
				if output == out.FormatText {
					return nil
				}
				return printPools(cmd.OutOrStdout(), output, []api.Pool{p})
			})
		},
	}
}
