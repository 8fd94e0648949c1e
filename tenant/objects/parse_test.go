package objects_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"croft"
	"croft/tenant/objects"
)

func TestAFaultInADefinitionIsNamedWithItsLine(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"unknown: maybe", `f:1: unknown: want allow or refuse, not "maybe"`},
		{"\nunknwon: allow", `f:2: unknwon: there is no such key here, only permissions, properties, unknown; did you mean "unknown"?`},
		{"unknown: allow\nunknown: allow", `f:2: unknown: it is set twice`},
		{"properties:\n  a b: {}", `f:1: properties: "a b" is not a key of a property`},
		{"properties:\n  a:\n    minlength: 2", `f:3: properties.a.minlength: there is no such key here, only enum, format`},
		{"properties:\n  a: 5", `f:2: properties.a: write key: value, one on each line`},
		{"properties:\n  a:\n    type: text", `f:3: properties.a.type: "text" is not a type of a property: use one of string, integer, number, boolean`},
		{"properties:\n  a:\n    type: [string, string]", `f:3: properties.a.type: string is there twice`},
		{"properties:\n  a:\n    enum: []", `f:3: properties.a.enum: there are 0 values: list 1 to 64`},
		{"properties:\n  a:\n    enum: b", `f:3: properties.a.enum: it is a list: write [b]`},
		{"properties:\n  a:\n    enum:\n    - b\n    - [c]", `f:5: properties.a.enum[1]: want a string, a number, true or false`},
		{"properties:\n  a:\n    type: string\n    enum: [1]", `f:4: properties.a.enum: "1" is an integer, and the property is string`},
		{"properties:\n  a:\n    enum: [1, 1]", `f:3: properties.a.enum: "1" is there twice`},
		{"properties:\n  a:\n    multipleOf: 0", `f:3: properties.a.multipleOf: it is 0: use a number above 0`},
		{"properties:\n  a:\n    minimum: many", `f:3: properties.a.minimum: want a number, not "many"`},
		{"properties:\n  a:\n    minimum: .inf", `f:3: properties.a.minimum: want a number, not ".inf"`},
		{"properties:\n  a:\n    maximum: 1\n    minimum: 2", `f:4: properties.a.minimum: 2 is above the maximum, 1`},
		{"properties:\n  a:\n    type: string\n    maximum: 1", `f:4: properties.a.maximum: it concerns numbers, and the property is string`},
		{"properties:\n  a:\n    type: integer\n    pattern: b", `f:4: properties.a.pattern: it concerns strings, and the property is integer`},
		{"properties:\n  a:\n    minLength: 1.5", `f:3: properties.a.minLength: want a whole number, not "1.5"`},
		{"properties:\n  a:\n    minLength: -1", `f:3: properties.a.minLength: it is -1: use 0 to 2048`},
		{"properties:\n  a:\n    minLength: 3\n    maxLength: 2", `f:3: properties.a.minLength: 3 is above the maxLength, 2`},
		{"properties:\n  a:\n    pattern: '('", `f:3: properties.a.pattern: it is no regular expression: missing closing )`},
		{"properties:\n  a:\n    pattern: '(?=b)'", `f:3: properties.a.pattern: it is no regular expression: invalid or unsupported Perl syntax`},
		{"properties:\n  a:\n    pattern: '((a{100}){100}){100}'", `f:3: properties.a.pattern: it is no regular expression: `},
		{"properties:\n  a:\n    pattern: " + strings.Repeat("a", 513), `f:3: properties.a.pattern: it has 513 bytes`},
		{"properties:\n  a:\n    format: datetime", `f:3: properties.a.format: there is no format "datetime": use one of date, date-time, duration, email, hostname, ipv4, ipv6, time, uri, uri-reference, uuid; did you mean "date-time"?`},
		{"properties:\n  a:\n    required: yes please", `f:3: properties.a.required: want true or false, not "yes please"`},
		{"properties:\n  a:\n    permissions:\n    - role: member\n", `f:4: properties.a.permissions[0]: it has no value: write value: "", r, w or rw`},
		{"permissions:\n- value: r\n- role: boss\n  value: r", `f:3: permissions[1].role: "boss" is not a role`},
		{"permissions:\n- value: rwx", `f:2: permissions[0].value: want "", r, w or rw, not "rwx"`},
		{"permissions:\n- project: a/b\n  value: r", `f:2: permissions[0].project: "a/b" is not a project name`},
		{"permissions: {value: r}", `f:1: permissions: it is a list: write []`},
		{"properties: &a\n  b: {}", `f:1: properties: anchors, aliases and complex keys are not for definitions`},
		{"properties:\n  a: {enum: [&x 1, *x]}", `f:2: properties.a.enum[0]: anchors and aliases are not for definitions`},
		{"- a", `f:1: definition: write key: value, one on each line`},
		{"a: b\n c: d", `f:2: mapping values are not allowed in this context`},
		{"unknown: allow\n---\nunknown: allow", `f: more than one document: a definition is one`},
		{"# " + strings.Repeat("x", objects.MaxDefinition), `f: it has 65538 bytes: a definition may have 65536`},
	} {
		_, err := objects.ParseDefinition("f", []byte(c.text))
		if !errors.Is(err, croft.Invalid) || !strings.HasPrefix(fmt.Sprint(err), c.want) {
			t.Errorf("%.80s\n got %v\nwant %s", c.text, err, c.want)
		}
	}
}

var sameValues = cmp.Comparer(func(a, b objects.Value) bool { return a == b })

func TestADefinitionIsReadFromYAMLAndJSONAndFromItself(t *testing.T) {
	const yaml = `
unknown: refuse
properties:
  cores: {type: integer, minimum: 1, maximum: 64, multipleOf: 0.5, required: true}
  tier:
    type: [string, integer]
    enum: ["1", 2, gold, "true"]
    permissions:
    - {project: lab, role: member, value: rw}
    - {value: ""}
  name: {type: string, minLength: 0, maxLength: 9, pattern: '^\d+: "x"$', format: email}
  free:
permissions: [{value: r}]
`
	d, err := objects.ParseDefinition("f", []byte(yaml))
	if err != nil {
		t.Fatal(err)
	}
	if p := d.Properties["tier"]; len(d.Properties) != 4 || !d.Properties["cores"].Required ||
		!slices.Equal(p.Enum, []objects.Value{objects.Text("1"), objects.Integer(2), objects.Text("gold"),
			objects.Text("true")}) || len(p.Permissions) != 2 || *d.Properties["name"].MinLength != 0 {
		t.Errorf("read %+v", d)
	}
	document, err := d.Document()
	if err != nil {
		t.Fatal(err)
	}
	again, err := objects.ParseDefinition("f", document)
	if diff := cmp.Diff(d, again, sameValues); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s\n%s", err, diff, document)
	}
	const json = `{"properties": {"a": {"type": "string", "maxLength": 3}}, "permissions": [{"value": "r"}]}`
	if d, err := objects.ParseDefinition("f", []byte(json)); err != nil || *d.Properties["a"].MaxLength != 3 {
		t.Errorf("read %+v, %v", d, err)
	}
	for _, empty := range []string{"", "# nothing\n", "{}", "null"} {
		if d, err := objects.ParseDefinition("f", []byte(empty)); err != nil || d.Unknown != objects.Allow {
			t.Errorf("%q: read %+v, %v", empty, d, err)
		}
	}
}

// pointed matches the start of errors of definitions: the file, and the line if only a part of the definition is
// faulty.
var pointed = regexp.MustCompile(`^f:(\d+: | )`)

func FuzzDefinition(f *testing.F) {
	f.Add("unknown: refuse\nproperties: {a: {type: [string, integer], enum: [a, 1], pattern: '^a'}}")
	f.Add("properties:\n  a: {minimum: 1e3, maximum: 0x10, multipleOf: .5, required: true, format: uri}\n")
	f.Add("permissions: [{project: lab, role: member, value: rw}]\n")
	f.Add(`{"properties": {"a": {"minLength": 1, "maxLength": 2, "permissions": [{"value": ""}]}}}`)
	f.Add("properties: &a {b: *a}")
	f.Add("? [a]\n: b")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := objects.ParseDefinition("f", []byte(text))
		if err != nil {
			if !errors.Is(err, croft.Invalid) || !pointed.MatchString(err.Error()) {
				t.Fatalf("the error %q does not say where", err)
			}
			return
		}
		if err := d.Compiles(); err != nil {
			t.Fatalf("what was accepted does not compile: %v", err)
		}
		document, err := d.Document()
		if err != nil {
			t.Fatal(err)
		}
		if len(document) > objects.MaxDefinition {
			return
		}
		again, err := objects.ParseDefinition("f", document)
		if diff := cmp.Diff(d, again, sameValues, cmpopts.EquateEmpty()); diff != "" || err != nil {
			t.Fatalf("%v (-want +got):\n%s\n%s", err, diff, document)
		}
	})
}
func TestTheExampleInTheDocumentationIsADefinition(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "users", "properties.md"))
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	if len(examples) == 0 {
		t.Fatal("there is no example")
	}
	for _, e := range examples {
		if _, err := objects.ParseDefinition("docs/users/properties.md", e[1]); err != nil {
			t.Error(err)
		}
	}
}
