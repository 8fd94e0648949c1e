package state

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"croft/internal/lazyregexp"

	"gopkg.in/yaml.v3"
)

// Limits of one file, after aliases are resolved.
const (
	maxValues = 50_000
	maxDepth  = 32
)

// mistake is an error in a line of a file.
type mistake struct {
	line int
	text string
}

func (m *mistake) Error() string { return m.text }

func wrong(line int, text string) error { return &mistake{line, text} }

// parse parses a YAML file: one document that is a map, or an empty file. The error is a *mistake.
func parse(file, text string) (*Value, error) {
	if !utf8.ValidString(text) {
		return nil, wrong(lineOf(text, invalidAt(text)), "this is no UTF-8")
	}
	if err := conflicted(text); err != nil {
		return nil, err
	}
	d := yaml.NewDecoder(strings.NewReader(text))
	var doc yaml.Node
	if err := d.Decode(&doc); errors.Is(err, io.EOF) {
		return newMap(Position{File: file, Line: 1}, 0), nil
	} else if err != nil {
		return nil, yamlMistake(err, text)
	}
	var more yaml.Node
	if err := d.Decode(&more); err == nil {
		return nil, wrong(more.Line, "a second YAML document starts here: a file must have only one")
	} else if !errors.Is(err, io.EOF) {
		return nil, yamlMistake(err, text)
	}
	c := converting{file: file}
	if len(doc.Content) == 0 || doc.Content[0].Kind == yaml.ScalarNode && doc.Content[0].ShortTag() == "!!null" {
		return newMap(Position{File: file, Line: 1}, 0), nil
	}
	if top := doc.Content[0]; top.Kind != yaml.MappingNode {
		return nil, wrong(top.Line, "the file is no map of keys and values")
	}
	return c.value(doc.Content[0], 0)
}

func invalidAt(text string) int {
	for i, r := range text {
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 {
				return i
			}
		}
	}
	return 0
}

func lineOf(text string, at int) int { return 1 + strings.Count(text[:at], "\n") }

// conflicted reports the conflict markers of an unfinished merge.
func conflicted(text string) error {
	for _, mark := range []string{"<<<<<<< ", ">>>>>>> "} {
		if at := strings.Index("\n"+text, "\n"+mark); at >= 0 {
			return wrong(lineOf(text, at), "a merge was not finished here: resolve the conflict")
		}
	}
	return nil
}

var yamlLine = lazyregexp.New(`^yaml: (?:line (\d+): )?(.*)`)

// yamlMistake turns an error of the YAML library into a line number and a plain sentence.
func yamlMistake(err error, text string) error {
	found := yamlLine.FindStringSubmatch(strings.ReplaceAll(err.Error(), "\n", " "))
	if found == nil {
		return wrong(0, "no YAML: "+err.Error())
	}
	line, _ := strconv.Atoi(found[1]) // 0: the error names no line
	if tab := tabbed(text); tab > 0 && (line == 0 || tab <= line+1) {
		return wrong(tab, "a tab indents this line: YAML wants spaces")
	}
	return wrong(line, "no YAML: "+found[2])
}

// tabbed returns the number of the first line with a tab in its indentation; 0: no line has one.
func tabbed(text string) int {
	for n, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(strings.TrimLeft(line, " "), "\t") && strings.TrimSpace(line) != "" {
			return n + 1
		}
	}
	return 0
}

// converting converts the nodes of the YAML library to values.
type converting struct {
	file   string
	values int
}

func (c *converting) value(n *yaml.Node, depth int) (*Value, error) {
	if c.values++; c.values > maxValues {
		return nil, wrong(n.Line, "more than "+strconv.Itoa(maxValues)+" values, with what aliases repeat")
	}
	if depth > maxDepth {
		return nil, wrong(n.Line, "more than "+strconv.Itoa(maxDepth)+" levels below each other")
	}
	switch n.Kind {
	case yaml.AliasNode:
		return c.value(n.Alias, depth+1)
	case yaml.MappingNode:
		return c.mapping(n, depth)
	case yaml.SequenceNode:
		v := &Value{Kind: List, At: Position{c.file, n.Line}, Items: make([]*Value, 0, len(n.Content))}
		for _, one := range n.Content {
			item, err := c.value(one, depth+1)
			if err != nil {
				return nil, err
			}
			v.Items = append(v.Items, item)
		}
		return v, nil
	}
	return c.scalar(n)
}

func (c *converting) mapping(n *yaml.Node, depth int) (*Value, error) {
	v := newMap(Position{c.file, n.Line}, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		for key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		switch {
		case key.ShortTag() == "!!merge":
			return nil, wrong(key.Line, "the key << is not read: a directory's _.yaml is what files inherit from")
		case key.Kind != yaml.ScalarNode || key.Value == "":
			return nil, wrong(key.Line, "a key is no text")
		case v.Fields[key.Value] != nil:
			return nil, wrong(key.Line, "the key "+strconv.Quote(key.Value)+" is given twice")
		}
		item, err := c.value(n.Content[i+1], depth+1)
		if err != nil {
			return nil, err
		}
		if item.At.Line == 0 {
			item.At.Line = key.Line
		}
		v.set(key.Value, item)
	}
	for _, key := range v.Keys {
		if base, adds := strings.CutSuffix(key, "+"); adds && v.Fields[base] != nil {
			return nil, wrong(v.Fields[key].At.Line, "both "+base+" and "+key+" are given: the first replaces what is "+
				"inherited, the second adds to it")
		}
	}
	return v, nil
}

var scalarKinds = map[string]Kind{"!!null": Null, "!!bool": Bool, "!!int": Int, "!!float": Float, "!!str": String,
	"!!timestamp": String}

func (c *converting) scalar(n *yaml.Node) (*Value, error) {
	tag := n.ShortTag()
	if n.Kind != yaml.ScalarNode {
		return nil, wrong(n.Line, "no YAML that is read here")
	}
	kind, known := scalarKinds[tag]
	if !known {
		return nil, wrong(n.Line, "the tag "+tag+" is not read")
	}
	const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	v := &Value{Kind: kind, Text: n.Value, Plain: n.Style&quoted == 0, At: Position{c.file, n.Line}}
	if kind == Null {
		v.Text = ""
	}
	if bytes.IndexByte([]byte(n.Value), 0) >= 0 {
		return nil, wrong(n.Line, "a text has a NUL in it")
	}
	return v, nil
}
