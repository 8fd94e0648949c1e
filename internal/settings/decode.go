package settings

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"croft"
	"croft/internal/lazyregexp"
)

var duration = reflect.TypeFor[time.Duration]()

// isGroup reports whether a type is a struct of settings, not a setting.
func isGroup(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && !reflect.PointerTo(t).Implements(reflect.TypeFor[yaml.Unmarshaler]())
}

// decodeFile decodes one YAML document into v.
func (s Source) decodeFile(file string, text []byte, v reflect.Value) error {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document yaml.Node
	err := decoder.Decode(&document)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return SyntaxError(file, err)
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return croft.Errorf(croft.Invalid, "%s: more than one document: settings are one", file)
	}
	root := document.Content[0]
	if err := s.rename(file, root); err != nil {
		return err
	}
	if err := check(root, v.Type(), ""); err != nil {
		return croft.Errorf(croft.Invalid, "%s:%w", file, err)
	}
	if err := root.Decode(v.Addr().Interface()); err != nil {
		return SyntaxError(file, err)
	}
	return nil
}

// rename replaces former names of settings by the current ones.
func (s Source) rename(file string, root *yaml.Node) error {
	for _, former := range slices.Sorted(maps.Keys(s.Renamed)) {
		now := s.Renamed[former]
		key := keyAt(root, former)
		if key == nil {
			continue
		}
		if keyAt(root, now) != nil {
			return croft.Errorf(croft.Invalid, "%s:%d: %s is the former name of %s: write one of them", file, key.Line,
				former, now)
		}
		s.warn("%s:%d: the setting %s is called %s now", file, key.Line, former, now)
		key.Value = now[strings.LastIndex(now, ".")+1:]
	}
	return nil
}

// keyAt finds the key of a setting or group by its path; nil: not found.
func keyAt(n *yaml.Node, path string) *yaml.Node {
	name, rest, deeper := strings.Cut(path, ".")
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		switch {
		case n.Content[i].Value != name:
		case deeper:
			return keyAt(n.Content[i+1], rest)
		default:
			return n.Content[i]
		}
	}
	return nil
}

var lineForm = lazyregexp.New(`^yaml: (?:unmarshal errors:\s*)?(?:line (\d+): )?`)

// zeroBased are the errors for which the parser counts lines from 0.
var zeroBased = lazyregexp.New(`^did not find expected (key|'-' indicator|',' or '[]}]')`)

// SyntaxError converts a YAML parser's error to Invalid, with the line after the file's name, where editors expect it.
func SyntaxError(file string, err error) error {
	text := err.Error()
	found := lineForm.FindStringSubmatch(text)
	if found == nil {
		return croft.Errorf(croft.Invalid, "%s: %w", file, err)
	}
	rest := strings.ReplaceAll(text[len(found[0]):], "found character that cannot start any token",
		"a tab, or another character that nothing begins with: indent with spaces")
	if line, err := strconv.Atoi(found[1]); err == nil {
		if zeroBased.MatchString(text[len(found[0]):]) {
			line++
		}
		file += ":" + strconv.Itoa(line)
	}
	return croft.Errorf(croft.Invalid, "%s: %s", file, rest)
}

// placed returns an error with its line, to be printed after the file's name.
func placed(n *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%d: %w", n.Line, fmt.Errorf(format, args...))
}

// check compares a node with its type, so that an error names the wrong setting, its position, and how it is written.
func check(n *yaml.Node, t reflect.Type, path string) error {
	if n.Kind == yaml.AliasNode || n.Anchor != "" {
		return placed(n, "%sanchors and aliases are not for settings: write the value out", label(path))
	}
	if n.Tag == "!!null" {
		return nil // null has the same meaning as an absent setting
	}
	switch {
	case isGroup(t) || t.Kind() == reflect.Map:
		return checkMapping(n, t, path)
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8:
		return checkList(n, t, path)
	}
	return checkScalar(n, t, path)
}

func label(path string) string {
	if path == "" {
		return ""
	}
	return path + ": "
}

func checkMapping(n *yaml.Node, t reflect.Type, path string) error {
	if n.Kind != yaml.MappingNode {
		return placed(n, "%swrite key: value, one on each line", label(path))
	}
	if path != "" {
		path += "."
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if seen[key.Value] {
			return placed(key, "%s is set twice", path+key.Value)
		}
		seen[key.Value] = true
		of, err := elementType(t, path, key)
		if err != nil {
			return err
		}
		if err := check(value, of, path+key.Value); err != nil {
			return err
		}
	}
	return nil
}

// elementType returns the type of a key's value.
func elementType(t reflect.Type, path string, key *yaml.Node) (reflect.Type, error) {
	if t.Kind() == reflect.Map {
		return t.Elem(), nil
	}
	for _, f := range fieldsOf(t) {
		if f.name == key.Value {
			return t.FieldByIndex(f.index).Type, nil
		}
	}
	return nil, placed(key, "%w", unknown(t, path, key.Value))
}

func checkList(n *yaml.Node, t reflect.Type, path string) error {
	if n.Kind != yaml.SequenceNode {
		return placed(n, "%s is a list: write [%s]", path, n.Value)
	}
	for i, item := range n.Content {
		if err := check(item, t.Elem(), path+"["+strconv.Itoa(i)+"]"); err != nil {
			return err
		}
	}
	return nil
}

func checkScalar(n *yaml.Node, t reflect.Type, path string) error {
	if n.Decode(reflect.New(t).Interface()) == nil {
		return nil
	}
	if n.Kind != yaml.ScalarNode {
		return placed(n, "%s: want %s", path, describe(t))
	}
	return placed(n, "%s: want %s, not %q", path, describe(t), n.Value)
}

// describe returns how a value of the type is written.
func describe(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Int64:
		if t == duration {
			return "a duration such as 30s or 5m"
		}
		return "a whole number"
	case reflect.Int, reflect.Int32:
		return "a whole number"
	case reflect.Uint, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number from 0 on"
	}
	return "a text"
}

// decodeText decodes a value from a variable or a flag.
func decodeText(text string, v reflect.Value) error {
	if v.Kind() == reflect.String {
		v.SetString(text)
		return nil
	}
	var document yaml.Node
	if err := yaml.Unmarshal([]byte(text), &document); err != nil || len(document.Content) == 0 {
		return fmt.Errorf("want %s, not %q", describe(v.Type()), text)
	}
	value := document.Content[0]
	if err := check(value, v.Type(), "value"); err != nil {
		return fmt.Errorf("want %s, not %q", describe(v.Type()), text)
	}
	return value.Decode(v.Addr().Interface())
}
