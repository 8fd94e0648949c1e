package ipam

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"croft"
	"croft/grid/ipam/setexpr"
	"croft/internal/nearest"
	"croft/internal/settings"
)

// parse parses one YAML document, which must be a mapping or empty. It refuses anchors and aliases, so that a small
// file cannot expand to a large value, and duplicate keys. Invalid: the error names the line.
func parse(file string, text []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document yaml.Node
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) {
		return &yaml.Node{Kind: yaml.MappingNode}, nil
	} else if err != nil {
		return nil, settings.SyntaxError(file, err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, croft.Errorf(croft.Invalid, "%s: more than one document", file)
	}
	root := document.Content[0]
	if root.Tag == "!!null" && len(document.Content) == 1 {
		return &yaml.Node{Kind: yaml.MappingNode}, nil
	}
	if root.Kind != yaml.MappingNode {
		return nil, wrongAt(file, root, "write key: value, one on each line")
	}
	return root, checkNode(file, root, 0)
}

func wrongAt(file string, n *yaml.Node, format string, args ...any) error {
	return croft.Errorf(croft.Invalid, "%s:%d: "+format, append([]any{file, n.Line}, args...)...)
}

func checkNode(file string, n *yaml.Node, depth int) error {
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		return wrongAt(file, n, "anchors and aliases are not for these files: write the value out")
	case depth > maxDepth:
		return wrongAt(file, n, "values are more than %d deep in each other", maxDepth)
	}
	seen := map[string]bool{}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			if child.Kind != yaml.ScalarNode || child.Tag == "!!merge" {
				return wrongAt(file, child, "a key is one word")
			}
			if seen[child.Value] {
				return wrongAt(file, child, "%s is set twice", child.Value)
			}
			seen[child.Value] = true
		}
		if err := checkNode(file, child, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// reader reads the known keys of a file. It keeps the first error.
type reader struct {
	file string
	root *yaml.Node
	keys []string
	err  error
}

func (d *Dir) reader(file string) (*reader, error) {
	text, err := d.read(file)
	if err != nil {
		return nil, err
	}
	root, err := parse(file, text)
	return &reader{file: file, root: root}, err
}

// at returns the value of a key; nil: the key is missing, or its value is null.
func (r *reader) at(key string) *yaml.Node {
	r.keys = append(r.keys, key)
	for i := 0; i+1 < len(r.root.Content); i += 2 {
		if value := r.root.Content[i+1]; r.root.Content[i].Value == key && value.Tag != "!!null" {
			return value
		}
	}
	return nil
}

func (r *reader) wrong(n *yaml.Node, format string, args ...any) {
	if r.err == nil {
		r.err = wrongAt(r.file, n, format, args...)
	}
}

func (r *reader) text(n *yaml.Node, key string) string {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" && n.Tag != "!!timestamp" {
		r.wrong(n, "%s: want a text, not %s; put it in quotes", key, describe(n))
		return ""
	}
	return n.Value
}

func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	}
	return n.Value
}

// items returns the values of a list. A value that is not a list counts as a list of one.
func (r *reader) items(n *yaml.Node) []*yaml.Node {
	if n.Kind == yaml.SequenceNode {
		return n.Content
	}
	return []*yaml.Node{n}
}

// scalars returns the scalars in the list of a key, whatever their YAML types.
func (r *reader) scalars(key string) []*yaml.Node {
	n := r.at(key)
	if n == nil {
		return nil
	}
	all := r.items(n)
	for _, item := range all {
		if item.Kind != yaml.ScalarNode {
			r.wrong(item, "%s: want a text, not %s", key, describe(item))
			return nil
		}
	}
	return all
}

func (r *reader) prefix(key string) (p netip.Prefix) {
	if n := r.at(key); n != nil {
		var err error
		if p, err = setexpr.ParsePrefix(r.text(n, key)); err != nil {
			r.wrong(n, "%s: %w", key, err)
		}
	}
	return p
}

func (r *reader) addr(key string) (a netip.Addr) {
	if n := r.at(key); n != nil {
		var err error
		if a, err = setexpr.ParseAddr(r.text(n, key)); err != nil {
			r.wrong(n, "%s: %w", key, err)
		}
	}
	return a
}

func (r *reader) flag(key string) (is bool) {
	if n := r.at(key); n != nil && (n.Tag != "!!bool" || n.Decode(&is) != nil) {
		r.wrong(n, "%s: want true or false, not %s", key, describe(n))
	}
	return is
}

func (r *reader) duration(key string, otherwise time.Duration) time.Duration {
	n := r.at(key)
	if n == nil {
		return otherwise
	}
	d, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || d < 0 {
		r.wrong(n, "%s: want a duration such as 30m or 24h, or 0, not %s", key, describe(n))
	}
	return d
}

func (r *reader) oneOf(key, otherwise string, words ...string) string {
	n := r.at(key)
	if n == nil {
		return otherwise
	}
	if n.Kind != yaml.ScalarNode || !slices.Contains(words, n.Value) {
		r.wrong(n, "%s: want %s, not %s%s", key, strings.Join(words, " or "), describe(n), nearest.Hint(n.Value, words))
	}
	return n.Value
}

func (r *reader) names(key string) []string {
	var all []string
	for _, n := range r.scalars(key) {
		if !validName(n.Value) {
			r.wrong(n, "%s: %w", key, CheckName(n.Value))
		}
		all = append(all, n.Value)
	}
	return all
}

// unknown returns sentences about unknown keys that are probably misspelled known keys. It ignores other unknown keys.
func (r *reader) unknown() []string {
	var notes []string
	for i := 0; i+1 < len(r.root.Content); i += 2 {
		key := r.root.Content[i]
		if slices.Contains(r.keys, key.Value) {
			continue
		}
		if hint := nearest.Hint(key.Value, r.keys); hint != "" {
			notes = append(notes, wrongAt(r.file, key, "%s means nothing here%s", key.Value, hint).Error())
		}
	}
	return notes
}

// inYAML encodes a value as YAML with an indent of two.
func inYAML(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := yaml.NewEncoder(&b)
	encoder.SetIndent(2)
	err := errors.Join(encoder.Encode(value), encoder.Close())
	return b.Bytes(), err
}
