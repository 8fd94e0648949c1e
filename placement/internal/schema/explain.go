package schema

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
)

// Error describes the error in a value: its place, and the rule of the schema that it breaks.
type Error struct {
	Sentence string
	Rule     string   // keyword of the schema
	Schema   []string // path of the schema that contains the rule, e.g. properties, name
	Instance []string // path of the invalid value

	at       any      // the value at which Instance starts
	document any      // the value at which Schema starts
	position []int    // see Schema.position
	typed    bool     // the value has a type that the schema allows
	causes   []*Error // of anyOf: why each alternative failed
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("%s\n\nFailed validating %s in %s\n\nOn %s", e.Sentence, quote(e.Rule),
		indexed("schema", e.document, e.Schema), indexed("instance", e.at, e.Instance))
}

// indexed formats a path as an index expression: instance['list'][1].
func indexed(root string, v any, path []string) string {
	for _, step := range path {
		if _, isList := v.([]any); isList {
			root += "[" + step + "]"
		} else {
			root += "[" + quote(step) + "]"
		}
		v = descend(v, step)
	}
	return root
}

// lookup returns the value at a path.
func lookup(v any, path []string) any {
	for _, step := range path {
		v = descend(v, step)
	}
	return v
}

func descend(v any, step string) any {
	switch v := v.(type) {
	case map[string]any:
		return v[step]
	case []any:
		if i, err := strconv.Atoi(step); err == nil && i < len(v) {
			return v[i]
		}
	}
	return nil
}

// explain returns the most relevant of the validator's errors in v, in words.
func (s *Schema) explain(v Document, root *jsonschema.ValidationError) error {
	x := explanation{s, v.tree, positions(v.text)}
	return mostRelevant(x.errors(root, nil))
}

// explanation converts the validator's errors in a value to sentences.
type explanation struct {
	*Schema
	value any
	at    map[string]int // JSON pointer -> position in the value's text
}

// errors lists the errors of a tree, in the order of the schema's text. Schema paths are relative to base: anyOf's
// alternatives start below it.
func (x *explanation) errors(tree *jsonschema.ValidationError, base []string) []*Error {
	switch tree.ErrorKind.(type) {
	case *kind.Schema, *kind.Group:
		var list []*Error
		for _, c := range tree.Causes {
			list = append(list, x.errors(c, base)...)
		}
		slices.SortStableFunc(list, func(a, b *Error) int {
			return cmp.Or(slices.Compare(a.position, b.position), slices.Compare(a.Instance, b.Instance))
		})
		return list
	}
	_, fragment, _ := strings.Cut(tree.SchemaURL, "#")
	path := split(fragment)
	rule := tree.ErrorKind.KeywordPath()[0]
	pointer := ""
	for _, step := range path {
		pointer = join(pointer, step)
	}
	_, hasType := x.order[pointer+"/type"]
	e := &Error{Rule: rule, Schema: path[len(base):], Instance: tree.InstanceLocation, at: x.value,
		document: lookup(x.document, base), typed: hasType && rule != "type"}
	e.position = x.position(append(slices.Clone(path), rule), e.Instance)
	e.Sentence = sentence(tree.ErrorKind, lookup(x.value, e.Instance), lookup(x.document, path).(map[string]any))
	for _, c := range tree.Causes {
		e.causes = append(e.causes, x.errors(c, append(slices.Clone(path), rule))...)
	}
	return []*Error{e}
}

// position returns the sort key of an error: the positions of its rules, and of the values that they apply to. Errors
// sort in the order of a validator that checks the rules of a schema, and for each rule the members of an object, in
// the order of their text.
func (x *explanation) position(rules, instance []string) []int {
	var out []int
	rule, value, named := "", "", false
	for _, step := range rules {
		rule = join(rule, step)
		out = append(out, x.order[rule])
		if !named && (step == "properties" || step == "patternProperties") {
			named = true // the next step is a property, or a pattern
			continue
		}
		if (named || step == "items") && len(instance) > 0 {
			value, instance = join(value, instance[0]), instance[1:]
			out = append(out, x.at[value])
		}
		named = false
	}
	return out
}

// split returns the steps of a JSON pointer in a URL fragment.
func split(fragment string) []string {
	steps := strings.Split(strings.TrimPrefix(fragment, "/"), "/")
	if fragment == "" {
		return nil
	}
	for i, step := range steps {
		if plain, err := url.PathUnescape(step); err == nil {
			step = plain
		}
		steps[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
	}
	return steps
}

// sentence describes the error in a value. rules are the rules of the schema that the value was checked against.
func sentence(k jsonschema.ErrorKind, v any, rules map[string]any) string {
	switch k := k.(type) {
	case *kind.Type:
		return show(v) + " is not of type " + list(rules["type"])
	case *kind.Enum:
		return show(v) + " is not one of [" + list(rules["enum"]) + "]"
	case *kind.Format:
		return show(v) + " is not a " + quote(k.Want)
	case *kind.Required:
		return quote(k.Missing[0]) + " is a required property"
	case *kind.AdditionalProperties:
		return unexpected(k.Properties, rules)
	case *kind.Pattern:
		return show(v) + " does not match " + quote(k.Want)
	case *kind.Minimum:
		return show(v) + " is less than the minimum of " + show(rules["minimum"])
	case *kind.Maximum:
		return show(v) + " is greater than the maximum of " + show(rules["maximum"])
	case *kind.MinItems, *kind.MinLength:
		return show(v) + " is too short"
	case *kind.MaxLength:
		return show(v) + " is too long"
	case *kind.MinProperties:
		return show(v) + " does not have enough properties"
	case *kind.UniqueItems:
		return show(v) + " has non-unique elements"
	case *kind.AnyOf:
		return show(v) + " is not valid under any of the given schemas"
	}
	return show(v) + " is not valid" // a rule that no schema of Placement uses
}

// unexpected names properties that a schema does not allow.
func unexpected(names []string, rules map[string]any) string {
	slices.Sort(names)
	for i, n := range names {
		names[i] = quote(n)
	}
	joined := strings.Join(names, ", ")
	patterns, _ := rules["patternProperties"].(map[string]any)
	switch {
	case len(patterns) > 0:
		var regexes []string
		for p := range patterns {
			regexes = append(regexes, quote(p))
		}
		slices.Sort(regexes)
		verb := "do"
		if len(names) == 1 {
			verb = "does"
		}
		return fmt.Sprintf("%s %s not match any of the regexes: %s", joined, verb, strings.Join(regexes, ", "))
	case len(names) == 1:
		return fmt.Sprintf("Additional properties are not allowed (%s was unexpected)", joined)
	}
	return fmt.Sprintf("Additional properties are not allowed (%s were unexpected)", joined)
}

// quote puts a string in single quotes.
func quote(s string) string { return "'" + s + "'" }

// list shows one value, or several with commas between them.
func list(v any) string {
	several, ok := v.([]any)
	if !ok {
		return show(v)
	}
	var out []string
	for _, v := range several {
		out = append(out, show(v))
	}
	return strings.Join(out, ", ")
}

// show formats a value as JSON, but strings in single quotes, and null and booleans in the words known to clients of
// the original.
func show(v any) string {
	switch v := v.(type) {
	case string:
		return quote(v)
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSpace(b.String())
}

// compare orders errors by relevance, as the original does: errors higher up in the value first, then errors other than
// anyOf's, then errors about a value of the wrong type.
func compare(a, b *Error) int {
	return cmp.Or(
		cmp.Compare(len(b.Instance), len(a.Instance)),
		compareBool(a.Rule != "anyOf", b.Rule != "anyOf"),
		compareBool(!a.typed, !b.typed),
	)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// mostRelevant chooses the error to show: the first of the most relevant ones. For anyOf it is the error of the
// alternative that matched furthest, if only one did.
func mostRelevant(errs []*Error) *Error {
	best := errs[0]
	for _, e := range errs[1:] {
		if compare(e, best) > 0 {
			best = e
		}
	}
	for len(best.causes) > 0 {
		sorted := slices.SortedStableFunc(slices.Values(best.causes), compare)
		if len(sorted) > 1 && compare(sorted[0], sorted[1]) == 0 {
			return best
		}
		best = sorted[0]
	}
	return best
}
