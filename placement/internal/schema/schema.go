// Package schema validates JSON values against JSON schemas and words what is
// wrong as Python's jsonschema does, because clients of the original Placement
// read those texts. It knows the keywords that Placement's schemas use.
package schema

import (
	"fmt"
	"math"
	"math/big"
	"sync"

	"croft/placement/internal/pyjson"
)

// Schema is a JSON schema. It is compiled when it is first used, since there are many
// of them in a program that is often a command which uses none.
type Schema struct {
	text string // empty for a part of another
	once sync.Once

	raw   *pyjson.Object
	types []string // nil: any
	rules []rule   // in the order of the keywords
}

// rule reports what one keyword finds wrong with a value.
type rule struct {
	keyword string
	check   func(v any, report func(*Error))
}

// Must is the schema of a text, which is part of the program: one that is none panics
// at its first use.
func Must(text string) *Schema { return &Schema{text: text} }

// ready compiles a schema that has not been used.
func (s *Schema) ready() {
	if s.text == "" {
		return
	}
	s.once.Do(func() {
		v, err := pyjson.Parse([]byte(s.text))
		if err != nil {
			panic(fmt.Sprintf("schema: %v in %s", err, s.text))
		}
		s.compile(v.(*pyjson.Object))
	})
}

// part is a schema inside another.
func part(raw *pyjson.Object) *Schema {
	s := &Schema{}
	s.compile(raw)
	return s
}

func (s *Schema) compile(raw *pyjson.Object) {
	s.raw = raw
	for i := range raw.Len() {
		keyword, value := raw.At(i)
		s.rules = append(s.rules, rule{keyword, s.rule(keyword, value)})
	}
}

// Validate returns what is most wrong with a value, nil where nothing is.
func (s *Schema) Validate(v any) error {
	if best := bestMatch(s.validate(v)); best != nil {
		return best
	}
	return nil
}

func (s *Schema) validate(v any) []*Error {
	s.ready()
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
