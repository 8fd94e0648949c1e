package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
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
	for text, want := range map[string]int64{
		"3": 3, "-3": -3, "3.0": 3, "3e2": 300, "null": 7, "99999999999999999999": maxInteger,
		"-99999999999999999999": minInteger, "9223372036854775807": maxInteger, "-9223372036854775808": minInteger,
		"1e300": maxInteger, "-1e300": minInteger, strings.Repeat("9", 4300): maxInteger,
	} {
		if v, err := Decode([]byte(text)); err != nil || v.Integer(7) != want {
			t.Errorf("%.30s: got %d, %v", text, v.Integer(7), err)
		}
	}
}

func TestFloatReadsEveryNumber(t *testing.T) {
	for text, want := range map[string]float64{"3": 3, "-1.5": -1.5, "null": 7, "99999999999999999999": 1e20,
		"9007199254740993": 9007199254740992} {
		if v, err := Decode([]byte(text)); err != nil || v.Float(7) != want {
			t.Errorf("%s: got %g, %v", text, v.Float(7), err)
		}
	}
}

func TestPartsKeepTheirOrder(t *testing.T) {
	v, err := Decode([]byte(` { "b" : 1 , "a":[true, {"x\n": "y"},3, {} ], "b": 3, "\u0063": null, "a": "\"s"} `))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range v.Parts() {
		got = append(got, p.Name, p.Text())
	}
	if want := []string{"b", "", "a", "\"s", "c", ""}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if v.Get("b").Integer(0) != 3 || !v.Get("c").Null() || !v.Has("c") || v.Has("d") || v.Get("b").Null() {
		t.Error("members are not found by name")
	}
	v, err = Decode([]byte(`[1, {"a": 1}, "x", {"b": 2}, []]`))
	if err != nil || len(v.Parts()) != 2 || v.Parts()[1].Get("b").Integer(0) != 2 {
		t.Errorf("the objects of a list are %v, %v", v.Parts(), err)
	}
	if v, err = Decode([]byte(`["x", "y"]`)); err != nil || !slices.Equal(v.Texts(), []string{"x", "y"}) {
		t.Errorf("got %q, %v", v.Texts(), err)
	}
}

// FuzzDecode compares Decode with encoding/json: both read the same texts, as the same values.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"name": "x", "total": 1e2}`, ` [NaN, -Infinity]`, `"\ud800\"\\"`, "1e999", "{", "", " ", "01",
		`{"a":1e999,"a":{"b":[]}, "": [{}, -0.5E+3 , true,false,null]}`, `{"a":1}{`, `[1,]`, `{"a":1 "b"}`, "\"\xff\"", `"\x"`,
		"tru", "truex", "[tr]", "-", "{,}", "[}", `{"a":1]`, strings.Repeat("[", 10_001), strings.Repeat("9", 4301)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		var want any
		err := d.Decode(&want)
		if err == nil && len(bytes.TrimLeft(text[d.InputOffset():], " \t\r\n")) > 0 {
			err = errors.New("more than one value")
		}
		if err == nil && !utf8.Valid(text) {
			err = errors.New("not UTF-8")
		}
		if err == nil {
			want, err = converted(want)
		}
		got, failed := Decode(text)
		if (failed == nil) != (err == nil) {
			t.Fatalf("%q: got %v, want %v", text, failed, err)
		}
		if err == nil && !reflect.DeepEqual(got.tree, want) {
			t.Errorf("%q: got %#v, want %#v", text, got.tree, want)
		}
	})
}

// converted returns a value of encoding/json with the numbers of Value.tree.
func converted(v any) (_ any, err error) {
	switch v := v.(type) {
	case json.Number:
		return convertNumber(string(v))
	case []any:
		for i := 0; i < len(v) && err == nil; i++ {
			v[i], err = converted(v[i])
		}
		return v, err
	case map[string]any:
		for name := range v {
			if v[name], err = converted(v[name]); err != nil {
				break
			}
		}
		return v, err
	}
	return v, nil
}

// FuzzValidate checks that every decoded value can be validated.
func FuzzValidate(f *testing.F) {
	for _, s := range []string{`{"name": "x", "total": 1e2}`, `[NaN, -Infinity]`, `"\ud800"`, "1e999", "{",
		`{"a":1,"a":2}`,
		`{"name": "x", "by": {"A": 99999999999999999999}}`, `{"name": 1.5e300}`,
		`{"name": "x", "total": 0}`, `{"name": "x", "total": 1}`, `{"name": "x", "total": 10}`, `{"name": "x", "total": 11}`,
		`{"name": "x", "total": -1}`, `{"name": "x", "total": 4294967297}`} {
		f.Add([]byte(s))
	}
	s := Must(provider)
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := Decode(text)
		if err != nil {
			return
		}
		err = s.Validate(v)
		if valid := s.compiled.Validate(v.tree) == nil; (err == nil) != valid {
			t.Errorf("%q: valid: %t, but got %v", text, valid, err)
		}
		if err != nil {
			if e := err.(*Error); e.Sentence == "" || e.Rule == "" {
				t.Errorf("%q: %#v", text, e)
			}
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
