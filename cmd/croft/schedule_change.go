package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/schedule"
)

// removalTimeout is how long the removal of an instance that failed is waited for.
const removalTimeout = 30 * time.Second

func destroyCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "destroy UUID|NAME...",
		Short: "Remove instances with their disks, addresses and claims",
		Long: `destroy orders instances to be removed. It returns when the order is written; with
--wait, when nothing is left of them.

An instance whose host is silent is removed when the host returns. With --force its
claim and its name are free at once.`,
		Args:              count(1, -1),
		ValidArgsFunction: completeInstances(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(cmd, func(ctx context.Context, c *client) error {
				return c.change(ctx, cmd, args, schedule.Gone, func(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, string, error) {
					d, err := c.Destroy(ctx, project, idOrName, force)
					switch {
					case d.Gone:
						return d.Instance, "is gone", err
					case force:
						return d.Instance, "is being removed by its host, which is not silent: there was nothing to force", err
					}
					return d.Instance, "is being removed", err
				})
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "free claim and name of an instance whose host is silent")
	addWaitFlags(cmd.Flags(), "nothing is left")
	return cmd
}

func stopCommand() *cobra.Command {
	return powerCommand("stop", "Shut instances down; they keep disk and claim", "the instance is shut off", "is to stop", schedule.Stopped,
		func(c *client) changer { return c.Stop })
}

func startCommand() *cobra.Command {
	return powerCommand("start", "Boot instances that were stopped", "the instance runs and has an address", "is to run", schedule.Running,
		func(c *client) changer { return c.Start })
}

type changer func(context.Context, croft.Project, string) (croft.Instance, error)

func powerCommand(verb, short, until, words string, goal schedule.Goal, method func(*client) changer) *cobra.Command {
	cmd := &cobra.Command{
		Use:               verb + " UUID|NAME...",
		Short:             short,
		Args:              count(1, -1),
		ValidArgsFunction: completeInstances(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(cmd, func(ctx context.Context, c *client) error {
				return c.change(ctx, cmd, args, goal, func(ctx context.Context, project croft.Project, idOrName string) (croft.Instance, string, error) {
					inst, err := method(c)(ctx, project, idOrName)
					return inst, words, err
				})
			})
		},
	}
	addWaitFlags(cmd.Flags(), until)
	return cmd
}

// change does something to each of the instances, says so, and where that is asked
// for waits for all of them at once. One that cannot be changed does not keep the
// others from it.
func (c *client) change(ctx context.Context, cmd *cobra.Command, args []string, goal schedule.Goal,
	do func(context.Context, croft.Project, string) (croft.Instance, string, error),
) error {
	var changed []croft.Instance
	var errs []error
	for _, arg := range args {
		inst, words, err := do(ctx, c.project, arg)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		changed = append(changed, inst)
		if !c.settings.Wait {
			fmt.Fprintf(cmd.ErrOrStderr(), "instance %s %s\n", inst.Name, words)
		}
	}
	if c.settings.Wait {
		errs = append(errs, c.wait(ctx, cmd, changed, goal)...)
	}
	return errors.Join(errs...)
}
