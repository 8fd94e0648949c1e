package schema

import (
	"encoding/json"
	"slices"
	"strings"
)

// Value is a JSON value. Its methods are for values that a schema has found valid: for a value of another type they
// return the zero value, or the caller's default.
type Value struct {
	// tree is nil, bool, int64, float64, json.Number (an integer beyond 64 bits), string, []any or map[string]any.
	tree  any
	parts []Part
}

// Document is a value to validate.
type Document struct {
	Value
	text []byte // nil: the value was not decoded
}

// Part is a member of an object, or an object in a list, which has no name.
type Part struct {
	Name string
	Value
}

// Object returns an object whose members are strings.
func Object(members map[string]string) Document {
	tree := make(map[string]any, len(members))
	for name, value := range members {
		tree[name] = value
	}
	return Document{Value: Value{tree: tree}}
}

// Parts returns the members of an object in the order of the text, or the objects in a list.
func (v Value) Parts() []Part { return v.parts }

// Has reports whether an object has a member.
func (v Value) Has(name string) bool {
	return slices.ContainsFunc(v.parts, func(p Part) bool { return p.Name == name })
}

// Get returns a member of an object, or null.
func (v Value) Get(name string) Value {
	for i := range v.parts {
		if v.parts[i].Name == name {
			return v.parts[i].Value
		}
	}
	return Value{}
}

// Null reports whether the value is null, or a member that is absent.
func (v Value) Null() bool { return v.tree == nil }

// Text returns a string.
func (v Value) Text() string {
	s, _ := v.tree.(string)
	return s
}

// Texts returns the strings in a list.
func (v Value) Texts() []string {
	list, _ := v.tree.([]any)
	texts := make([]string, len(list))
	for i := range list {
		texts[i], _ = list[i].(string)
	}
	return texts
}

// The range of Integer.
const (
	maxInteger = 1 << 62
	minInteger = -maxInteger
)

// Integer returns an integer, or otherwise if the value is no number. As in JSON schemas, 3.0 and 3e0 are integers
// too. A number beyond 62 bits, more than any amount in use, becomes the largest or smallest number of 62 bits.
func (v Value) Integer(otherwise int64) int64 {
	switch n := v.tree.(type) {
	case int64:
		return min(max(n, minInteger), maxInteger)
	case float64:
		return int64(min(max(n, minInteger), maxInteger))
	case json.Number:
		if strings.HasPrefix(string(n), "-") {
			return minInteger
		}
		return maxInteger
	}
	return otherwise
}

// Float returns a number, or otherwise if the value is no number.
func (v Value) Float(otherwise float64) float64 {
	switch n := v.tree.(type) {
	case int64:
		return float64(n)
	case float64:
		return n
	case json.Number:
		f, _ := n.Float64()
		return f
	}
	return otherwise
}
