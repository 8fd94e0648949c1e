package schema

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"
)

const provider = `{"type": "object", "properties": {"name": {"type": "string", "maxLength": 5},
	"total": {"type": "integer", "minimum": 1, "maximum": 10}, "uuid": {"type": "string", "format": "uuid"},
	"parent": {"anyOf": [{"type": "string", "format": "uuid"}, {"type": "null"}]},
	"list": {"type": "array", "items": {"type": "string"}, "uniqueItems": true, "minItems": 1},
	"policy": {"type": "string", "enum": ["none", "isolate"]},
	"by": {"type": "object", "minProperties": 1, "patternProperties": {"^[A-Z]+$": {"type": "integer"}},
		"additionalProperties": false}},
	"required": ["name"], "additionalProperties": false}`

func TestMessages(t *testing.T) {
	s := Must(provider)
	for body, want := range map[string]string{
		`{}`:                  "'name' is a required property|'required' in schema|On instance",
		`[]`:                  "[] is not of type 'object'|'type' in schema|On instance",
		`{"name": "toolong"}`: "'toolong' is too long|'maxLength' in schema['properties']['name']|On instance['name']",
		`{"name": 1}`:         "1 is not of type 'string'|'type' in schema['properties']['name']|On instance['name']",
		`{"name": "x", "total": 0}`: "0 is less than the minimum of 1|'minimum' in schema['properties']['total']|On " +
			"instance['total']",
		`{"name": "x", "total": 99999999999999999999}`: "99999999999999999999 is greater than the maximum of 10|'maximum' in",
		`{"name": "x", "total": true}`:                 "True is not of type 'integer'|'type' in",
		`{"name": "x", "total": 1.5}`:                  "1.5 is not of type 'integer'|'type' in",
		`{"name": "x", "uuid": "y"}`:                   "'y' is not a 'uuid'|'format' in schema['properties']['uuid']",
		`{"name": "x", "parent": "y"}`:                 "'y' is not a 'uuid'|'format' in schema[0]|On instance['parent']",
		`{"name": "x", "parent": 5}`: "5 is not valid under any of the given schemas|'anyOf' in " +
			"schema['properties']['parent']",
		`{"name": "x", "list": ["a", "a"]}`: "[\"a\",\"a\"] has non-unique elements|'uniqueItems' in",
		`{"name": "x", "list": []}`:         "[] is too short|'minItems' in",
		`{"name": "x", "list": ["a", 2]}`: "2 is not of type 'string'|'type' in " +
			"schema['properties']['list']['items']|On instance['list'][1]",
		`{"name": "x", "policy": "y"}`: "'y' is not one of ['none', 'isolate']|'enum' in",
		`{"name": "x", "by": {}}`:      "{} does not have enough properties|'minProperties' in",
		`{"name": "x", "by": {"a": 1}}`: "'a' does not match any of the regexes: " +
			"'^[A-Z]+$'|'additionalProperties' in",
		`{"name": "x", "by": {"a": 1, "b": 1}}`: "'a', 'b' do not match any of the regexes: " +
			"'^[A-Z]+$'|'additionalProperties' in",
		`{"name": "x", "by": {"A": "y"}}`: "'y' is not of type 'integer'|'type' in " +
			"schema['properties']['by']['patternProperties']['^[A-Z]+$']",
		`{"name": "x", "z": 1}`: "Additional properties are not allowed ('z' was " +
			"unexpected)|'additionalProperties' in",
		`{"name": "x", "z": 1, "y": 2}`: "Additional properties are not allowed ('y', 'z' were " +
			"unexpected)|'additionalProperties' in",
		`{"name": {"a": 1, "b": null}, "z": 1}`: "Additional properties are not allowed ('z' was " +
			"unexpected)|'additionalProperties' in schema",
		`{"name": {"a": [1, "<"], "b": null}}`: "{\"a\":[1,\"<\"],\"b\":null} is not of type 'string'|'type' in " +
			"schema['properties']['name']",
		`{"uuid": "y", "total": 0, "name": "x"}`:    "0 is less than the minimum of 1|'minimum' in",
		`{"name": "x", "by": {"B": "b", "A": "a"}}`: "'b' is not of type 'integer'|On instance['by']['B']",
		`{"z": 1, "total": "x"}`:                    "'name' is a required property|'required' in",
	} {
		v, err := Decode([]byte(body))
		if err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		err = s.Validate(v)
		if err == nil {
			t.Errorf("%s: valid", body)
			continue
		}
		for i, part := range strings.Split(want, "|") {
			if got := err.Error(); i == 0 && !strings.HasPrefix(got, part+"\n") || !strings.Contains(got, part) {
				t.Errorf("%s: got\n%s\nwant %s", body, got, part)
			}
		}
	}
}

func TestValid(t *testing.T) {
	s := Must(provider)
	for _, body := range []string{
		`{"name": "x"}`, `{"name": "größe"}`, `{"name": "x", "parent": null}`, `{"name": "x", "total": 3.0}`,
		`{"name": "x", "parent": "6e5f6f8e-5c6a-4d8a-9d53-000000000000"}`,
		`{"name": "x", "uuid": "6E5F6F8E5C6A4D8A9D53000000000000"}`,
		`{"name": "x", "by": {"A": 1}, "list": ["a", "b"], "policy": "none"}`,
	} {
		v, err := Decode([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(v); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestDecode(t *testing.T) {
	for text, want := range map[string]any{
		`{"a": 1, "b": 2, "a": 3}`:       map[string]any{"a": int64(3), "b": int64(2)},
		` [1.5, 1e2, -0, true, null] `:   []any{1.5, 100.0, int64(0), true, nil},
		`"\ud834\udd1e\u00e9"`:           "\U0001d11e\u00e9",
		`123456789012345678901234567890`: json.Number("123456789012345678901234567890"),
	} {
		if got, err := Decode([]byte(text)); err != nil || !reflect.DeepEqual(got.tree, want) {
			t.Errorf("%s: got %#v, %v", text, got, err)
		}
	}
	for text, want := range map[string]string{
		"":            "the text is empty",
		"{":           "the text ends too early",
		`{"a" 1}`:     `invalid character '1' after object key`,
		"[1] 2":       "'2' after the value",
		"\"a\tb\"":    "invalid character",
		"\"a\xff\"":   "the text is not UTF-8",
		"01":          "'1' after the value",
		`[NaN]`:       "invalid character 'N'",
		`-Infinity`:   "invalid character 'I'",
		`{"a":1e999}`: "the number 1e999 is out of range",
	} {
		if v, err := Decode([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, %v, want %s", text, v, err, want)
		}
	}
	if _, err := Decode([]byte(strings.Repeat("[", 20_000))); err == nil {
		t.Error("a text nested 20,000 times is read")
	}
}

// Integers are bounded since conversion time grows with the square of their length: a whole body of digits took a
// minute.
func TestIntegersHaveBoundedLength(t *testing.T) {
	for _, text := range []string{strings.Repeat("9", 4300), "-" + strings.Repeat("9", 4300)} {
		if v, err := Decode([]byte(text)); err != nil || v.tree != json.Number(text) {
			t.Errorf("%.10s... of %d bytes: %v", text, len(text), err)
		}
	}
	const want = "an integer has 4000000 digits, and at most 4300 are read"
	began := time.Now()
	for _, form := range []string{"%", "-%", `[1, {"a": %}]`} {
		text := strings.Replace(form, "%", strings.Repeat("7", 4_000_000), 1)
		if _, err := Decode([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("4,000,000 digits in %s: got %.200v", form, err)
		}
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s to refuse them", took)
	}
}

func TestIntegerReadsWhatSchemasTakeForOne(t *testing.T) {
	for text, want := range map[string]Integer{
		"3": 3, "-3": -3, "3.0": 3, "3e2": 300, "null": 0, "99999999999999999999": maxInteger,
		"-99999999999999999999": minInteger, "9223372036854775807": maxInteger, strings.Repeat("9", 4300): maxInteger,
	} {
		var got Integer
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%.30s: got %d, %v", text, got, err)
		}
	}
	var got Integer
	if err := json.Unmarshal([]byte("1.5"), &got); err == nil {
		t.Errorf("1.5 is read as %d", got)
	}
}

func TestMembersKeepTheirOrder(t *testing.T) {
	var got Members[int]
	want := Members[int]{{"b", 3}, {"a", 2}, {"c", 4}}
	if err := json.Unmarshal([]byte(`{"b": 1, "a": 2, "b": 3, "c": 4}`), &got); err != nil || !reflect.DeepEqual(got,
		want) {
		t.Errorf("got %v, %v", got, err)
	}
	if err := json.Unmarshal([]byte(`[1]`), &got); err == nil {
		t.Error("a list is read as an object")
	}
}

// FuzzValidate checks that every decoded value can be validated, and every valid one read.
func FuzzValidate(f *testing.F) {
	for _, s := range []string{`{"name": "x", "total": 1e2}`, `[NaN, -Infinity]`, `"\ud800"`, "1e999", "{",
		`{"a":1,"a":2}`,
		`{"name": "x", "by": {"A": 99999999999999999999}}`, `{"name": 1.5e300}`} {
		f.Add([]byte(s))
	}
	s := Must(provider)
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := Decode(text)
		if err != nil {
			return
		}
		if err := s.Validate(v); err != nil {
			if e := err.(*Error); e.Sentence == "" || e.Rule == "" {
				t.Errorf("%q: %#v", text, e)
			}
			return
		}
		var body struct {
			Total Integer          `json:"total"`
			By    Members[Integer] `json:"by"`
		}
		if err := json.Unmarshal(text, &body); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}

func TestUUIDsAreOneWithAndWithoutDashes(t *testing.T) {
	const canonical = "6e5f6f8e-5c6a-4d8a-9d53-0123456789ab"
	for _, s := range []string{canonical, "6E5F6F8E5C6A4D8A9D530123456789AB", "{" + canonical + "}",
		"urn:uuid:" + canonical} {
		if got, ok := UUID(s); !ok || got != canonical {
			t.Errorf("%s: got %s, %v", s, got, ok)
		}
	}
	for _, s := range []string{"", "x", canonical + "0", canonical[1:], strings.Replace(canonical, "a", "g", 1)} {
		if got, ok := UUID(s); ok {
			t.Errorf("%s: got %s", s, got)
		}
	}
}
