// Package catalogue has the commands that list the resource types and capabilities that requests may name, and the
// users who have roles: croft resource-type, croft capability and croft user.
package catalogue

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/client"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/out"
	"croft/internal/plain"
)

// group returns a command that only has subcommands.
func group(use, short, long string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Long: long, Args: command.OnlySubcommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }}
	args.AddCloudFlags(cmd.PersistentFlags())
	cmd.AddCommand(subs...)
	return cmd
}

// ClassCommand returns the command croft resource-type.
func ClassCommand() *cobra.Command {
	list := listCommand("List the resource classes, OpenStack's and the cloud's own",
		func(ctx context.Context, c *args.Client) (names []string, err error) {
			list, err := c.ListResourceTypes(ctx)
			for _, one := range list.ResourceTypes {
				names = append(names, string(one.Name))
			}
			return names, err
		})
	return group("resource-type", "List the classes of resources that requests may name",
		`resource-type lists the resources that are requested by amount, such as VCPU and
MEMORY_MB. Classes that begin with CUSTOM_ belong to this cloud; a host's agent creates
them by offering them.`, list)
}

// TraitCommand returns the command croft capability.
func TraitCommand() *cobra.Command {
	list := listCommand("List the capabilities, OpenStack's and the cloud's own",
		func(ctx context.Context, c *args.Client) (names []string, err error) {
			list, err := c.ListCapabilities(ctx)
			for _, one := range list.Capabilities {
				names = append(names, string(one.Name))
			}
			return names, err
		})
	return group("capability", "List the traits that requests may require, and make your own",
		`capability manages traits: features of hosts that requests require or forbid by name. A
host has the traits of its processors and its networks, and those that its settings name
(offer.traits).`, list,
		changeCommand("add NAME", "Create a capability of this cloud, so that requests may name it",
			`add creates a capability whose name begins with CUSTOM_, before a host has it. A
capability that no host has is removed after a day.`, "is there", (*client.Client).AddCapability),
		changeCommand("remove NAME", "Remove a capability of this cloud that no host has", "", "is removed",
			(*client.Client).RemoveCapability))
}

// listCommand returns a command that lists names.
func listCommand(short string, read func(context.Context, *args.Client) ([]string, error)) *cobra.Command {
	var custom bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: short,
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			names, err := read(ctx, c)
			if err != nil {
				return err
			}
			if custom {
				names = slices.DeleteFunc(names, func(n string) bool {
					return !strings.HasPrefix(n,
						croft.CustomPrefix)
				})
			}
			if c.WantsData() {
				return c.PrintData(append([]string{}, names...)) // never null
			}
			for _, name := range names {
				if _, err := fmt.Fprintln(c.Cmd.OutOrStdout(), plain.Line(name)); err != nil {
					return err
				}
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&custom, "custom", false, "only the cloud's own")
	return cmd
}

func changeCommand(use, short, long, done string,
	change func(*client.Client, context.Context, api.CapabilityNamed) (api.Capability, error)) *cobra.Command {
	return &cobra.Command{Use: use, Short: short, Long: long, Args: command.Count(1, 1),
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			t := croft.Trait(c.Args[0])
			if err := t.CheckCustom(); err != nil {
				return err
			}
			_, err := change(c.Client, ctx, api.CapabilityNamed{Name: t})
			if err == nil {
				c.Say("capability %s %s", t, done)
			}
			return err
		})}
}

// UserCommand returns the command croft user.
func UserCommand() *cobra.Command {
	list := &cobra.Command{
		Use:   "list",
		Short: "List yourself, and the members of the projects that you administer",
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			list, err := c.ListUsers(ctx)
			if err != nil {
				return err
			}
			if c.WantsData() {
				return c.PrintData(list.Users)
			}
			t := out.Table{Color: out.IsColored(c.Cmd.OutOrStdout())}
			t.Head("USER", "PROJECT", "ROLE")
			for _, u := range list.Users {
				for _, r := range u.Roles {
					t.Texts(u.Name, out.OrDash(string(r.Project)), string(r.Role))
				}
			}
			return t.Print(c.Cmd.OutOrStdout())
		}),
	}
	return group("user", "List who has roles in which projects",
		`user lists people and programs by the names that identity providers and access tokens
give them. croft project member gives roles.`, list)
}
