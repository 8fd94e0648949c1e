package instances

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/out"
)

// showCommand shows instances, even those named like a subcommand.
func showCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show UUID|NAME...",
		Short: "Show the address of an instance, or with -o everything",
		Long: `show prints the address of an instance, or with -o table, json or yaml all that is
known of it: the record, the order, what its host last saw, the host.`,
		Args:              args.Count(1, -1),
		ValidArgsFunction: args.CompleteInstances(-1),
		RunE:              show,
	}
	args.AddWaitFlags(cmd.Flags(), "the instance runs and has an address")
	return cmd
}

func show(cmd *cobra.Command, args []string) error {
	return within(cmd, func(ctx context.Context, c *session) error {
		var all []croft.Status
		var errs []error
		for _, arg := range args {
			st, err := c.look(ctx, cmd, arg)
			if err != nil {
				errs = append(errs, err)
				continue
			}
			all = append(all, st)
		}
		if c.Settings.Output == out.FormatText {
			errs = append(errs, printAddresses(cmd, all))
		} else if len(all) > 0 {
			errs = append(errs, printStatuses(cmd, c.Settings.Output, all, len(args) > 1))
		}
		return errors.Join(errs...)
	})
}

// look reads an instance; on request it first waits until it runs.
func (c *session) look(ctx context.Context, cmd *cobra.Command, idOrName string) (croft.Status, error) {
	st, err := c.Instance(ctx, idOrName)
	if err != nil || !c.Settings.Wait.Any() {
		return st, err
	}
	if errs := c.wait(ctx, cmd, []croft.Instance{st.Instance}, c.Settings.Wait.Goal()); errs[0] != nil {
		return st, errs[0]
	}
	return c.Instance(ctx, string(st.Instance.ID))
}

// printAddresses prints one address per instance. An instance without one is an error, so that $(schedule web) is
// never silently empty.
func printAddresses(cmd *cobra.Command, all []croft.Status) error {
	var errs []error
	for _, st := range all {
		if addr := Address(st); addr != "" {
			fmt.Fprintln(cmd.OutOrStdout(), addr)
			continue
		}
		errs = append(errs, noAddress(st))
	}
	return errors.Join(errs...)
}
