package partitions

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/cli/args"
	"croft/cli/verb"
	"croft/control/api"
	"croft/control/federation"
	"croft/internal/out"
	"croft/tenant"
	"croft/tenant/objects"
)

func showCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show PARTITION [KIND]",
		Short: "Show the import of a partition: its time and counts, or all records of a kind",
		Long: `show prints the time of an import, and the number of records of each kind. With a kind
it lists all of these: host, provider, quota, project, definition, object or instance,
with or without an s at the end. -o json has every field.`,
		ValidArgsFunction: complete,
		RunE: verb.Run(func(ctx context.Context, c *args.Client) error {
			if len(c.Args) == 1 {
				return partitions.PrintOne(ctx, c, c.Args[0])
			}
			kind := federation.Kind(strings.TrimSuffix(c.Args[1], "s"))
			list, err := c.ListRows(ctx, api.RowsOfKind{PartitionNamed: api.PartitionNamed{ID: c.Args[0]}, Kind: kind})
			if err != nil {
				return err
			}
			return showRows(c, kind, list.Rows)
		}),
	}
}

// showRows prints the rows of a kind.
func showRows(c *args.Client, kind federation.Kind, rows []json.RawMessage) error {
	if c.WantsData() {
		return c.PrintData(rows)
	}
	t := &out.Table{}
	table := tables[kind]
	t.Head(table.head...)
	for _, row := range rows {
		texts, err := table.texts(row)
		if err != nil {
			return fmt.Errorf("read a row of the import: %w", err)
		}
		t.Texts(texts...)
	}
	return t.Print(c.Cmd.OutOrStdout())
}

// table describes how to print the rows of a kind.
type table struct {
	head  []string
	texts func(json.RawMessage) ([]string, error)
}

var tables = map[federation.Kind]table{
	federation.KindHost: {[]string{"NAME", "LOCATION", "STATE", "VERSION", "ID"}, texts(
		func(h federation.Host) []string {
			state := map[bool]string{true: "drained", false: "-"}[h.Drained]
			return []string{h.Name, h.Location, state, h.Version, string(h.ID)}
		})},
	federation.KindProvider: {[]string{"NAME", "CAPACITY", "TRAITS", "ID"}, texts(func(p federation.Provider) []string {
		var capacity []string
		for _, class := range slices.Sorted(maps.Keys(p.Inventories)) {
			capacity = append(capacity, fmt.Sprintf("%s:%d", class, p.Inventories[class].Capacity()))
		}
		return []string{p.Name, strings.Join(capacity, ","), fmt.Sprint(len(p.Traits)), string(p.ID)}
	})},
	federation.KindAggregate: {[]string{"NAME", "HOSTS", "PUBLIC", "NOTE"}, texts(func(a croft.Aggregate) []string {
		return []string{a.Name, fmt.Sprint(len(a.Hosts)), fmt.Sprint(a.Public), a.Note}
	})},
	federation.KindDistance: {[]string{"TYPE", "A", "B", "DISTANCE"}, texts(func(d federation.Distance) []string {
		return []string{d.Type, d.A, d.B, fmt.Sprint(d.Distance.Distance)}
	})},
	federation.KindQuota: {[]string{"LIMITS"}, texts(func(d tenant.Defaults) []string {
		return []string{tenant.Amounts(d.Limits).String()}
	})},
	federation.KindProject: {[]string{"NAME", "PARENT", "MEMBERS", "LIMITS", "NOTE"}, texts(
		func(p tenant.Tenant) []string {
			return []string{string(p.Name), string(p.Parent), fmt.Sprint(len(p.Members)),
				tenant.Amounts(p.Limits).String(), p.Note}
		})},
	federation.KindDefinition: {[]string{"LEVEL", "KIND", "PROPERTIES"}, texts(func(d objects.Definition) []string {
		return []string{string(d.Level), string(d.Kind), strings.Join(slices.Sorted(maps.Keys(d.Properties)), ",")}
	})},
	federation.KindObject: {[]string{"KIND", "PROJECT", "ID", "PROPERTIES", "TAGS"}, texts(
		func(o objects.Object) []string {
			return []string{string(o.Kind), string(o.Project), o.ID,
				strings.Join(slices.Sorted(maps.Keys(o.Properties)), ","), strings.Join(o.Tags, ",")}
		})},
	federation.KindInstance: {[]string{"PROJECT", "NAME", "STATE", "RESOURCES", "CREATED", "HOST", "ID"}, texts(
		func(i federation.Instance) []string {
			return []string{string(i.Project), i.Name, string(i.State), i.Resources.String(),
				i.Created.Format(time.DateTime), string(i.Host), string(i.ID)}
		})},
}

func texts[T any](of func(T) []string) func(json.RawMessage) ([]string, error) {
	return func(row json.RawMessage) ([]string, error) {
		var v T
		if err := json.Unmarshal(row, &v); err != nil {
			return nil, err
		}
		return of(v), nil
	}
}

// complete completes the aliases of other clouds, and after the partition of show a kind.
func complete(cmd *cobra.Command, given []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(given) == 1 && cmd.Name() == "show" {
		var kinds []string
		for _, kind := range federation.Kinds {
			kinds = append(kinds, string(kind)+"s")
		}
		return kinds, cobra.ShellCompDirectiveNoFileComp
	}
	return verb.Complete(1, func(ctx context.Context, c *args.Client, offer args.Offer) error {
		all, err := partitions.All(ctx, c)
		for _, p := range all {
			if !p.Home {
				offer(p.Alias, "")
			}
		}
		return err
	})(cmd, given, prefix)
}
