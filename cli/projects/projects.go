// Package projects has the commands for tenants: croft project, for projects and their members, and croft quota, for
// what they may use.
package projects

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/control/api"
	"croft/internal/out"
	"croft/tenant"
)

// Command returns the command croft project.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "project",
		Short: "Manage projects: tenants, with members and quotas",
		Long: `project manages the projects of the cloud. A project owns instances and keys, has
members with roles, and may use as much as its quota and those of the projects
above it allow (croft quota).`,
		Example: `  croft project create lab --note "the lab on the second floor"
  croft project create lab-ci --parent lab
  croft project member set lab ann project-admin
  croft quota set lab VCPU=20 MEMORY_MB=65536 instances=10`,
	}
	args.AddCloudFlags(cmd.PersistentFlags())
	cmd.AddCommand(createCommand(), projects.List("List the projects"), showCommand(), removeCommand(), memberCommand())
	return cmd
}

func createCommand() *cobra.Command {
	var p tenant.Tenant
	var unlimited *bool
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a project",
		Long: `create makes a project. What a project uses counts against the quotas of all projects
above it too. A project name that already has instances becomes a project at the top
level, not below another one.

A new project may have 100 instances with 200 VCPU, 400 GiB of memory and 10,000 GB of
disks, or what croft quota set --default says; croft quota set changes that, and
--unlimited removes these limits. The name of a project that a project-admin creates
begins with the name of the parent project and a dot.`,
		RunE: func(cmd *cobra.Command, given []string) error {
			p.Name = croft.Project(given[0])
			if err := p.Check(); err != nil {
				return err
			}
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				made, err := c.CreateProject(ctx, api.NewProject{Name: p.Name, Parent: p.Parent, Note: p.Note})
				if err == nil && *unlimited {
					made, err = c.SetQuota(ctx, api.Limits{ProjectBase: baseOf(made), Limits: tenant.NoLimits()})
				}
				if err != nil {
					return aboutParent(ctx, c, p, err)
				}
				if above, _, dotted := cutLast(made.Name); dotted && made.Parent == "" {
					fmt.Fprintf(cmd.ErrOrStderr(), "project %s is at the top level, although its name has a dot: to "+
						"put it below another, remove it and create it with --parent %s\n", made.Name, above)
				}
				return c.Report(made, "project %s is created", made.Name)
			})
		},
	}
	cmd.Flags().StringVar((*string)(&p.Parent), "parent", "", "`project` above it; it cannot be changed later")
	cmd.Flags().StringVar(&p.Note, "note", "", "`text` for people")
	unlimited = cmd.Flags().Bool("unlimited", false, "do not limit its instances and resources")
	return cmd
}

// baseOf returns the input for a change of a project as it is now.
func baseOf(p tenant.Tenant) api.ProjectBase {
	return api.ProjectBase{ProjectNamed: api.ProjectNamed{Project: p.Name}, Base: api.MatchOf(p.Generation)}
}

// cutLast cuts a name at its last dot.
func cutLast(name croft.Project) (above, last string, dotted bool) {
	if i := strings.LastIndexByte(string(name), '.'); i > 0 {
		return string(name[:i]), string(name[i+1:]), true
	}
	return "", string(name), false
}

// aboutParent adds advice about --parent to an error about a new project.
func aboutParent(ctx context.Context, c *args.Client, p tenant.Tenant, err error) error {
	kind := croft.KindOf(err)
	switch {
	case p.Parent != "" && kind == croft.NotFound:
		if strings.Contains(err.Error(), "did you mean") {
			return err
		}
		if hint := args.ProjectHint(ctx, c, p.Parent); hint != "" {
			return croft.Errorf(kind, "%w%s", err, hint)
		}
		return croft.Errorf(kind, "%w: name one that croft project list shows with --parent", err)
	case p.Parent == "" && kind == croft.Denied:
		above, _, dotted := cutLast(p.Name)
		if !dotted {
			above = string(c.Project)
		}
		return croft.Errorf(kind, "%w: add --parent %s", err, above)
	}
	return err
}

var projects = verb.Noun[tenant.Tenant]{
	Name: "project",
	All: func(ctx context.Context, c *args.Client) ([]tenant.Tenant, error) {
		list, err := c.ListProjects(ctx)
		return tenant.NewTree(list.Projects).Sorted(), err
	},
	Find: func(ctx context.Context, c *args.Client, name string) (tenant.Tenant, error) {
		return args.FindProject(ctx, c, croft.Project(name))
	},
	Word: func(p tenant.Tenant) (string, string) { return string(p.Name), p.Note },
	Head: []string{"NAME", "PARENT", "MEMBERS", "CREATED", "NOTE"},
	Row: func(p tenant.Tenant) []out.Cell {
		return verb.Texts(string(p.Name), string(p.Parent), fmt.Sprint(len(p.Members)),
			p.Created.Format(time.DateTime), p.Note)
	},
}

func showCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "show NAME",
		Short:             "Show a project, its members, and what it uses",
		ValidArgsFunction: projects.Complete(-1),
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			p, err := args.FindProject(ctx, c, croft.Project(c.Args[0]))
			if err != nil {
				return err
			}
			return show(ctx, c.Cmd, c, p)
		}),
	}
}

func removeCommand() *cobra.Command {
	return projects.Remove("Remove projects that have no instances",
		func(ctx context.Context, c *args.Client, name string) error {
			err := c.RemoveProject(ctx, api.ProjectNamed{Project: croft.Project(name)})
			if croft.KindOf(err) == croft.NotFound {
				err = cmp.Or(args.UnknownProject(ctx, c, croft.Project(name)), err)
			}
			return err
		})
}
