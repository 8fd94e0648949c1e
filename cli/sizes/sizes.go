// Package sizes has the commands for the named sizes of instances: croft size.
package sizes

import (
	"context"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/control/api"
	"croft/internal/out"
	"croft/schedule"
)

var sizes = verb.Noun[croft.Size]{
	Name: "size",
	All: func(ctx context.Context, c *args.Client) ([]croft.Size, error) {
		list, err := c.ListSizes(ctx)
		return list.Sizes, err
	},
	Find: func(ctx context.Context, c *args.Client, name string) (croft.Size, error) {
		return c.GetSize(ctx, api.SizeNamed{Name: name})
	},
	Word: func(s croft.Size) (string, string) { return s.Name, s.Resources.String() },
	Head: []string{"NAME", "RESOURCES", "DEFAULT"},
	Row: func(s croft.Size) []out.Cell {
		return verb.Texts(s.Name, s.Resources.String(), verb.YesNo(s.Default))
	},
	Rows: func(t *out.Table, s croft.Size) {
		t.Texts("name", s.Name)
		t.Texts("resources", s.Resources.String())
		t.Texts("default", verb.YesNo(s.Default))
	},
}

// Complete completes the names of sizes.
func Complete(most int) cobra.CompletionFunc { return sizes.Complete(most) }

// Command returns the command croft size.
func Command() *cobra.Command {
	return verb.CloudGroup("size", "Manage named sizes of instances", `size manages names for amounts of resources (schedule --size NAME). Operators write sizes;
all users can read them. An instance keeps the resources, and the name, of the size that it
was made with, also when the size is renamed or removed.

A request that names neither a size nor amounts (schedule debian-12) gets the default size.
Until there is one, that is `+croft.BuiltInSize().Resources.String()+`.`, `  croft size create small VCPU:1,MEMORY_MB:1G,DISK_GB:10 --default
  croft size create large vcpu:8,memory_mb:16G,disk_gb:100
  schedule --size large debian-12 --name build`,
		sizes.List("List the sizes"),
		sizes.Show("Show a size"),
		createCommand(),
		defaultCommand(),
		renameCommand(),
		sizes.Remove("Remove sizes; instances keep what they have",
			func(ctx context.Context, c *args.Client, name string) error {
				return c.RemoveSize(ctx, api.SizeNamed{Name: name})
			}),
	)
}

func createCommand() *cobra.Command {
	var standard bool
	cmd := &cobra.Command{
		Use:   "create NAME AMOUNTS",
		Short: "Create a size, such as small VCPU:1,MEMORY_MB:1G,DISK_GB:10",
		RunE: func(cmd *cobra.Command, given []string) error {
			if err := croft.CheckSizeName(given[0]); err != nil {
				return err
			}
			amounts, err := schedule.ParseAmounts(given[1])
			if err != nil {
				return err
			}
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				s, err := c.CreateSize(ctx, api.NewSize{Name: given[0], Resources: amounts, Default: standard})
				if err != nil {
					return err
				}
				return c.Report(s, "size %s has %s", s.Name, s.Resources)
			})
		},
	}
	cmd.Flags().BoolVar(&standard, "default", false, "make it the default size")
	return cmd
}

func defaultCommand() *cobra.Command {
	var none bool
	cmd := &cobra.Command{
		Use:   "default NAME",
		Short: "Make a size the default of requests that name none",
		Long: `default makes a size the one of requests that name neither a size nor amounts. With --none
it is not the default any more, and such requests get ` + croft.BuiltInSize().Resources.String() + `.`,
		ValidArgsFunction: sizes.Complete(1),
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			s, err := c.ChangeSize(ctx, api.SizeChange{SizeNamed: api.SizeNamed{Name: c.Args[0]}, Default: new(!none)})
			if err != nil {
				return err
			}
			if none {
				return c.Report(s, "size %s is not the default", s.Name)
			}
			return c.Report(s, "size %s is the default", s.Name)
		}),
	}
	cmd.Flags().BoolVar(&none, "none", false, "let no size be the default")
	return cmd
}

func renameCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "rename NAME NEW",
		Short:             "Rename a size; instances keep the former name",
		ValidArgsFunction: sizes.Complete(1),
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			s, err := c.ChangeSize(ctx, api.SizeChange{SizeNamed: api.SizeNamed{Name: c.Args[0]}, To: c.Args[1]})
			if err != nil {
				return err
			}
			return c.Report(s, "size %s is called %s", c.Args[0], s.Name)
		}),
	}
}
