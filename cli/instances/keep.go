package instances

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/internal/command"
	"croft/internal/wording"
)

// keepCommand returns the command that changes when instances expire.
func keepCommand() *cobra.Command {
	var life time.Duration
	cmd := &cobra.Command{
		Use:   "keep UUID|NAME...",
		Short: "Let instances that expire live longer",
		Long: `keep lets instances live on that were asked for with --expires: for the time of
--expires from now on, or without it for as long as nobody destroys them. Instances that
have not expired may get an end in this way too.`,
		Example: `  schedule keep web --expires 8h
  schedule keep web`,
		Args:              command.Count(1, -1),
		ValidArgsFunction: args.CompleteInstances(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("expires") && life <= 0 {
				return croft.Errorf(croft.Invalid, "--expires %s: write a time such as 8h, or leave it out",
					wording.Duration(life))
			}
			return within(cmd, func(ctx context.Context, c *session) error {
				var errs []error
				for _, arg := range args {
					errs = append(errs, c.keep(ctx, cmd, arg, life))
				}
				return errors.Join(errs...)
			})
		},
	}
	command.DurationVar(cmd.Flags(), &life, "expires", 0, "the `time` from now on after which they are destroyed (never)")
	return cmd
}

func (c *session) keep(ctx context.Context, cmd *cobra.Command, idOrName string, life time.Duration) error {
	inst, words, err := c.changeOne(ctx, idOrName, func(ctx context.Context, project croft.Project,
		idOrName string) (croft.Instance, string, error) {
		inst, err := c.Changes.Keep(ctx, project, idOrName, life)
		if inst.Expires.IsZero() {
			return inst, "does not expire", err
		}
		return inst, "expires at " + inst.Expires.Local().Format(time.DateTime), err
	})
	if err == nil {
		fmt.Fprintf(cmd.ErrOrStderr(), "instance %s %s\n", inst.Name, words)
	}
	return err
}

// remaining describes how long an instance has until it expires; empty: it does not expire.
func remaining(inst croft.Instance) string {
	left := time.Until(inst.Expires)
	switch {
	case inst.Expires.IsZero():
		return ""
	case left <= 0:
		return "now"
	}
	return "in " + ahead(left)
}

// ahead describes a future duration rounded to the minute, so that a list shows the duration that was requested a
// moment ago.
func ahead(left time.Duration) string {
	minutes := int(left.Round(time.Minute) / time.Minute)
	switch {
	case left < time.Minute || minutes < 60 || minutes >= 48*60:
		return age(max(left, time.Duration(minutes)*time.Minute))
	case minutes%60 == 0:
		return fmt.Sprintf("%dh", minutes/60)
	}
	return fmt.Sprintf("%dh%dm", minutes/60, minutes%60)
}

// expiresSoon reports whether users should be warned that an instance expires.
func expiresSoon(inst croft.Instance) bool {
	return !inst.Expires.IsZero() && time.Until(inst.Expires) < croft.ExpirySoon
}
