package cli

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"croft"
	"croft/grid/state"
	"croft/grid/unit"
	"croft/internal/command"
	"croft/internal/out"
	"croft/internal/plain"
)

// originRow is a value and its origin, as data.
type originRow struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
	File  string `json:"file"`
	Line  int    `json:"line,omitempty"`
}

func showCommand(o *options) *cobra.Command {
	var origin bool
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Print a node, a directory, a job or a slot with all that it inherits",
		Long: `show prints what a file says together with what it inherits. The name is that of a node or
a job (jobs/NAME where a node has the name too), or the path of a file or directory.
JOB/NUMBER is a slot, of which it prints what runs on its node, with every ${...} replaced.
Secrets are not shown.

--origin prints each value on a line, with the file and line that it comes from.`,
		Example: `  croft grid show web1
  croft grid show jobs/web/front@7 --origin
  croft grid show web/front@7/0 -o json
  croft grid show nodes/syd
  croft grid show cluster.yaml`,
		Args: command.Count(1, 1),
		RunE: func(cmd *cobra.Command, given []string) error {
			data, err := o.data()
			if err != nil {
				return err
			}
			s, err := o.load(cmd)
			if err != nil {
				return err
			}
			v, u, err := find(cmd, s, given[0])
			switch {
			case err != nil:
				return err
			case u != nil && origin:
				return croft.Errorf(croft.Invalid, "--origin: values of a slot come from the job %s, its node, and the place "+
					"itself: show the job", u.Job)
			case u != nil:
				return out.PrintData(cmd.OutOrStdout(), dataFormat(o.output), u)
			case origin:
				return o.printOrigins(cmd, v, data)
			}
			return printValue(cmd, dataFormat(o.output), v)
		},
	}
	cmd.Flags().BoolVar(&origin, "origin", false, "print where each value comes from")
	o.formats(cmd)
	return cmd
}

func dataFormat(format string) string {
	if format == out.FormatText {
		return out.FormatYAML
	}
	return format
}

// find returns the values for a name, or the unit of a slot.
func find(cmd *cobra.Command, s *state.State, name string) (*state.Value, *unit.Unit, error) {
	name = strings.TrimSuffix(name, "/")
	if name == state.ClusterFile || name == "cluster" {
		return s.Settings, nil, nil
	}
	for _, b := range s.Buckets {
		if b.Path == name || b.Path+"/_.yaml" == name {
			return b.Values, nil, nil
		}
	}
	if n, err := findNode(s, name); err == nil {
		return n.Values, nil, nil
	}
	if j, err := findJob(s, name); err == nil {
		return j.Values, nil, nil
	}
	at := strings.LastIndexByte(name, '/')
	number, err := strconv.Atoi(name[at+1:])
	if j := s.Job(strings.TrimPrefix(name[:max(at, 0)], "alloc/")); j != nil && err == nil {
		for _, slot := range j.Slots {
			if slot.Number == number && slot.Node != nil {
				u, err := s.Unit(cmd.Context(), j, number, slot.Node)
				return nil, &u, err
			}
		}
		return nil, nil, croft.Errorf(croft.NotFound, "the job %s has no node for slot %d: croft grid place gives it one",
			j.Name, number)
	}
	var names []string
	for _, n := range s.Leaves {
		names = append(names, n.Name)
	}
	for _, j := range s.Jobs {
		names = append(names, j.Name)
	}
	return nil, nil, missing("node, directory, job or slot", name, names)
}

// printValue prints a value in the form of its file.
func printValue(cmd *cobra.Command, format string, v *state.Value) error {
	if format == out.FormatJSON {
		return out.PrintData(cmd.OutOrStdout(), format, ordered{v})
	}
	text, err := yaml.Marshal(yamlOf(v))
	if err != nil {
		return fmt.Errorf("print as yaml: %w", err)
	}
	_, err = cmd.OutOrStdout().Write(text)
	return err
}

// hidden is printed for a secret.
const hidden = "(sealed)"

// scalar returns a value that contains no other values.
func scalar(v *state.Value) any {
	switch v.Kind {
	case state.Null:
		return nil
	case state.Bool:
		return strings.EqualFold(v.Text, "true")
	case state.Int, state.Float:
		if n := json.Number(v.Text); isNumber(n) {
			return n
		}
	}
	if v.Sealed() {
		return hidden
	}
	return plain.Lines(v.Text)
}

// isNumber reports whether n is a valid number of JSON.
func isNumber(n json.Number) bool {
	_, err := json.Marshal(n)
	return err == nil
}

// ordered is a value as JSON, with its keys in the order of the files.
type ordered struct{ v *state.Value }

func (o ordered) MarshalJSON() ([]byte, error) {
	switch o.v.Kind {
	case state.List:
		items := make([]ordered, len(o.v.Items))
		for i, item := range o.v.Items {
			items[i] = ordered{item}
		}
		return json.Marshal(items)
	case state.Map:
		text := []byte{'{'}
		for i, key := range o.v.Keys {
			if i > 0 {
				text = append(text, ',')
			}
			name, err := json.Marshal(key)
			if err != nil {
				return nil, err
			}
			value, err := json.Marshal(ordered{o.v.Fields[key]})
			if err != nil {
				return nil, err
			}
			text = append(append(append(text, name...), ':'), value...)
		}
		return append(text, '}'), nil
	}
	return json.Marshal(scalar(o.v))
}

// yamlOf returns a value as YAML.
func yamlOf(v *state.Value) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode}
	switch v.Kind {
	case state.List:
		n.Kind = yaml.SequenceNode
		for _, item := range v.Items {
			n.Content = append(n.Content, yamlOf(item))
		}
	case state.Map:
		n.Kind = yaml.MappingNode
		for _, key := range v.Keys {
			name := &yaml.Node{Kind: yaml.ScalarNode, Value: key, Tag: "!!str"}
			n.Content = append(n.Content, name, yamlOf(v.Fields[key]))
		}
	case state.Null:
		n.Value = "~"
	case state.String:
		n.SetString(fmt.Sprint(scalar(v)))
	default:
		n.Value = plain.Line(v.Text)
	}
	return n
}

// printOrigins prints each value and its origin.
func (o *options) printOrigins(cmd *cobra.Command, v *state.Value, data bool) error {
	rows := origins("", v, []originRow{})
	if data {
		return out.PrintData(cmd.OutOrStdout(), o.output, rows)
	}
	t := &out.Table{Color: out.IsColored(cmd.OutOrStdout())}
	t.Head("KEY", "VALUE", "FROM")
	for _, r := range rows {
		at := state.Position{File: r.File, Line: r.Line}
		t.Texts(r.Key, strings.ReplaceAll(fmt.Sprint(r.Value), "\n", `\n`), at.String())
	}
	return t.Print(cmd.OutOrStdout())
}

func origins(key string, v *state.Value, rows []originRow) []originRow {
	join := func(part string) string {
		if key == "" {
			return part
		}
		return key + "." + part
	}
	switch {
	case v.Kind == state.Map && len(v.Keys) > 0:
		for _, name := range v.Keys {
			rows = origins(join(name), v.Fields[name], rows)
		}
		return rows
	case v.Kind == state.List && len(v.Items) > 0:
		for i, item := range v.Items {
			rows = origins(join(strconv.Itoa(i)), item, rows)
		}
		return rows
	case key == "":
		return rows
	}
	value := any("{}")
	switch v.Kind {
	case state.Map:
	case state.List:
		value = "[]"
	default:
		value = scalar(v)
	}
	return append(rows, originRow{key, value, v.At.File, v.At.Line})
}
