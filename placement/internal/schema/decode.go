package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxDigits bounds integers, as the original's parser does: conversion time grows with the square of the length.
const maxDigits = 4300

// Value is a JSON value to validate.
type Value struct {
	// tree is nil, bool, int64, float64, json.Number (an integer beyond 64 bits), string, []any or map[string]any.
	tree any
	text []byte // nil: the value was not parsed from a text
}

// Object returns the value of an object whose members are strings.
func Object(members map[string]string) Value {
	tree := make(map[string]any, len(members))
	for name, value := range members {
		tree[name] = value
	}
	return Value{tree: tree}
}

// Decode reads one JSON value. If an object repeats a key, the last value wins.
func Decode(text []byte) (Value, error) {
	tree, err := decode(text)
	return Value{tree, text}, err
}

func decode(text []byte) (any, error) {
	if !utf8.Valid(text) {
		return nil, fmt.Errorf("the text is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, syntaxError(text, err)
	}
	if rest := bytes.TrimLeft(text[d.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return nil, fmt.Errorf("%s after the value", show(string(rest[:1])))
	}
	return convert(v)
}

// syntaxError words an error of encoding/json, including a text that ends too early, for which it has no words.
func syntaxError(text []byte, err error) error {
	if len(bytes.TrimSpace(text)) == 0 {
		return fmt.Errorf("the text is empty")
	}
	if err.Error() == "unexpected EOF" {
		return fmt.Errorf("the text ends too early")
	}
	return err
}

// convert replaces the numbers of a decoded value, see Value.tree.
func convert(v any) (_ any, err error) {
	switch v := v.(type) {
	case json.Number:
		return convertNumber(string(v))
	case []any:
		for i := range v {
			if v[i], err = convert(v[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for key := range v {
			if v[key], err = convert(v[key]); err != nil {
				return nil, err
			}
		}
	}
	return v, nil
}

func convertNumber(text string) (any, error) {
	if strings.ContainsAny(text, ".eE") {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("the number %.40s is out of range", text)
		}
		return f, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	if digits := len(strings.TrimPrefix(text, "-")); digits > maxDigits {
		return nil, fmt.Errorf("an integer has %d digits, and at most %d are read", digits, maxDigits)
	}
	return json.Number(text), nil
}

// Integer is an integer of a valid value. As in JSON schemas, 3.0 and 3e0 are integers too. A number beyond 62 bits,
// more than any amount in use, is stored as the largest or smallest number of 62 bits.
type Integer int64

// The range of Integer.
const (
	maxInteger = 1 << 62
	minInteger = -maxInteger
)

// UnmarshalJSON implements json.Unmarshaler.
func (i *Integer) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		f, err := strconv.ParseFloat(string(text), 64)
		if math.Trunc(f) != f || err != nil && !math.IsInf(f, 0) {
			return fmt.Errorf("%.40s is not of type 'integer'", text)
		}
		n = int64(min(max(f, minInteger), maxInteger))
	}
	*i = Integer(min(max(n, minInteger), maxInteger))
	return nil
}

// Members is a JSON object whose members keep their order. If a name is repeated, the last value takes the place of the
// first.
type Members[T any] []Member[T]

// Member is a name and a value of an object.
type Member[T any] struct {
	Name  string
	Value T
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *Members[T]) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	if token, err := d.Token(); err != nil || token != json.Delim('{') {
		return fmt.Errorf("%.40s is not of type 'object'", text)
	}
	*m = nil
	at := map[string]int{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return err
		}
		member := Member[T]{Name: token.(string)}
		if err := d.Decode(&member.Value); err != nil {
			return err
		}
		if i, repeated := at[member.Name]; repeated {
			(*m)[i] = member
			continue
		}
		at[member.Name] = len(*m)
		*m = append(*m, member)
	}
	return nil
}
