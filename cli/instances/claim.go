package instances

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/out"
	"croft/schedule"
)

// ClaimCommand returns the command croft claim.
func ClaimCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "claim",
		Short: "Use or remove claims that are held",
		Long: `claim manages the claims that schedule --hold makes: resources on a host, quota of the
project and seats in groups, reserved for an instance until a given time. Each has a
name, which the instance will have; schedule list shows them as held.

Use boots the instance on that host. A claim that is not used in time is removed.
schedule keep NAME --expires 2h holds it for two hours from now on.`,
		Example: `  schedule VCPU:4,MEMORY_MB:8192,DISK_GB:40 --name nightly --hold 2h
  croft claim list
  croft claim use nightly --image debian-12 --wait
  croft claim remove nightly`,
	}
	args.AddCloudFlags(cmd.PersistentFlags())
	cmd.AddCommand(claimListCommand(), useCommand(), claimRemoveCommand())
	return cmd
}

func claimListCommand() *cobra.Command {
	l := listing{choice: choice{states: []string{string(croft.StateHeld)}}, sort: "expires",
		columns: []string{"name", "host", "expires", "resources", "id"}}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the claims that are held, soonest end first",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return within(cmd, func(ctx context.Context, c *session) error {
				if l.all {
					c.Project = ""
					l.columns = append([]string{"project"}, l.columns...)
				}
				text, err := c.renderList(ctx, cmd, l)
				if err == nil {
					_, err = fmt.Fprint(cmd.OutOrStdout(), text)
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVarP(&l.all, "all", "a", false, "list the claims of all projects")
	return cmd
}

func useCommand() *cobra.Command {
	var a asking
	cmd := &cobra.Command{
		Use:   "use UUID|NAME",
		Short: "Boot the instance that a claim is held for",
		Long: `use orders the instance that a claim is held for, on the host of the claim. Without a
flag, the settings are the ones given to schedule --hold. The instance outlives the
hold; --expires sets when it is destroyed.`,
		ValidArgsFunction: args.CompleteInstances(-1, croft.StateHeld),
		RunE:              func(cmd *cobra.Command, given []string) error { return a.use(cmd, given[0]) },
	}
	a.addGuestFlags(cmd.Flags())
	cmd.Flags().String("image", "", "`image` to boot (that of schedule --hold)")
	args.AddWaitFlags(cmd.Flags(),
		"the instance runs and has an address; =ready: until it reports that its set-up is done")
	command.CompleteFlag(cmd, "restart", schedule.Restarts)
	return cmd
}

// use uses a held claim.
func (a *asking) use(cmd *cobra.Command, idOrName string) error {
	s, err := args.LoadSettings(cmd.Flags())
	if err != nil {
		return err
	}
	if err := checkFlags(cmd.Flags(), "expires"); err != nil {
		return err
	}
	use := api.ClaimUse{Expires: int64(a.expires / time.Second)}
	if use.GuestSettings, err = a.guest(a.keys, cmd.InOrStdin()); err != nil {
		return err
	}
	if cmd.Flags().Changed("image") {
		if s.Image, err = cmd.Flags().GetString("image"); err != nil {
			return err
		}
		if use.Image, err = imageOf(s.Image); err != nil {
			return err
		}
	}
	return args.WithSettings(cmd.Context(), s, func(ctx context.Context, connected *args.Client) error {
		connected.Cmd = cmd
		c := &session{connected}
		found, err := c.StoredKeys(ctx, a.names)
		if err != nil {
			return err
		}
		use.Keys = slices.Concat(use.Keys, found)
		return c.change(ctx, cmd, []string{idOrName}, s.Wait.Goal(), func(ctx context.Context,
			in api.InstanceChange) (api.Instance, string, error) {
			use.InstanceChange = in
			i, err := c.UseClaim(ctx, use)
			if err == nil {
				args.WarnKeyless(cmd.ErrOrStderr(), s.Keys, i.Keys, i.UserData)
			}
			return i, "will run", err
		})
	})
}

func claimRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "remove UUID|NAME...",
		Aliases: []string{"release"},
		Short:   "Remove held claims",
		Long: `remove gives held claims back. If a claim has been used in the meantime, it reports this
and leaves the instance alone; remove that with schedule remove.`,
		ValidArgsFunction: args.CompleteInstances(-1, croft.StateHeld),
		RunE: func(cmd *cobra.Command, args []string) error {
			return within(cmd, func(ctx context.Context, c *session) error {
				names, _, err := (&subjects{}).of(ctx, c, args)
				errs := []error{err}
				for _, arg := range names {
					i, words, err := c.changeOne(ctx, arg, func(ctx context.Context,
						in api.InstanceChange) (api.Instance, string, error) {
						i, err := c.ReleaseClaim(ctx, in.InstanceNamed)
						return i, "is removed", err
					})
					if errs = append(errs, err); err == nil {
						fmt.Fprintf(cmd.ErrOrStderr(), "claim %s %s\n", i.Name, words)
					}
				}
				return errors.Join(errs...)
			})
		},
	}
}

// printHeld prints a held claim, and the time until which it is held.
func printHeld(cmd *cobra.Command, i api.Instance) {
	fmt.Fprintf(cmd.OutOrStdout(), "HELD ON TARGET, %s, FOR INSTANCE %s\n", out.OrDash(string(i.HostID)), i.ID)
	fmt.Fprintf(cmd.ErrOrStderr(), "claim %s is held until %s; `croft claim use %s` boots it\n", i.Name,
		i.Expires.Local().Format(time.DateTime), i.Name)
}
