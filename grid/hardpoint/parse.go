package hardpoint

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"croft"
	"croft/internal/lazyregexp"
	"croft/internal/nearest"
	"croft/internal/settings"
	"croft/internal/wording"
)

// maxFile is the maximum size of a hard point file in bytes.
const maxFile = 1 << 20

// A document is one file: a complete hard point, or the changes to the hard point that it extends.
type document struct {
	extends string
	about   string
	cannot  map[string]string
	vars    map[string]variable
	funcs   *string
	verbs   map[string]*Verb
	keys    map[string]string // the file's keys, with their values in canonical form
}

// parse parses a file. known are the verbs of the kind. Errors: Invalid, prefixed by the file and the line.
func parse(file string, text []byte, known []string) (*document, error) {
	if len(text) > maxFile {
		return nil, croft.Errorf(croft.Invalid, "%s: it has %d bytes: a hard point may have %d", file, len(text),
			maxFile)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var root yaml.Node
	if err := decoder.Decode(&root); errors.Is(err, io.EOF) {
		return nil, croft.Errorf(croft.Invalid, "%s: it is empty: a hard point has verbs", file)
	} else if err != nil {
		return nil, settings.SyntaxError(file, err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, croft.Errorf(croft.Invalid, "%s: more than one document: a hard point is one", file)
	}
	r := &reader{file: file}
	d := &document{cannot: map[string]string{}, vars: map[string]variable{}, verbs: map[string]*Verb{},
		keys: map[string]string{}}
	keys := map[string]func(*yaml.Node) error{
		"extends":   func(n *yaml.Node) error { return r.name(n, &d.extends) },
		"about":     func(n *yaml.Node) error { return r.text(n, &d.about) },
		"functions": func(n *yaml.Node) error { d.funcs = new(string); return r.text(n, d.funcs) },
		"cannot": func(n *yaml.Node) error {
			return r.each(n, func(key string, n *yaml.Node) error {
				var why string
				err := r.text(n, &why)
				d.cannot[key] = why
				return err
			})
		},
		"variables": func(n *yaml.Node) error {
			return r.each(n, func(key string, n *yaml.Node) (err error) {
				d.vars[key], err = r.variable(key, n)
				return err
			})
		},
	}
	for _, verb := range known {
		keys[verb] = func(n *yaml.Node) (err error) { d.verbs[verb], err = r.verb(n); return err }
	}
	for key, read := range keys {
		keys[key] = func(n *yaml.Node) error {
			d.keys[key] = canonical(n)
			return read(n)
		}
	}
	return d, r.mapping(root.Content[0], keys)
}

// canonical encodes a value of a file without its comments, order of keys and layout.
func canonical(n *yaml.Node) string {
	var parts []string
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			parts = append(parts, strconv.Quote(n.Content[i].Value)+":"+canonical(n.Content[i+1]))
		}
		slices.Sort(parts)
		return "{" + strings.Join(parts, ",") + "}"
	case yaml.SequenceNode:
		for _, item := range n.Content {
			parts = append(parts, canonical(item))
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	return strconv.Quote(n.Value)
}

// reader decodes the YAML nodes of one file.
type reader struct{ file string }

func (r *reader) at(n *yaml.Node) string { return r.file + ":" + strconv.Itoa(n.Line) }

func (r *reader) wrong(n *yaml.Node, format string, args ...any) error {
	return &located{r.at(n), croft.Errorf(croft.Invalid, format, args...)}
}

// each calls f for the entries of a mapping.
func (r *reader) each(n *yaml.Node, f func(key string, n *yaml.Node) error) error {
	if n.Kind != yaml.MappingNode {
		return r.wrong(n, "write key: value, one on each line")
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch {
		case key.Kind != yaml.ScalarNode || key.Anchor != "" || value.Kind == yaml.AliasNode || value.Anchor != "":
			return r.wrong(key, "anchors, aliases and complex keys are not for hard points: write the value out")
		case seen[key.Value]:
			return r.wrong(key, "%s is there twice", key.Value)
		}
		seen[key.Value] = true
		if err := f(key.Value, value); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) mapping(n *yaml.Node, keys map[string]func(*yaml.Node) error) error {
	return r.each(n, func(key string, value *yaml.Node) error {
		read := keys[key]
		if read == nil {
			known := slices.Sorted(maps.Keys(keys))
			return r.wrong(value, "there is no key %s here, only %s%s", key, strings.Join(known, ", "),
				nearest.Hint(key, known))
		}
		return read(value)
	})
}

func (r *reader) text(n *yaml.Node, to *string) error {
	if n.Kind != yaml.ScalarNode {
		return r.wrong(n, "a text is wanted")
	}
	*to = n.Value
	return nil
}

var nameForm = lazyregexp.New(`^[a-z0-9][a-z0-9._-]{0,62}$`)

func (r *reader) name(n *yaml.Node, to *string) error {
	if n.Kind != yaml.ScalarNode || !nameForm.MatchString(n.Value) {
		return r.wrong(n, "%q is no name: lower-case letters, digits, dots, - and _", n.Value)
	}
	*to = n.Value
	return nil
}

func (r *reader) template(n *yaml.Node, to *template) error {
	var text string
	if err := r.text(n, &text); err != nil {
		return err
	}
	t, err := parseTemplate(text)
	if err != nil {
		return &located{r.at(n), err}
	}
	*to = t
	return nil
}

func (r *reader) variable(name string, n *yaml.Node) (variable, error) {
	var v variable
	if !nameForm.MatchString(name) {
		return v, r.wrong(n, "%q is no name for a variable: lower-case letters, digits, dots, - and _", name)
	}
	if n.Kind != yaml.SequenceNode {
		return v, r.template(n, &v.text)
	}
	v.many = true
	var err error
	v.list, err = r.arguments(n)
	return v, err
}

func (r *reader) arguments(n *yaml.Node) ([]argument, error) {
	if n.Kind != yaml.SequenceNode {
		return nil, r.wrong(n, "a list of arguments is wanted, such as [%s]", orWord(n.Value, "podman, version"))
	}
	var list []argument
	for _, item := range n.Content {
		a := argument{at: r.at(item)}
		var err error
		if item.Kind == yaml.MappingNode {
			err = r.structured(item, &a)
		} else {
			err = r.template(item, &a.text)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, a)
	}
	return list, nil
}

// structured decodes {each: LIST, argv: [...]}, and the same with if or unless in place of each.
func (r *reader) structured(n *yaml.Node, a *argument) error {
	a.structured = true
	err := r.mapping(n, map[string]func(*yaml.Node) error{
		"each":   func(n *yaml.Node) error { return r.text(n, &a.each) },
		"if":     func(n *yaml.Node) error { return r.text(n, &a.when) },
		"unless": func(n *yaml.Node) error { return r.text(n, &a.unless) },
		"argv":   func(n *yaml.Node) (err error) { a.then, err = r.arguments(n); return err },
	})
	if err != nil {
		return err
	}
	given := 0
	for _, s := range []string{a.each, a.when, a.unless} {
		if s != "" {
			given++
		}
	}
	if given != 1 || len(a.then) == 0 {
		return r.wrong(n, "write {each: LIST, argv: [...]}, {if: VALUE, argv: [...]} or {unless: VALUE, argv: [...]}")
	}
	return nil
}

func (r *reader) verb(n *yaml.Node) (*Verb, error) {
	v := &Verb{timeout: defaultTimeout, at: r.at(n)}
	if n.Tag == "!!null" {
		return nil, nil //nolint:nilnil // the verb of what this extends is taken away
	}
	var argv *yaml.Node
	shell := false
	err := r.mapping(n, map[string]func(*yaml.Node) error{
		"argv":    func(n *yaml.Node) error { argv = n; return nil },
		"shell":   func(n *yaml.Node) error { return r.boolean(n, &shell) },
		"ok":      func(n *yaml.Node) error { return r.codes(n, &v.ok) },
		"absent":  func(n *yaml.Node) error { return r.codes(n, &v.absent) },
		"no":      func(n *yaml.Node) error { return r.codes(n, &v.no) },
		"unknown": func(n *yaml.Node) error { return r.codes(n, &v.unknown) },
		"timeout": func(n *yaml.Node) error { return r.duration(n, &v.timeout) },
		"stdin":   func(n *yaml.Node) error { return r.template(n, &v.stdin) },
		"output":  func(n *yaml.Node) error { return r.output(n, &v.output) },
	})
	switch {
	case err != nil:
		return nil, err
	case argv == nil:
		return nil, r.wrong(n, "the verb has no argv: which program is it?")
	case shell:
		err = r.scriptOf(argv, v)
	default:
		v.argv, err = r.arguments(argv)
		if err == nil && len(v.argv) == 0 {
			err = r.wrong(argv, "argv is empty: which program is it?")
		}
	}
	if err == nil {
		err = v.checkCodes(r, n)
	}
	return v, err
}

func (r *reader) scriptOf(n *yaml.Node, v *Verb) error {
	if n.Kind == yaml.SequenceNode && len(n.Content) == 1 {
		n = n.Content[0]
	}
	if n.Kind != yaml.ScalarNode || strings.TrimSpace(n.Value) == "" {
		return r.wrong(n, "with shell: true, argv is one text, the script")
	}
	v.script, v.at = n.Value, r.at(n)
	if _, err := parseTemplate(v.script); err != nil {
		return &located{v.at, err}
	}
	return nil
}

func (v *Verb) checkCodes(r *reader, n *yaml.Node) error {
	if len(v.ok) == 0 {
		v.ok = []int{0}
	}
	seen := map[int]bool{}
	for _, c := range slices.Concat(v.ok, v.absent, v.no, v.unknown) {
		if seen[c] {
			return r.wrong(n, "exit code %d has two meanings", c)
		}
		seen[c] = true
	}
	return nil
}

func (r *reader) boolean(n *yaml.Node, to *bool) error {
	if n.Value != "true" && n.Value != "false" {
		return r.wrong(n, "%q is neither true nor false", n.Value)
	}
	*to = n.Value == "true"
	return nil
}

func (r *reader) codes(n *yaml.Node, to *[]int) error {
	list := n.Content
	if n.Kind == yaml.ScalarNode {
		list = []*yaml.Node{n}
	}
	for _, item := range list {
		code, err := strconv.Atoi(item.Value)
		if err != nil || code < 0 || code > 255 {
			return r.wrong(item, "%q is no exit code: 0 to 255", item.Value)
		}
		*to = append(*to, code)
	}
	return nil
}

func (r *reader) duration(n *yaml.Node, to *time.Duration) error {
	d, err := time.ParseDuration(n.Value)
	if seconds, number := strconv.Atoi(n.Value); number == nil {
		d, err = time.Duration(seconds)*time.Second, nil
	}
	if err != nil || d <= 0 || d > maxTimeout {
		return r.wrong(n, "%q is no timeout: write 30s or 5m, at most %s", n.Value, wording.Duration(maxTimeout))
	}
	*to = d
	return nil
}

func (r *reader) output(n *yaml.Node, to *string) error {
	if !slices.Contains([]string{"lines", "json", "text"}, n.Value) {
		return r.wrong(n, "%q is no form of output: lines, json or text", n.Value)
	}
	*to = n.Value
	return nil
}

func orWord(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return fmt.Sprintf("%.40s", text)
}
