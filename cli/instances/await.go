package instances

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/nearest"
	"croft/schedule"
)

// goals are the values of --for.
var goals = map[string]schedule.Goal{
	"running": schedule.Running, "ready": schedule.Ready, "stopped": schedule.Stopped, "gone": schedule.Gone,
}

func waitCommand() *cobra.Command {
	what := "running"
	words := slices.Sorted(maps.Keys(goals))
	cmd := &cobra.Command{
		Use:   "wait UUID|NAME...",
		Short: "Wait until instances run, or are ready, stopped or gone",
		Long: `wait returns when all instances have reached the state that --for names: running with an
address, ready (the guest reports that its set-up is done), stopped, or gone. It changes
nothing. An instance that does not exist counts as gone.`,
		ValidArgsFunction: args.CompleteInstances(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			goal, ok := goals[what]
			if !ok {
				return croft.Errorf(croft.Invalid, "--for %q is not one of %s%s", what, strings.Join(words, ", "),
					nearest.Hint(what, words))
			}
			return within(cmd, func(ctx context.Context, c *session) error {
				return c.waitFor(ctx, cmd, args, goal, what == "gone")
			})
		},
	}
	cmd.Flags().StringVar(&what, "for", what, "`state` to wait for: "+strings.Join(words, ", "))
	command.Duration(cmd.Flags(), "timeout", 0, "wait no longer than this `duration` (timeout)")
	command.CompleteFlag(cmd, "for", words)
	return cmd
}

// waitFor waits for all named instances at once.
func (c *session) waitFor(ctx context.Context, cmd *cobra.Command, names []string, goal schedule.Goal,
	mayBeGone bool) error {
	var instances []api.Instance
	var errs []error
	for _, name := range names {
		i, err := c.Instance(ctx, name)
		switch {
		case mayBeGone && errors.Is(err, croft.NotFound):
		case err != nil:
			errs = append(errs, err)
		default:
			instances = append(instances, i)
		}
	}
	return errors.Join(append(errs, c.wait(ctx, cmd, instances, goal)...)...)
}
