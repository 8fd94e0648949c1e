package template

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"

	"croft"
	"croft/internal/plain"
)

// parse parses one document as Heat does: JSON if it starts with a brace, else YAML.
func parse(text string) (*yaml.Node, error) {
	if !utf8.ValidString(text) {
		return nil, croft.Errorf(croft.Invalid, "the template is not text in UTF-8")
	}
	if strings.HasPrefix(text, "{") {
		return parseJSON(text)
	}
	return parseYAML(text)
}

func parseYAML(text string) (*yaml.Node, error) {
	d := yaml.NewDecoder(strings.NewReader(text))
	var document, more yaml.Node
	if err := d.Decode(&document); errors.Is(err, io.EOF) {
		return nil, croft.Errorf(croft.Invalid, "the template is empty")
	} else if err != nil {
		return nil, unreadable(err)
	}
	switch err := d.Decode(&more); {
	case err == nil:
		return nil, wrong(&more, "a second YAML document starts; a template is one document")
	case !errors.Is(err, io.EOF):
		return nil, unreadable(err)
	}
	root := &document
	if root.Kind == yaml.DocumentNode {
		root = root.Content[0]
	}
	if root.Kind != yaml.MappingNode {
		return nil, wrong(root, "a template is a mapping of sections")
	}
	return root, nil
}

// unreadable words an error of the parser, including its line.
func unreadable(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	return croft.Errorf(croft.Invalid, "the template is not YAML: %s", plain.Cut(text, 300))
}

// refuse checks every node: it rejects everything that another parser could understand differently, and everything that
// names a file.
func refuse(root *yaml.Node) error {
	left := mostNodes
	return refuseBelow(root, 1, &left)
}

func refuseBelow(n *yaml.Node, depth int, left *int) error {
	*left--
	switch {
	case depth > mostDepth:
		return wrong(n, "the template is nested deeper than %d", mostDepth)
	case *left < 0:
		return wrong(n, "the template has more than %d values", mostNodes)
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		return wrong(n, "anchors and aliases are not permitted; write the value out")
	case n.Style&yaml.TaggedStyle != 0 && !plainTag(n.Tag):
		return wrong(n, "the tag %.40q is not permitted", n.Tag)
	}
	if n.Kind == yaml.MappingNode {
		if err := refuseKeys(n); err != nil {
			return err
		}
	}
	for _, child := range n.Content {
		if err := refuseBelow(child, depth+1, left); err != nil {
			return err
		}
	}
	return nil
}

// plainTag reports tags that only set the type of a plain value.
func plainTag(tag string) bool {
	return slices.Contains([]string{"!!str", "!!int", "!!float", "!!bool", "!!null", "!!map", "!!seq"}, tag)
}

// refuseKeys checks the keys of one mapping.
func refuseKeys(n *yaml.Node) error {
	seen := map[string]bool{}
	for key := range pairs(n) {
		switch {
		case key.Kind != yaml.ScalarNode:
			return wrong(key, "a key is not plain text")
		case key.Value == "<<" || key.Tag == "!!merge":
			return wrong(key, "merging mappings is not permitted; write the values out")
		case key.Value == "get_file":
			return wrong(key,
				"get_file is not permitted: a template is all that is sent to the site; write the text of "+
					"the file into the template")
		case key.Value == "resource_registry":
			return wrong(key, "resource_registry is not permitted: it belongs to an environment, not to a template")
		case seen[key.Value]:
			return wrong(key, "%.60q is there twice", key.Value)
		}
		seen[key.Value] = true
	}
	return nil
}

// pairs iterates over the keys and values of a mapping; other nodes have none.
func pairs(n *yaml.Node) iter.Seq2[*yaml.Node, *yaml.Node] {
	return func(yield func(*yaml.Node, *yaml.Node) bool) {
		if n == nil || n.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			if !yield(n.Content[i], n.Content[i+1]) {
				return
			}
		}
	}
}

// field returns the value of a key of a mapping, or nil.
func field(n *yaml.Node, name string) *yaml.Node {
	for key, value := range pairs(n) {
		if key.Value == name {
			return value
		}
	}
	return nil
}

func empty(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func contains(list []string, text string) bool { return slices.Contains(list, text) }

// wrong returns an error for a line.
func wrong(at *yaml.Node, format string, args ...any) error {
	return croft.Errorf(croft.Invalid, "line %d: %s", max(1, at.Line), plain.Line(fmt.Sprintf(format, args...)))
}

// parseJSON parses JSON into the same node types.
func parseJSON(text string) (*yaml.Node, error) {
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	r := jsonReader{text: text, decoder: d, line: 1}
	root, err := r.value(1)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, croft.Errorf(croft.Invalid, "line %d: text follows the JSON of the template", r.here())
	}
	return root, nil
}

// jsonReader converts tokens to nodes.
type jsonReader struct {
	text    string
	decoder *json.Decoder
	line    int // of offset
	offset  int64
}

// here returns the line at the current position.
func (r *jsonReader) here() int {
	at := min(r.decoder.InputOffset(), int64(len(r.text)))
	r.line += strings.Count(r.text[r.offset:at], "\n")
	r.offset = at
	return r.line
}

// value reads the next value, at a depth.
func (r *jsonReader) value(depth int) (*yaml.Node, error) {
	token, err := r.decoder.Token()
	line := r.here()
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "line %d: the template starts with { but is not JSON: %s", line,
			plain.Cut(err.Error(), 300))
	}
	if depth > mostDepth {
		return nil, croft.Errorf(croft.Invalid, "line %d: the template is nested deeper than %d", line, mostDepth)
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: line, Tag: "!!str"}
	switch t := token.(type) {
	case json.Delim:
		return r.collection(t, n, depth)
	case string:
		n.Value = t
	case nil:
		n.Tag = "!!null"
	default:
		n.Tag, n.Value = "!!scalar", fmt.Sprint(t)
	}
	return n, nil
}

// collection reads the content after an opening delimiter.
func (r *jsonReader) collection(open json.Delim, n *yaml.Node, depth int) (*yaml.Node, error) {
	n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
	if open == '{' {
		n.Kind, n.Tag = yaml.MappingNode, "!!map"
	}
	for r.decoder.More() {
		child, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, child)
	}
	if _, err := r.decoder.Token(); err != nil {
		return nil, croft.Errorf(croft.Invalid, "line %d: the template ends in the middle of its JSON", r.here())
	}
	return n, nil
}
