package objects

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"croft"
	"croft/internal/nearest"
	"croft/internal/settings"
)

// ParseDefinition parses a definition without its place from YAML or JSON. An empty document is the definition that
// permits everything. Invalid: the error starts with the file's name and the line.
func ParseDefinition(file string, text []byte) (Definition, error) {
	d := Definition{Unknown: Allow}
	if len(text) > MaxDefinition {
		return d, croft.Errorf(croft.Invalid, "%s: it has %d bytes: a definition may have %d", file, len(text),
			MaxDefinition)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document yaml.Node
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) {
		return d, nil
	}
	if err != nil {
		return d, settings.SyntaxError(file, err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return d, croft.Errorf(croft.Invalid, "%s: more than one document: a definition is one", file)
	}
	r := reader{lines: map[string]int{}}
	if root := document.Content[0]; root.Tag != "!!null" {
		err = r.definition(root, &d)
	}
	if err == nil {
		err = d.check()
	}
	wrong, is := errors.AsType[*fault](err)
	switch {
	case is:
		return d, croft.Errorf(croft.Invalid, "%s:%d: %w", file, r.line(wrong.path), wrong)
	case err != nil:
		return d, croft.Errorf(croft.Invalid, "%s: %w", file, err)
	}
	return d, nil
}

// reader reads a definition from nodes, and remembers the line of each part.
type reader struct{ lines map[string]int } // path -> line

// line returns the line of a path, or of its nearest known ancestor.
func (r reader) line(path string) int {
	for path != "" {
		if line := r.lines[path]; line > 0 {
			return line
		}
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
	}
	return 1
}

// field reads the value of one key.
type field func(n *yaml.Node, path string) error

// mapping calls the field of each key of a mapping; any is used for the other keys.
func (r reader) mapping(n *yaml.Node, path string, fields map[string]field, any func(key string) field) error {
	if n.Kind != yaml.MappingNode {
		r.lines[path] = n.Line
		return faultf(or(path, "definition"), "write key: value, one on each line")
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := key.Value
		if path != "" {
			at = path + "." + key.Value
		}
		r.lines[at] = key.Line
		read := fields[key.Value]
		if read == nil && any != nil {
			read = any(key.Value)
		}
		switch {
		case key.Kind != yaml.ScalarNode || key.Anchor != "" || value.Kind == yaml.AliasNode || value.Anchor != "":
			return faultf(at, "anchors, aliases and complex keys are not for definitions: write the value out")
		case seen[key.Value]:
			return faultf(at, "it is set twice")
		case read == nil:
			known := slices.Sorted(maps.Keys(fields))
			return faultf(at, "there is no such key here, only %s%s", strings.Join(known, ", "),
				nearest.Hint(key.Value, known))
		}
		seen[key.Value] = true
		if value.Tag == "!!null" {
			continue // null is the same as absent
		}
		if err := read(value, at); err != nil {
			return err
		}
	}
	return nil
}

func or(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

// list calls read for each item of a list.
func (r reader) list(n *yaml.Node, path string, read field) error {
	if n.Kind != yaml.SequenceNode {
		return faultf(path, "it is a list: write [%.40s]", n.Value)
	}
	for i, item := range n.Content {
		at := path + "[" + strconv.Itoa(i) + "]"
		r.lines[at] = item.Line
		if item.Kind == yaml.AliasNode || item.Anchor != "" {
			return faultf(at, "anchors and aliases are not for definitions: write the value out")
		}
		if err := read(item, at); err != nil {
			return err
		}
	}
	return nil
}

func (r reader) definition(n *yaml.Node, d *Definition) error {
	return r.mapping(n, "", map[string]field{
		"unknown": text(&d.Unknown),
		"properties": func(n *yaml.Node, path string) error {
			d.Properties = map[string]Property{}
			return r.mapping(n, path, nil, func(key string) field {
				d.Properties[key] = Property{}
				return func(n *yaml.Node, path string) error {
					p, err := r.property(n, path)
					d.Properties[key] = p
					return err
				}
			})
		},
		"permissions": r.permissions(&d.Permissions),
	}, nil)
}

func (r reader) property(n *yaml.Node, path string) (p Property, err error) {
	return p, r.mapping(n, path, map[string]field{
		"type": func(n *yaml.Node, path string) error {
			if n.Kind == yaml.ScalarNode {
				p.Types = make([]string, 1)
				return text(&p.Types[0])(n, path)
			}
			return r.list(n, path, func(n *yaml.Node, path string) error {
				p.Types = append(p.Types, "")
				return text(&p.Types[len(p.Types)-1])(n, path)
			})
		},
		"enum": func(n *yaml.Node, path string) error {
			p.Enum = []Value{}
			return r.list(n, path, func(n *yaml.Node, path string) error {
				v, err := scalar(n, path)
				p.Enum = append(p.Enum, v)
				return err
			})
		},
		"multipleOf": number(&p.MultipleOf), "minimum": number(&p.Minimum), "maximum": number(&p.Maximum),
		"minLength": length(&p.MinLength), "maxLength": length(&p.MaxLength),
		"pattern": text(&p.Pattern), "format": text(&p.Format),
		"required": func(n *yaml.Node, path string) error {
			if n.ShortTag() != "!!bool" || n.Decode(&p.Required) != nil {
				return faultf(path, "want true or false, not %.40q", n.Value)
			}
			return nil
		},
		"permissions": r.permissions(&p.Permissions),
	}, nil)
}

func (r reader) permissions(into *[]Permission) field {
	return func(n *yaml.Node, path string) error {
		return r.list(n, path, func(n *yaml.Node, path string) error {
			var p Permission
			said := false
			err := r.mapping(n, path, map[string]field{
				"project": text(&p.Project), "role": text(&p.Role),
				"value": func(n *yaml.Node, path string) error { said = true; return text(&p.Value)(n, path) },
			}, nil)
			if err == nil && !said {
				err = faultf(path, `it has no value: write value: "", r, w or rw`)
			}
			*into = append(*into, p)
			return err
		})
	}
}

// text reads a string.
func text[T ~string](into *T) field {
	return func(n *yaml.Node, path string) error {
		if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
			return faultf(path, "want a text, not %.40q: put it in quotes", n.Value)
		}
		*into = T(n.Value)
		return nil
	}
}

func number(into **float64) field {
	return func(n *yaml.Node, path string) error {
		var f float64
		tag := n.ShortTag()
		if tag != "!!int" && tag != "!!float" || n.Decode(&f) != nil || math.IsInf(f, 0) || math.IsNaN(f) {
			return faultf(path, "want a number, not %.40q", n.Value)
		}
		*into = &f
		return nil
	}
}

func length(into **int) field {
	return func(n *yaml.Node, path string) error {
		var i int
		if n.ShortTag() != "!!int" || n.Decode(&i) != nil {
			return faultf(path, "want a whole number, not %.40q", n.Value)
		}
		*into = &i
		return nil
	}
}

// scalar reads a value of a property. An unquoted date is a string.
func scalar(n *yaml.Node, path string) (Value, error) {
	if n.Kind != yaml.ScalarNode {
		return Value{}, faultf(path, "want a string, a number, true or false")
	}
	switch n.ShortTag() {
	case "!!bool":
		var b bool
		if err := n.Decode(&b); err == nil {
			return Boolean(b), nil
		}
	case "!!int":
		var i int64
		if err := n.Decode(&i); err == nil {
			return Integer(i), nil
		}
	case "!!float":
		var f float64
		if err := n.Decode(&f); err == nil {
			if v, err := Number(f); err == nil {
				return v, nil
			}
		}
	case "!!str", "!!timestamp":
		return Text(n.Value), nil
	}
	return Value{}, faultf(path, "want a string, a number, true or false, not %.40q", n.Value)
}

// Document returns the definition as YAML for ParseDefinition.
func (d Definition) Document() ([]byte, error) {
	var root yaml.Node
	text, err := json.Marshal(struct {
		Unknown     Unknown             `json:"unknown"`
		Properties  map[string]Property `json:"properties,omitempty"`
		Permissions []Permission        `json:"permissions,omitempty"`
	}{d.Unknown, d.Properties, d.Permissions})
	if err == nil {
		err = yaml.Unmarshal(text, &root) // JSON is valid YAML: only the style changes
	}
	if err != nil {
		return nil, fmt.Errorf("write the definition: %w", err)
	}
	blockStyle(&root)
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := errors.Join(e.Encode(&root), e.Close()); err != nil {
		return nil, fmt.Errorf("write the definition: %w", err)
	}
	return b.Bytes(), nil
}

// blockStyle resets the style of mappings, and of scalars that are strings in every style.
func blockStyle(n *yaml.Node) {
	n.Style = 0
	for _, child := range n.Content {
		blockStyle(child)
	}
}
