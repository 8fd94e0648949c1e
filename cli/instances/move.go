package instances

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/control/api"
	"croft/internal/command"
	"croft/schedule"
)

func moveCommand() *cobra.Command {
	var end bool
	cmd := &cobra.Command{
		Use:   "move UUID|NAME [HOST]",
		Short: "Move an instance to another host, with its disk",
		Long: `move stops an instance, copies its disk to another host, and starts the instance
there. A disk on shared storage is not copied, but handed over. The instance keeps its UUID, name and MAC address. Without HOST, the cloud chooses one as
for a request. The guest runs until the new host is ready to copy; the old host removes
its copy of the disk when the guest runs on the new one.

A copy that breaks off continues where it stopped. If the move cannot be done, the
instance starts again on its old host, and schedule show says why it is there. --cancel
ends a move that is still copying. Moving is for operators.`,
		Example: `  schedule move web host2 --wait
  schedule move web --cancel`,
		Args:              command.Count(1, 2),
		ValidArgsFunction: args.CompleteInstances(1),
		RunE: func(cmd *cobra.Command, given []string) error {
			if end && len(given) > 1 {
				return croft.Errorf(croft.Invalid, "--cancel ends the move of an instance: leave out the host")
			}
			return within(cmd, func(ctx context.Context, c *session) error { return c.move(ctx, cmd, given, end) })
		},
	}
	cmd.Flags().BoolVar(&end, "cancel", false, "end a move whose disk is still being copied")
	args.AddWaitFlags(cmd.Flags(), "the instance is on its new host, and runs there if it ran before")
	return cmd
}

// move orders a move, or ends one. With --wait, a move that ends where it began is an error.
func (c *session) move(ctx context.Context, cmd *cobra.Command, given []string, end bool) error {
	before, err := c.Instance(ctx, given[0])
	if err != nil {
		return err
	}
	goal := c.Settings.Wait.Goal()
	if before.Reported() == croft.StateStopped {
		goal = schedule.Stopped
	}
	in := api.InstanceMove{}
	if len(given) > 1 {
		to, err := c.GetHost(ctx, api.HostNamed{ID: given[1]})
		if err != nil {
			return fmt.Errorf("move %s: %w", before.Name, err)
		}
		in.Host = string(to.ID)
	}
	err = c.change(ctx, cmd, given[:1], goal, func(ctx context.Context,
		change api.InstanceChange) (api.Instance, string, error) {
		if end {
			i, err := c.CancelMove(ctx, change)
			return i, "stays on host " + i.Host, err
		}
		in.InstanceChange = change
		i, err := c.MoveInstance(ctx, in)
		return i, "moves to another host with its disk", err
	})
	if err != nil || end || !c.Settings.Wait.Any() {
		return err
	}
	now, err := c.Instance(ctx, string(before.ID))
	switch {
	case err != nil:
		return err
	case now.HostID == before.HostID:
		return croft.Errorf(croft.Conflict, "move %s: it stays on host %s: %s", now.Name, now.Host,
			cmp.Or(now.Unmoved, "the move was ended"))
	}
	if !c.WantsData() {
		fmt.Fprintf(cmd.ErrOrStderr(), "instance %s is on host %s\n", now.Name, now.Host)
	}
	return nil
}
