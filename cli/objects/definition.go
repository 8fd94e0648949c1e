package objects

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/client"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/out"
	"croft/tenant/objects"
)

func definitionCommand() *cobra.Command {
	return verb.Group("definition", "Define which properties objects may have, and who may read and write them",
		`definition manages the rules for properties of each KIND: instance, image, host, group,
or any. Only the most explicit definition applies: the partition's for the kind, the
partition's for any kind, the global one for the kind, the global one for any kind. If
none is set, everything is allowed. A definition changes no property: it applies when
the properties of an object are next changed. check lists the objects that violate it
now.`,
		`  croft property definition get instance > instance.yaml
  croft property definition set instance -f instance.yaml
  croft property definition check instance`,
		definitionGet(), definitionSet(), definitionRemove(), definitionCheck())
}

// levelFlag defines --level.
func levelFlag(cmd *cobra.Command, level *string, value objects.Level, usage string) {
	cmd.Flags().StringVar(level, "level", string(value), usage)
	command.CompleteFlag(cmd, "level", []string{string(objects.Partition), string(objects.Global)})
}

// placeOf parses the arguments of commands about one place.
func placeOf(kind, level string) (api.DefinitionNamed, error) {
	at := objects.Place{Level: objects.Level(level), Kind: objects.Kind(kind)}
	return api.DefinitionNamed{Kind: at.Kind, Level: at.Level}, at.Check()
}

func definitionGet() *cobra.Command {
	var level string
	cmd := &cobra.Command{
		Use:   "get KIND",
		Short: "Show the definition that applies to a kind, as set reads it",
		Long: `get shows the definition that applies to a kind, in YAML, as croft property definition set
reads it; with --level the one that is set there. With -o json it says as well where it
is set and its generation.`,
		ValidArgsFunction: completeKind,
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			d, err := get(ctx, c, c.Args[0], level)
			if err != nil {
				return err
			}
			if f := c.Settings.Output; f == out.FormatJSON {
				return out.PrintData(c.Cmd.OutOrStdout(), f, d)
			}
			text, err := d.Document()
			if err != nil {
				return err
			}
			_, err = c.Cmd.OutOrStdout().Write(text)
			return err
		}),
	}
	levelFlag(cmd, &level, "", "show the definition of this `level`, partition or global, instead of the one that "+
		"applies")
	return cmd
}

func get(ctx context.Context, c *args.Client, kind, level string) (objects.Definition, error) {
	at, err := api.DefinitionNamed{Kind: objects.Kind(kind)}, objects.Kind(kind).Check()
	if level != "" {
		at, err = placeOf(kind, level)
	}
	if err != nil {
		return objects.Definition{}, err
	}
	return c.GetDefinition(ctx, api.DefinitionChosen{DefinitionNamed: at, Effective: level == ""})
}

func definitionSet() *cobra.Command {
	var level, file string
	cmd := &cobra.Command{
		Use:   "set KIND [-f FILE]",
		Short: "Set the definition of a kind, from YAML or JSON",
		Long: `set reads a definition in YAML or JSON from a file or the standard input, and sets it
for a kind, or for any. What was set there before is replaced as a whole. Objects that
violate the new definition stay unchanged; croft property definition check lists them.`,
		ValidArgsFunction: completeKind,
		RunE: func(cmd *cobra.Command, given []string) error {
			at, err := placeOf(given[0], level)
			if err != nil {
				return err
			}
			text, err := args.ReadFile(cmd.InOrStdin(), "the definition", file, objects.MaxDefinition)
			if err != nil {
				return err
			}
			if file == "-" {
				file = "standard input"
			}
			d, err := objects.ParseDefinition(file, text)
			if err != nil {
				return err
			}
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				now, err := c.GetDefinition(ctx, api.DefinitionChosen{DefinitionNamed: at})
				if err != nil && !errors.Is(err, croft.NotFound) {
					return err
				}
				set, err := c.SetDefinition(ctx, api.NewDefinition{DefinitionNamed: at,
					Base: api.MatchOf(now.Generation), Unknown: d.Unknown, Properties: d.Properties,
					Permissions: d.Permissions})
				if err == nil && c.WantsData() {
					err = c.PrintData(set)
				}
				return err
			})
		},
	}
	levelFlag(cmd, &level, objects.Partition, "set it at this `level`, partition or global")
	cmd.Flags().StringVarP(&file, "file", "f", "-", "read the definition from this `file`; -: the standard input")
	return cmd
}

func definitionRemove() *cobra.Command {
	var level string
	cmd := &cobra.Command{
		Use:               "remove KIND",
		Short:             "Remove the definition of a kind, so that a less explicit one applies",
		ValidArgsFunction: completeKind,
		RunE: func(cmd *cobra.Command, given []string) error {
			at, err := placeOf(given[0], level)
			if err != nil {
				return err
			}
			return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
				return c.RemoveDefinition(ctx, at)
			})
		},
	}
	levelFlag(cmd, &level, objects.Partition, "remove the one at this `level`, partition or global")
	return cmd
}

func definitionCheck() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "check KIND",
		Short: "List the objects that violate the definition that applies",
		Long: `check lists the objects of a kind whose properties violate the definition that applies
now, with the reason, and exits with 1 if there are any.`,
		ValidArgsFunction: completeKind,
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			if all {
				c.Project = ""
			}
			kind := objects.Kind(c.Args[0])
			if err := kind.Check(); err != nil {
				return err
			}
			list, err := c.CheckDefinition(ctx, api.KindInProject{InProject: client.InProjectOf(kind, c.Project),
				Kind: kind})
			if err != nil {
				return err
			}
			if err := printBreaches(ctx, c.Cmd, c, kind, list.Breaches); err != nil || len(list.Breaches) == 0 {
				return err
			}
			return &command.Exited{Code: croft.ExitFailure}
		}),
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "check the objects of all projects")
	return cmd
}

func printBreaches(ctx context.Context, cmd *cobra.Command, c *args.Client, kind objects.Kind,
	all []objects.Breach) error {
	stdout := cmd.OutOrStdout()
	if c.WantsData() {
		return c.PrintData(all)
	}
	if len(all) == 0 {
		return nil
	}
	names, err := namesOf(ctx, c, kind)
	if err != nil {
		return err
	}
	t := out.Table{Color: out.IsColored(stdout)}
	t.Head("PROJECT", "NAME", "PROBLEM")
	for _, b := range all {
		name := names[b.ID]
		if name == "" {
			name = b.ID
		}
		for _, v := range b.Violations {
			t.Texts(out.OrDash(string(b.Project)), name, fmt.Sprintf("the property %s %s", v.Key, v.Problem))
		}
	}
	return t.Print(stdout)
}

// namesOf maps the IDs of objects to their names.
func namesOf(ctx context.Context, c *args.Client, kind objects.Kind) (map[string]string, error) {
	names := map[string]string{}
	switch kind {
	case objects.Instance:
		all, err := c.OwnInstances(ctx)
		for _, i := range all {
			names[string(i.ID)] = i.Name
		}
		return names, err
	case objects.Host:
		all, err := c.HostNames(ctx)
		for id, name := range all {
			names[string(id)] = name
		}
		return names, err
	}
	return names, nil
}
