package page

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// TestFormsFitTheDocument checks the table of forms against the document of the API.
func TestFormsFitTheDocument(t *testing.T) {
	t.Parallel()
	names := map[string]bool{}
	for _, f := range forms() {
		o, exists := operations()[f.Op]
		if !exists || o.Path == "" {
			t.Errorf("%s: there is no operation %s", f.At, f.Op)
			continue
		}
		if f.Now != "" && operations()[f.Now].Path == "" {
			t.Errorf("%s: there is no operation %s", f.At, f.Now)
		}
		if names[f.name()] {
			t.Errorf("two forms have the name %s", f.name())
		}
		names[f.name()] = true
		given := map[string]bool{"project": true}
		for _, name := range parts(f.At) {
			given[name] = true
		}
		for name := range f.Set {
			given[name] = true
		}
		for _, in := range f.Inputs {
			if _, _, is := o.property(in.Name); !is {
				t.Errorf("%s: %s has no input %s", f.At, f.Op, in.Name)
			}
			if !in.Fresh || !strings.Contains(in.Name, ".") {
				given[in.Name] = true
			}
		}
		for _, name := range parts(o.Path) {
			if !given[name] {
				t.Errorf("%s: the path of %s needs %s", f.At, f.Op, name)
			}
		}
		for _, name := range o.Body.Required {
			if !given[name] {
				t.Errorf("%s: %s needs %s", f.At, f.Op, name)
			}
		}
		if f.Shows == "" && f.Done == "" {
			t.Errorf("%s says nothing afterwards", f.At)
		}
		for _, says := range []string{f.Done, f.About} {
			if says != "" && !strings.HasSuffix(says, ".") && !strings.Contains(says, "croft ") {
				t.Errorf("%s: %q is no sentence", f.At, says)
			}
		}
	}
}

func TestTextsOfInputsAreReadAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	numbers := schema{Type: "object", Values: []byte(`{"type": "integer"}`)}
	texts := schema{Type: "object", Values: []byte(`{"type": "string"}`)}
	for name, c := range map[string]struct {
		text string
		of   schema
		as   notation
		want string // the text of the value, or its error
	}{
		"a text":                    {"a b", schema{Type: "string"}, byType, "a b"},
		"a number":                  {"12", schema{Type: "integer"}, byType, "12"},
		"no number":                 {"many", schema{Type: "integer"}, byType, `"many" is no whole number`},
		"a number that can be null": {"", schema{}, count, ""},
		"yes":                       {"yes", schema{Type: "boolean"}, byType, "yes"},
		"a duration":                {"36h", schema{Type: "integer"}, duration, "1d12h"},
		"no duration": {"-1h", schema{Type: "integer"}, duration,
			`"-1h" is no duration: write one such as 8h or 30d`},
		"amounts":                     {"VCPU:1,\nMEMORY_MB:512", numbers, byType, "MEMORY_MB:512,VCPU:1"},
		"an amount that is no number": {"VCPU:x", numbers, byType, `VCPU is "x": write a whole number`},
		"an amount twice":             {"VCPU:1,VCPU:2", numbers, byType, `"VCPU" is there twice`},
		"pairs":                       {"a=1=2\nb = c", texts, byType, "a=1=2\nb=c"},
		"no pair":                     {"a", texts, byType, `"a" is no pair: write KEY=VALUE`},
		"pairs of any type": {"a=1\nb=true\nc=\"1\"\nd=x", schema{Type: "object", Values: []byte("{}")},
			byType, "a=1\nb=true\nc=\"1\"\nd=x"},
		"words": {"a, b\nc", schema{Type: "array", Items: &schema{Type: "string"}}, byType,
			"a, b, c"},
		"lines": {"a b\n\n c", schema{Type: "array", Items: &schema{Type: "string"}}, lines,
			"a b\nc"},
		"JSON":                         {`{"a":[1]}`, schema{}, object, "{\n  \"a\": [\n    1\n  ]\n}"},
		"what is no JSON":              {`{"a"`, schema{}, object, "it is no JSON: unexpected end of JSON input"},
		"a text that looks like JSON":  {`[1]`, schema{Type: "string"}, byType, "[1]"},
		"an empty list of words":       {" ", schema{Type: "array", Items: &schema{Type: "string"}}, byType, ""},
		"a key without a value is one": {"a=", texts, byType, "a="},
	} {
		value, err := valueOf(c.text, c.of, c.as)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = textOf(asJSON(t, value), c.of, c.as)
		}
		if got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

// asJSON returns a value as an answer of the API has it.
func asJSON(t *testing.T, value any) (out any) {
	t.Helper()
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&out); err != nil {
		t.Fatal(err)
	}
	return out
}
