package instances

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/wording"
)

// keepCommand returns the command that changes when instances expire.
func keepCommand() *cobra.Command {
	var life time.Duration
	var all subjects
	cmd := &cobra.Command{
		Use:   "keep [UUID|NAME...]",
		Short: "Change when instances expire",
		Long: `keep changes when instances expire: after the time of --expires from now on, or without
that flag never. It also sets an expiry for instances without one.

` + aboutChoices,
		Example: `  schedule keep web --expires 8h
  schedule keep web`,
		ValidArgsFunction: args.CompleteInstances(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFlags(cmd.Flags(), "expires"); err != nil {
				return err
			}
			return within(cmd, func(ctx context.Context, c *session) error {
				return c.alter(ctx, &all, args, func(ctx context.Context, in api.InstanceChange) (api.Instance, string,
					error) {
					seconds := int64(life / time.Second)
					i, err := c.ChangeInstance(ctx, api.InstancePatch{InstanceNamed: in.InstanceNamed,
						Expires: &seconds})
					if i.Expires.IsZero() {
						return i, "does not expire", err
					}
					return i, "expires at " + i.Expires.Local().Format(time.DateTime), err
				})
			})
		},
	}
	all.addTo(cmd)
	command.DurationVar(cmd.Flags(), &life, "expires", 0, "the `time` from now on after which they are destroyed (never)")
	return cmd
}

// protectCommand returns the command that protects instances.
func protectCommand() *cobra.Command {
	var off bool
	var all subjects
	cmd := &cobra.Command{
		Use:   "protect [UUID|NAME...]",
		Short: "Protect instances against removal",
		Long: `protect keeps instances from being removed, rebuilt, restored in place from a backup and
rolled back to a snapshot, by anybody and also with --force, until the protection is ended
with --off. A project that has a protected instance cannot be removed. A protected instance
does not expire. Everything else may be done with it: a volume, for example, can be detached
and then removed.

` + aboutChoices,
		Example: `  schedule protect web
  schedule protect --off web
  schedule protect --filter env=prod`,
		ValidArgsFunction: args.CompleteInstances(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			words := "is protected"
			if off {
				words = "is not protected"
			}
			return within(cmd, func(ctx context.Context, c *session) error {
				return c.alter(ctx, &all, args, func(ctx context.Context, in api.InstanceChange) (api.Instance, string,
					error) {
					i, err := c.ChangeInstance(ctx, api.InstancePatch{InstanceNamed: in.InstanceNamed,
						Protected: new(!off)})
					return i, words, err
				})
			})
		},
	}
	all.addTo(cmd)
	cmd.Flags().BoolVar(&off, "off", false, "end the protection")
	return cmd
}

// alter changes the record of each instance, and prints it. There is nothing to wait for.
func (c *session) alter(ctx context.Context, all *subjects, given []string, do changing) error {
	names, left, err := all.of(ctx, c, given)
	if err != nil {
		return err
	}
	changed := []api.Instance{}
	errs := []error{left}
	for _, name := range names {
		i, words, err := c.changeOne(ctx, name, do)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		changed = append(changed, i)
		if !c.WantsData() {
			c.Say("instance %s %s", i.Name, words)
		}
	}
	return errors.Join(append(errs, c.printChanged(ctx, changed, all.given() || len(given) > 1))...)
}

// remaining describes how long an instance has until it expires; empty: it does not expire.
func remaining(expires time.Time) string {
	left := time.Until(expires)
	switch {
	case expires.IsZero():
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
		return wording.Age(max(left, time.Duration(minutes)*time.Minute))
	case minutes%60 == 0:
		return fmt.Sprintf("%dh", minutes/60)
	}
	return fmt.Sprintf("%dh%dm", minutes/60, minutes%60)
}

// expiresSoon reports whether users should be warned that an instance expires.
func expiresSoon(expires time.Time) bool {
	return !expires.IsZero() && time.Until(expires) < croft.ExpirySoon
}
