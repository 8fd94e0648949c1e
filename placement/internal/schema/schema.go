// Package schema validates JSON values against JSON schemas and words what is
// wrong as Python's jsonschema does, because clients of the original Placement
// read those texts. It knows the keywords that Placement's schemas use.
package schema

import (
	"fmt"
	"math"
	"math/big"

	"croft/placement/internal/pyjson"
)

// Schema is a compiled JSON schema.
type Schema struct {
	raw   *pyjson.Object
	types []string // nil: any
	rules []rule   // in the order of the keywords
}

// rule reports what one keyword finds wrong with a value.
type rule struct {
	keyword string
	check   func(v any, report func(*Error))
}

// Must compiles the text of a schema, which is part of the program.
func Must(text string) *Schema {
	v, err := pyjson.Parse([]byte(text))
	if err != nil {
		panic(fmt.Sprintf("schema: %v in %s", err, text))
	}
	return compile(v.(*pyjson.Object))
}

func compile(raw *pyjson.Object) *Schema {
	s := &Schema{raw: raw}
	for i := range raw.Len() {
		keyword, value := raw.At(i)
		s.rules = append(s.rules, rule{keyword, s.rule(keyword, value)})
	}
	return s
}

// Validate returns what is most wrong with a value, nil where nothing is.
func (s *Schema) Validate(v any) error {
	if best := bestMatch(s.validate(v)); best != nil {
		return best
	}
	return nil
}

func (s *Schema) validate(v any) []*Error {
	var errs []*Error
	for _, r := range s.rules {
		r.check(v, func(e *Error) {
			if e.keyword == "" { // found here, not further down
				e.keyword, e.schema, e.instance, e.typed = r.keyword, s.raw, v, s.matchesType(v)
			}
			e.schemaPath = append([]any{r.keyword}, e.schemaPath...)
			errs = append(errs, e)
		})
	}
	return errs
}

// descend validates a part of a value and reports with its place.
func (s *Schema) descend(v any, report func(*Error), path any, schemaPath ...any) {
	for _, e := range s.validate(v) {
		if path != nil {
			e.path = append([]any{path}, e.path...)
		}
		e.schemaPath = append(schemaPath[:len(schemaPath):len(schemaPath)], e.schemaPath...)
		report(e)
	}
}

func (s *Schema) matchesType(v any) bool {
	for _, t := range s.types {
		if isType(v, t) {
			return true
		}
	}
	return false
}

func isType(v any, name string) bool {
	switch v := v.(type) {
	case nil:
		return name == "null"
	case bool:
		return name == "boolean"
	case int64, *big.Int:
		return name == "integer" || name == "number"
	case float64:
		return name == "number" || name == "integer" && v == math.Trunc(v) && !math.IsInf(v, 0)
	case string:
		return name == "string"
	case []any:
		return name == "array"
	case *pyjson.Object:
		return name == "object"
	}
	return false
}
