package schema

import (
	"strings"
	"testing"

	"croft/placement/internal/pyjson"
)

const provider = `{"type": "object", "properties": {"name": {"type": "string", "maxLength": 5},
	"total": {"type": "integer", "minimum": 1, "maximum": 10}, "uuid": {"type": "string", "format": "uuid"},
	"parent": {"anyOf": [{"type": "string", "format": "uuid"}, {"type": "null"}]},
	"list": {"type": "array", "items": {"type": "string"}, "uniqueItems": true, "minItems": 1},
	"policy": {"type": "string", "enum": ["none", "isolate"]},
	"by": {"type": "object", "minProperties": 1, "patternProperties": {"^[A-Z]+$": {"type": "integer"}}, "additionalProperties": false}},
	"required": ["name"], "additionalProperties": false}`

func TestMessages(t *testing.T) {
	s := Must(provider)
	for body, want := range map[string]string{
		`{}`:                        "'name' is a required property|'required' in schema:|On instance:",
		`[]`:                        "[] is not of type 'object'|'type' in schema:|On instance:",
		`{"name": "toolong"}`:       "'toolong' is too long|'maxLength' in schema['properties']['name']:|On instance['name']:",
		`{"name": 1}`:               "1 is not of type 'string'|'type' in schema['properties']['name']:|On instance['name']:",
		`{"name": "x", "total": 0}`: "0 is less than the minimum of 1|'minimum' in schema['properties']['total']:|On instance['total']:",
		`{"name": "x", "total": 99999999999999999999}`: "99999999999999999999 is greater than the maximum of 10|'maximum' in",
		`{"name": "x", "total": true}`:                 "True is not of type 'integer'|'type' in",
		`{"name": "x", "total": 1.5}`:                  "1.5 is not of type 'integer'|'type' in",
		`{"name": "x", "uuid": "y"}`:                   "'y' is not a 'uuid'|'format' in schema['properties']['uuid']:",
		`{"name": "x", "parent": "y"}`:                 "'y' is not a 'uuid'|'format' in schema[0]:|On instance:",
		`{"name": "x", "parent": 5}`:                   "5 is not valid under any of the given schemas|'anyOf' in schema['properties']['parent']:",
		`{"name": "x", "list": ["a", "a"]}`:            "['a', 'a'] has non-unique elements|'uniqueItems' in",
		`{"name": "x", "list": []}`:                    "[] is too short|'minItems' in",
		`{"name": "x", "list": ["a", 2]}`:              "2 is not of type 'string'|'type' in schema['properties']['list']['items']:|On instance['list'][1]:",
		`{"name": "x", "policy": "y"}`:                 "'y' is not one of ['none', 'isolate']|'enum' in",
		`{"name": "x", "by": {}}`:                      "{} does not have enough properties|'minProperties' in",
		`{"name": "x", "by": {"a": 1}}`:                "'a' does not match any of the regexes: '^[A-Z]+$'|'additionalProperties' in",
		`{"name": "x", "by": {"a": 1, "b": 1}}`:        "'a', 'b' do not match any of the regexes: '^[A-Z]+$'|'additionalProperties' in",
		`{"name": "x", "by": {"A": "y"}}`:              "'y' is not of type 'integer'|'type' in schema['properties']['by']['patternProperties']['^[A-Z]+$']:",
		`{"name": "x", "z": 1}`:                        "Additional properties are not allowed ('z' was unexpected)|'additionalProperties' in",
		`{"name": "x", "z": 1, "y": 2}`:                "Additional properties are not allowed ('y', 'z' were unexpected)|'additionalProperties' in",
		`{"z": 1, "total": "x"}`:                       "'name' is a required property|'required' in",
	} {
		v, err := pyjson.Parse([]byte(body))
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
		`{"name": "x", "parent": "6e5f6f8e-5c6a-4d8a-9d53-000000000000"}`, `{"name": "x", "uuid": "6E5F6F8E5C6A4D8A9D53000000000000"}`,
		`{"name": "x", "by": {"A": 1}, "list": ["a", "b"], "policy": "none"}`,
	} {
		v, err := pyjson.Parse([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(v); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestUUIDsAreOneWithAndWithoutDashes(t *testing.T) {
	const canonical = "6e5f6f8e-5c6a-4d8a-9d53-0123456789ab"
	for _, s := range []string{canonical, "6E5F6F8E5C6A4D8A9D530123456789AB", "{" + canonical + "}", "urn:uuid:" + canonical} {
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
