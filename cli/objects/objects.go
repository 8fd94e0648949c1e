// Package objects has the commands for properties, tags and definitions of objects in the cloud: croft property.
package objects

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/client"
	"croft/control/api"
	"croft/internal/out"
	"croft/internal/plain"
	"croft/tenant/objects"
)

// completeKind completes the first argument.
func completeKind(cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
	switch {
	case len(given) == 0:
		var all []string
		for _, k := range objects.Kinds {
			all = append(all, string(k))
		}
		return all, cobra.ShellCompDirectiveNoFileComp
	case len(given) == 1 && given[0] == string(objects.Instance):
		return args.CompleteInstances(1)(cmd, nil, prefix)
	case len(given) == 1 && given[0] == string(objects.Host):
		return args.CompleteHosts(cmd, nil, prefix)
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// onThing returns the RunE of a command whose first arguments are the kind and the name of an object.
func onThing(do func(ctx context.Context, cmd *cobra.Command, t *thing, rest []string) error) func(*cobra.Command,
	[]string) error {
	return func(cmd *cobra.Command, given []string) error {
		kind := objects.Kind(given[0])
		if err := kind.Check(); err != nil {
			return err
		}
		return args.WithTimeout(cmd, func(ctx context.Context, c *args.Client) error {
			return do(ctx, cmd, &thing{c, kind, given[1]}, given[2:])
		})
	}
}

// thing is the object of a command.
type thing struct {
	*args.Client
	kind objects.Kind
	name string
}

// named names the object. NotFound: its name is empty.
func (t *thing) named() (api.ObjectNamed, error) {
	if t.name == "" {
		return api.ObjectNamed{}, croft.Errorf(croft.NotFound, "the name of the %s is empty", t.kind)
	}
	return client.ObjectOf(t.Project, t.kind, t.name), nil
}

func (t *thing) object(ctx context.Context) (o objects.Object, err error) {
	named, err := t.named()
	if err == nil {
		o, err = t.GetObject(ctx, named)
	}
	return o, t.nearest(ctx, err)
}

// change changes the object, and prints it for programs.
func (t *thing) change(ctx context.Context, c api.ObjectChange) (err error) {
	var o objects.Object
	if c.ObjectNamed, err = t.named(); err == nil {
		o, err = t.ChangeObject(ctx, c)
	}
	if err != nil {
		return t.nearest(ctx, err)
	}
	if t.WantsData() {
		return t.PrintData(o)
	}
	return nil
}

func (t *thing) nearest(ctx context.Context, err error) error {
	if t.kind != objects.Instance || !errors.Is(err, croft.NotFound) {
		return err
	}
	if _, there := t.GetInstance(ctx, api.InstanceShown{InstanceNamed: t.Named(t.name)}); there == nil {
		return err // the instance exists; something else is missing
	}
	return t.Nearest(ctx, t.name, err)
}

// Command returns the command croft property.
func Command() *cobra.Command {
	return verb.CloudGroup("property", "Manage properties and tags of instances, images, hosts and groups",
		`property manages properties: keys with values that people and policies attach to
instances, images, hosts and groups, to filter lists by. A definition (croft property
definition) limits keys and values, and who reads and writes them. Words without a value
are tags (croft property tag). Guests cannot read either: they read the tags of their
request (schedule --tag).

Instances and hosts are named by name or UUID, images by their name in the catalog.`,
		`  croft property set instance web owner=jo tier=gold
  croft property get instance web
  croft property get host host1 rack
  croft property tag add instance web keep
  schedule list --filter 'owner=jo tier=g*'`,
		propertyGet(), propertySet(), propertyRemove(), tagCommand(), definitionCommand())
}

func propertyGet() *cobra.Command {
	return &cobra.Command{
		Use:               "get KIND NAME [KEY]",
		Short:             "Show the properties of an object, or the value of one",
		ValidArgsFunction: completeKind,
		RunE: onThing(func(ctx context.Context, cmd *cobra.Command, t *thing, keys []string) error {
			o, err := t.object(ctx)
			if err != nil {
				return err
			}
			stdout := cmd.OutOrStdout()
			if len(keys) > 0 {
				v, there := o.Properties[keys[0]]
				switch {
				case !there:
					return croft.Errorf(croft.NotFound,
						"%s %s has no property %s; `croft property get %s %s` shows all",
						t.kind, t.name, keys[0], t.kind, t.name)
				case t.WantsData():
					return t.PrintData(v)
				}
				_, err := fmt.Fprintln(stdout, plain.Lines(v.String()))
				return err
			}
			if t.WantsData() {
				return t.PrintData(o)
			}
			table := out.Table{Color: out.IsColored(stdout)}
			table.Head("KEY", "VALUE")
			for _, key := range slices.Sorted(maps.Keys(o.Properties)) {
				table.Texts(key, o.Properties[key].String())
			}
			return table.Print(stdout)
		}),
	}
}

func propertySet() *cobra.Command {
	return &cobra.Command{
		Use:   "set KIND NAME KEY=VALUE...",
		Short: "Set properties of an object, all or none",
		Long: `set sets properties; others stay. All are set, or none if one of them is refused.
A value is a string, unless the definition says that the property is an integer, a
number or a boolean.`,
		ValidArgsFunction: completeKind,
		RunE: onThing(func(ctx context.Context, _ *cobra.Command, t *thing, pairs []string) error {
			set, err := t.ReadProperties(ctx, t.kind, pairs)
			if err != nil {
				return err
			}
			return t.change(ctx, api.ObjectChange{Set: set})
		}),
	}
}

func propertyRemove() *cobra.Command {
	return &cobra.Command{
		Use:               "remove KIND NAME KEY...",
		Short:             "Remove properties of an object, all or none",
		ValidArgsFunction: completeKind,
		RunE: onThing(func(ctx context.Context, _ *cobra.Command, t *thing, keys []string) error {
			return t.change(ctx, api.ObjectChange{Remove: keys})
		}),
	}
}

func tagCommand() *cobra.Command {
	change := func(use, short string, of func(tags []string) api.ObjectChange) *cobra.Command {
		return &cobra.Command{
			Use: use, Short: short, ValidArgsFunction: completeKind,
			RunE: onThing(func(ctx context.Context, _ *cobra.Command, t *thing, tags []string) error {
				return t.change(ctx, of(tags))
			}),
		}
	}
	return verb.Group("tag", "Tag instances, images, hosts and groups",
		`tag manages tags: words that people put on instances, images, hosts and groups, to
filter lists by. All who see an object can read its tags; members of its project change
them.`,
		`  croft property tag add instance web keep reviewed
  croft property tag list instance web
  schedule list --filter tag:keep`,
		change("add KIND NAME TAG...", "Tag a thing", func(tags []string) api.ObjectChange {
			return api.ObjectChange{AddTags: tags}
		}),
		change("remove KIND NAME TAG...", "Remove tags from an object, all or none",
			func(tags []string) api.ObjectChange {
				return api.ObjectChange{RemoveTags: tags}
			}),
		tagList())
}

func tagList() *cobra.Command {
	return &cobra.Command{
		Use:               "list KIND NAME",
		Short:             "Show the tags of an object, one on each line",
		ValidArgsFunction: completeKind,
		RunE: onThing(func(ctx context.Context, cmd *cobra.Command, t *thing, _ []string) error {
			o, err := t.object(ctx)
			if err != nil {
				return err
			}
			if t.WantsData() {
				return t.PrintData(append([]string{}, o.Tags...)) // never null
			}
			for _, tag := range o.Tags {
				fmt.Fprintln(cmd.OutOrStdout(), plain.Line(tag))
			}
			return nil
		}),
	}
}
