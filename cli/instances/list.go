package instances

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"croft"
	"croft/control/api"
	"croft/internal/command"
	"croft/internal/out"
	"croft/internal/wording"
	"croft/schedule"
	"croft/tenant/objects"
)

// listing configures a list: its instances, their order, and the columns.
type listing struct {
	all, watch bool
	columns    []string
	sort       string
	choice
}

func listCommand() *cobra.Command {
	var l listing
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the instances",
		Long: `list shows the instances of the project: name, state, address, host and age, and, if any
instance expires, the remaining time. -o wide shows all columns, and --columns some of

  ` + strings.Join(wideColumns, ", ") + `

With -o json or yaml each instance is as in the API, whatever the columns: it has
the keys name, state, address, host, host_id, id, project, query, resources, image, tags,
created, generation and error, expires if it has an end, labels if it has properties,
cluster if it is part of one, and for operators location. These keys do not change; new
keys may be added. The state is the word in this list.

--tag selects by the tags that an instance got with its request and that its guest
reads; --filter selects by properties and tags that people set (croft property, croft
property tag).`,
		Example: `  schedule list --state failed,unknown --all
  schedule list --host host1 --tag role=web --sort -created
  schedule list --filter 'owner=jo tier=gold*' --filter tag:keep
  schedule list --columns name,address,id`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := l.check(); err != nil {
				return err
			}
			return within(cmd, func(ctx context.Context, c *session) error {
				if l.all {
					c.Project = ""
				}
				if l.watch {
					return c.watchList(ctx, cmd, l)
				}
				text, err := c.renderList(ctx, cmd, l)
				if err == nil {
					_, err = fmt.Fprint(cmd.OutOrStdout(), text)
				}
				return err
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&l.watch, "watch", "w", false, "print the list again whenever something changes, until interrupted")
	flags.BoolVarP(&l.all, "all", "a", false, "list the instances of all projects")
	flags.StringSliceVar(&l.columns, "columns", nil, "show these `columns`, separated by commas")
	flags.StringVar(&l.sort, "sort", "", "sort by this `column`; with - before it, in reverse order")
	l.choice.addFlags(flags)
	command.CompleteFlag(cmd, "columns", wideColumns)
	command.CompleteFlag(cmd, "sort", wideColumns)
	command.CompleteFlag(cmd, "state", states)
	return cmd
}

// states are the words for the states of instances.
var states = func() []string {
	words := []string{string(croft.StateScheduling), string(croft.StateHeld), schedule.Ordered}
	for _, s := range croft.ObservedStates {
		words = append(words, string(s))
	}
	return append(words, schedule.Unknown, string(croft.StateDestroying), string(croft.StateLost))
}()

// The default columns of lists, and all columns.
var (
	briefColumns = []string{"name", "state", "address", "host", "age"}
	wideColumns  = []string{"project", "name", "state", "address", "host", "age", "expires", "resources", "image",
		"created", "tags", "properties", "cluster", "id"}
)

// columnOf returns the cell of a column for an instance.
func columnOf(name string, d api.Instance) out.Cell {
	switch name {
	case "project":
		return out.Cell{Text: string(d.Project)}
	case "name":
		return out.Cell{Text: d.Name}
	case "state":
		return StateCell(d.State)
	case "address":
		return out.Cell{Text: out.OrDash(d.Address)}
	case "host":
		return out.Cell{Text: out.OrDash(d.Host)}
	case "age":
		return out.Cell{Text: wording.Age(time.Since(d.Created))}
	case "expires":
		cell := out.Cell{Text: out.OrDash(remaining(d.Expires))}
		if expiresSoon(d.Expires) {
			cell.Color = out.Yellow
		}
		return cell
	case "resources":
		return out.Cell{Text: d.Resources.String()}
	case "image":
		return out.Cell{Text: out.OrDash(d.Image)}
	case "created":
		return out.Cell{Text: d.Created.Local().Format(time.DateTime)}
	case "cluster":
		return out.Cell{Text: out.OrDash(string(d.Cluster))}
	case "tags":
		return pairs(d.Tags, func(value string) string { return value })
	case "properties":
		return pairs(d.Labels, objects.Value.String)
	}
	return out.Cell{Text: string(d.ID)}
}

// pairs returns the cell of a map, in the order of its keys.
func pairs[V any](all map[string]V, text func(V) string) out.Cell {
	var words []string
	for _, key := range slices.Sorted(maps.Keys(all)) {
		words = append(words, key+"="+text(all[key]))
	}
	return out.Cell{Text: out.OrDash(strings.Join(words, ","))}
}

// check returns an error for unknown columns and states.
func (l listing) check() error {
	for _, words := range []struct {
		flag         string
		given, known []string
	}{
		{"columns", l.columns, wideColumns},
		{"sort", strings.Fields(strings.TrimPrefix(l.sort, "-")), wideColumns},
	} {
		for _, word := range words.given {
			if !slices.Contains(words.known, word) {
				return notOneOf(words.flag, word, words.known)
			}
		}
	}
	return l.choice.check()
}

// inOrder returns instances in the requested order.
func (l listing) inOrder(all []api.Instance) []api.Instance {
	if column, backwards := strings.CutPrefix(l.sort, "-"); column != "" {
		slices.SortStableFunc(all, func(a, b api.Instance) int {
			if backwards {
				a, b = b, a
			}
			return compareBy(column, a, b)
		})
	}
	return all
}

func compareBy(column string, a, b api.Instance) int {
	switch column {
	case "expires":
		return compareEnds(a.Expires, b.Expires)
	case "age":
		return b.Created.Compare(a.Created)
	case "created":
		return a.Created.Compare(b.Created)
	case "address":
		first, _ := netip.ParseAddr(a.Address) // instances without an address come first
		second, _ := netip.ParseAddr(b.Address)
		return first.Compare(second)
	}
	return cmp.Compare(columnOf(column, a).Text, columnOf(column, b).Text)
}

// compareEnds sorts earlier ends first, and instances that never end last.
func compareEnds(a, b time.Time) int {
	if a.IsZero() || b.IsZero() {
		return b.Compare(a)
	}
	return a.Compare(b)
}

// hasTags reports whether all wanted tags, key or key=value, are set.
func hasTags(tags map[string]string, wanted []string) bool {
	return !slices.ContainsFunc(wanted, func(want string) bool {
		key, value, exact := strings.Cut(want, "=")
		got, there := tags[key]
		return !there || exact && got != value
	})
}

// Table returns a table of instances of any project.
func Table(all []api.Instance) *out.Table {
	return listing{columns: append([]string{"project"}, briefColumns...)}.table(all)
}

// table returns the list as a table.
func (l listing) table(all []api.Instance) *out.Table {
	t := &out.Table{}
	var head []string
	for _, name := range l.columns {
		head = append(head, strings.ToUpper(name))
	}
	t.Head(head...)
	for _, i := range all {
		var row []out.Cell
		for _, name := range l.columns {
			row = append(row, columnOf(name, i))
		}
		t.Row(row...)
	}
	return t
}

// watchList prints the list now and after every visible change. On a terminal it redraws in place; as JSON each
// list is one line.
func (c *session) watchList(ctx context.Context, cmd *cobra.Command, l listing) error {
	ctx, cancel := context.WithCancel(ctx)
	wake, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		defer cancel() // watching ends early only because of a permanent error, such as a revoked token
		ended <- c.WatchInstances(ctx, func() {
			select {
			case wake <- struct{}{}:
			default: // a change is already waiting
			}
		})
	}()
	err := c.printLists(ctx, cmd, l, wake)
	cancel()
	if watching := <-ended; err == nil && !errors.Is(watching, context.Canceled) {
		err = watching
	}
	return err
}

// printLists returns no error when ctx ends, because watching ends this way.
func (c *session) printLists(ctx context.Context, cmd *cobra.Command, l listing, wake <-chan struct{}) error {
	stdout := cmd.OutOrStdout()
	last := ""
	for {
		text, err := c.renderList(ctx, cmd, l)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil && text != last {
			switch {
			case out.IsTerminal(stdout):
				fmt.Fprint(stdout, "\x1b[H\x1b[2J", text)
			case last != "" && c.Settings.Output != out.FormatJSON:
				fmt.Fprint(stdout, "\n", text)
			default:
				fmt.Fprint(stdout, text)
			}
			last = text
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return nil
		}
	}
}

// renderList returns the list as printed.
func (c *session) renderList(ctx context.Context, cmd *cobra.Command, l listing) (string, error) {
	all, err := c.chosen(ctx, l.choice)
	if err != nil {
		return "", err
	}
	all = l.inOrder(all)
	if !l.watch {
		c.NoteUnknownProject(cmd, len(all))
	}
	if format := c.Settings.Output; format == out.FormatJSON || format == out.FormatYAML {
		return renderData(format, all, l.watch)
	}
	chosen := l.columns != nil
	switch {
	case chosen:
	case c.Settings.Output == out.FormatWide:
		l.columns = wideColumns
	case c.Project == "":
		l.columns = append([]string{"project"}, briefColumns...)
	default:
		l.columns = briefColumns
	}
	if c.Settings.Output != out.FormatWide && !chosen && slices.ContainsFunc(all, func(i api.Instance) bool {
		return !i.Expires.IsZero()
	}) {
		l.columns = append(slices.Clone(l.columns), "expires")
	}
	t := l.table(all)
	t.Color = out.IsColored(cmd.OutOrStdout())
	return t.String(), nil
}

func renderData(format string, all []api.Instance, line bool) (string, error) {
	if line && format == out.FormatJSON {
		text, err := json.Marshal(all)
		return string(text) + "\n", err
	}
	var b strings.Builder
	err := out.PrintData(&b, format, all)
	if line && format == out.FormatYAML {
		return "---\n" + b.String(), err
	}
	return b.String(), err
}
