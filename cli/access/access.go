// Package access has the commands for access tokens, which people and programs use to call the cloud's API: croft
// access.
package access

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/control/cloud"
	"croft/internal/command"
	"croft/internal/out"
	"croft/internal/wording"
	"croft/tenant"
	"croft/tenant/access"
)

// Command returns the command croft access.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "access",
		Short: "Make, list and revoke tokens with which people and programs call the API",
		Long: `access is about access tokens: with one, a person or a program calls the API of this
cloud for one project, in one role. The tokens with which machines join the cloud as
hosts are of croft token.`,
		Example: `  croft access create --project research --role member --user ann --note "CI"
  croft access list
  croft access revoke 1f3a5b7c9d0e`,
		Args: func(cmd *cobra.Command, _ []string) error {
			return croft.Errorf(croft.Invalid, "usage: %s create, list or revoke", cmd.CommandPath())
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	args.AddCloudFlags(cmd.PersistentFlags())
	command.CompleteFlag(cmd, "output", out.Formats)
	cmd.AddCommand(args.ForAnyProject(createCommand()), args.ForAnyProject(listCommand()), revokeCommand())
	return cmd
}

// month is the default life of a token.
const month = 720 * time.Hour

func createCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Print a new token, once",
		Long: `create prints a token of a project (--project). Its holder sends it with each request,
as "Authorization: Bearer croft_...". The cloud keeps only its SHA-256, so it cannot be
printed again.

The role (--role) says what it is good for:

  reader           sees the project's instances, keys, quota and log
  member           also makes, changes and destroys instances, and keeps keys
  project-admin    also manages members, tokens and the projects below this one
  partition-admin  operates the whole cloud; of a project only if one is named

The project has to exist, unless --create creates it, with the limits of new projects.

It counts for 30 days, or as long as --expires says, up to a year.`,
		Args: command.Count(0, 0),
	}
	role := cmd.Flags().String("role", string(access.Member), "what its holder is to the project (`role`)")
	command.CompleteFlag(cmd, "role", access.Words(access.TokenRoles))
	name := cmd.Flags().String("user", "", "`name` of the person or program that it stands for (default: yours)")
	life := command.Duration(cmd.Flags(), "expires", month, "how long it counts, at most 366d")
	create := cmd.Flags().Bool("create", false, "create the project if there is none of this name")
	note := cmd.Flags().String("note", "", "what it is for, in `words` that croft access list shows")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		wanted := cloud.NewAccess{User: *name, Role: access.Role(*role), Note: *note, Life: *life}
		if err := check(cmd, &wanted); err != nil {
			return err
		}
		return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
			if wanted.Role != access.PartitionAdmin || cmd.Flags().Changed("project") {
				wanted.Project = c.Project
			}
			if err := haveProject(ctx, c, wanted.Project, *create); err != nil {
				return err
			}
			t, err := c.Access.Create(ctx, wanted)
			if err != nil {
				return err
			}
			return printNew(cmd, c.Settings.Output, t)
		})
	}
	return cmd
}

// haveProject returns an error if a project does not exist, which may be a typing mistake; with create, it creates the
// project.
func haveProject(ctx context.Context, c *args.Client, name croft.Project, create bool) error {
	if name == "" || name == croft.DefaultProject {
		return nil
	}
	all, err := c.Projects.List(ctx, name)
	if err != nil || len(all) > 0 {
		return err
	}
	if !create {
		err := args.UnknownProject(ctx, c.Cloud, name)
		if err == nil || tenant.Hinted(err) {
			return err
		}
		return croft.Errorf(croft.NotFound, "there is no project %s: name another one, or create it (croft project create "+
			"%[1]s, or --create)", name)
	}
	_, err = c.Projects.Create(ctx, tenant.Tenant{Name: name, Created: time.Now().UTC()})
	return err
}

// check completes and validates the values of the flags, before any request is sent to a cloud.
func check(cmd *cobra.Command, wanted *cloud.NewAccess) error {
	if err := wanted.Role.CheckAmong(access.TokenRoles); err != nil {
		return croft.Errorf(croft.Invalid, "--role: %w", err)
	}
	if wanted.Life < access.ShortestTokenLife || wanted.Life > access.LongestTokenLife {
		return croft.Errorf(croft.Invalid, "--expires %s: use something between %s and %s",
			wording.Duration(wanted.Life), wording.Duration(access.ShortestTokenLife),
			wording.Duration(access.LongestTokenLife))
	}
	if !cmd.Flags().Changed("user") {
		u, err := user.Current()
		if err != nil {
			return croft.Errorf(croft.Invalid, "who you are cannot be found out (%w): give --user", err)
		}
		wanted.User = u.Username
	}
	if err := access.CheckUser(wanted.User); err != nil {
		return croft.Errorf(croft.Invalid, "--user: %w", err)
	}
	return nil
}

// printNew prints only the token on stdout, and its description on stderr.
func printNew(cmd *cobra.Command, format string, t cloud.AccessToken) error {
	if format == out.FormatJSON || format == out.FormatYAML {
		return out.PrintData(cmd.OutOrStdout(), format, t)
	}
	where := "project " + string(t.Project)
	if t.Project == "" {
		where = "the whole cloud"
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "token %s: %s is %s of %s until %s; it is not shown again\n", t.ID, t.User,
		strings.Join(access.Words(t.Roles), ", "), where, t.Expires.Local().Format(time.DateTime))
	_, err := fmt.Fprintln(cmd.OutOrStdout(), t.Secret)
	return err
}

func listCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the tokens, without their secrets",
		Long: `list shows the tokens of all projects, or of one (--project). Expired ones stay in the
list for a week.`,
		Args: command.Count(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				var project croft.Project
				if cmd.Flags().Changed("project") {
					project = c.Project
				}
				all, err := c.Access.List(ctx, project)
				if err == nil && len(all) == 0 {
					err = args.SimilarProject(ctx, c, project)
				}
				if err != nil {
					return err
				}
				if f := c.Settings.Output; f == out.FormatJSON || f == out.FormatYAML {
					return out.PrintData(cmd.OutOrStdout(), f, append([]cloud.AccessToken{}, all...)) // never null
				}
				return printTable(cmd, all)
			})
		},
	}
}

func printTable(cmd *cobra.Command, all []cloud.AccessToken) error {
	t := out.Table{Color: out.IsColored(cmd.OutOrStdout())}
	t.Head("ID", "PROJECT", "USER", "ROLE", "FOR", "CREATED", "EXPIRES")
	for _, a := range all {
		expires := out.Cell{Text: a.Expires.Local().Format(time.DateTime)}
		if !time.Now().Before(a.Expires) {
			expires = out.Cell{Text: "expired", Color: out.Yellow}
		}
		t.Row(out.Cell{Text: string(a.ID)}, out.Cell{Text: out.OrDash(string(a.Project))}, out.Cell{Text: a.User},
			out.Cell{Text: strings.Join(access.Words(a.Roles), ", ")}, out.Cell{Text: out.OrDash(a.Note)},
			out.Cell{Text: a.Created.Local().Format(time.DateTime)}, expires)
	}
	return t.Print(cmd.OutOrStdout())
}

func revokeCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "revoke ID...",
		Aliases: []string{"rm"},
		Short:   "End tokens at once",
		Args:    command.Count(1, -1),
		ValidArgsFunction: func(cmd *cobra.Command, given []string, prefix string) ([]string,
			cobra.ShellCompDirective) {
			return args.StoredNames(cmd, given, prefix, func(ctx context.Context, c *args.Client,
				offer args.Offer) error {
				all, err := c.Access.List(ctx, "")
				for _, t := range all {
					offer(string(t.ID), strings.TrimSpace(t.User+" "+t.Note))
				}
				return err
			}), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, given []string) error {
			for _, id := range given {
				if err := access.TokenID(id).Check(); err != nil {
					return err
				}
			}
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				var errs []error
				for _, id := range given {
					t, err := c.Access.Revoke(ctx, access.TokenID(id))
					if err == nil {
						fmt.Fprintf(cmd.ErrOrStderr(), "token %s of %s is revoked\n", t.ID, t.User)
					}
					errs = append(errs, err)
				}
				return errors.Join(errs...)
			})
		},
	}
}
