package instances

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/out"
)

func consoleCommand() *cobra.Command {
	var follow, log bool
	cmd := &cobra.Command{
		Use:   "console UUID|NAME",
		Short: "Type at the guest's serial console",
		Long: `console attaches this terminal to the guest's serial console, through the agent of
its host; Ctrl-] leaves. One at a time can be attached.

Where stdin or stdout is no terminal, and with --log or --follow, it prints what the
guest wrote, as schedule logs does.`,
		Args:              args.Count(1, 1),
		ValidArgsFunction: args.CompleteInstances(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			live := !follow && !log && out.IsTerminal(cmd.InOrStdin()) && out.IsTerminal(cmd.OutOrStdout())
			return onConsole(cmd, args[0], func(ctx context.Context, c *session, st croft.Status) error {
				if live {
					return c.attach(ctx, cmd, st)
				}
				return c.console(ctx, cmd.OutOrStdout(), st, follow)
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false,
		"print what the guest wrote and go on with what it writes, until interrupted")
	cmd.Flags().BoolVar(&log, "log", false, "print what the guest wrote")
	return cmd
}

func logsCommand() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use:               "logs UUID|NAME",
		Short:             "Print what the guest wrote to its serial console",
		Args:              args.Count(1, 1),
		ValidArgsFunction: args.CompleteInstances(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return onConsole(cmd, args[0], func(ctx context.Context, c *session, st croft.Status) error {
				return c.console(ctx, cmd.OutOrStdout(), st, follow)
			})
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on printing what the guest writes, until interrupted")
	return cmd
}

// onConsole calls do with the instance of the console.
func onConsole(cmd *cobra.Command, idOrName string, do func(context.Context, *session, croft.Status) error) error {
	return within(cmd, func(ctx context.Context, c *session) error {
		st, err := c.Instance(ctx, idOrName)
		if err != nil {
			return err
		}
		return do(ctx, c, st)
	})
}

// console copies the guest's output to w, with follow also new output.
func (c *session) console(ctx context.Context, w io.Writer, st croft.Status, follow bool) error {
	return c.Consoles.Log(ctx, st, follow, func(from io.Reader) error { return out.ShowText(w, from) })
}
