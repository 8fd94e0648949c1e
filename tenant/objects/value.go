package objects

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"croft"
)

// Value is the value of a property: a string, an integer, a number or a boolean. Equal values compare equal with ==.
// The zero Value has no type and is never stored.
type Value struct {
	scalar any // string, int64, float64 or bool; a whole number below 2^53 is never a float64
}

// Text returns a string as a value.
func Text(s string) Value { return Value{s} }

// Integer returns an integer as a value.
func Integer(n int64) Value { return Value{n} }

// Boolean returns a boolean as a value.
func Boolean(b bool) Value { return Value{b} }

// exact is the limit below which a float64 holds every whole number.
const exact = 1 << 53

// Number returns a number as a value. Invalid: it is infinite or NaN.
func Number(f float64) (Value, error) {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return Value{}, croft.Errorf(croft.Invalid, "%v is not a number that a property can have: use a finite one", f)
	}
	if f == math.Trunc(f) && math.Abs(f) < exact {
		return Value{int64(f)}, nil
	}
	return Value{f}, nil
}

// parseNumber parses a JSON number. Invalid.
func parseNumber(text string) (Value, error) {
	if text == "" || len(text) > 40 || !json.Valid([]byte(text)) || !strings.ContainsAny(text[:1], "-0123456789") {
		return Value{}, croft.Errorf(croft.Invalid, "%.40q is not a number: write it as 12, -3 or 0.5", text)
	}
	if !strings.ContainsAny(text, ".eE") {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return Value{}, croft.Errorf(croft.Invalid, "%s is too large for a property: integers have at most 63 bits",
				text)
		}
		return Value{n}, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return Value{}, croft.Errorf(croft.Invalid, "%s is too large for a property", text)
	}
	return Number(f)
}

// Type returns the JSON Schema type of a value; for a number, the narrowest type.
func (v Value) Type() string {
	switch v.scalar.(type) {
	case string:
		return typeString
	case int64:
		return typeInteger
	case float64:
		return typeNumber
	}
	return typeBoolean
}

// String returns a string unchanged, and another value in JSON.
func (v Value) String() string {
	switch s := v.scalar.(type) {
	case string:
		return s
	case int64:
		return strconv.FormatInt(s, 10)
	case float64:
		return strconv.FormatFloat(s, 'g', -1, 64)
	}
	return fmt.Sprint(v.scalar)
}

// MarshalJSON implements json.Marshaler.
func (v Value) MarshalJSON() ([]byte, error) { return json.Marshal(v.scalar) }

// UnmarshalJSON implements json.Unmarshaler. Invalid: not a scalar, or one that no property can have.
func (v *Value) UnmarshalJSON(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var any any
	if err := d.Decode(&any); err != nil {
		return err
	}
	switch s := any.(type) {
	case string:
		*v = Text(s)
	case bool:
		*v = Boolean(s)
	case json.Number:
		read, err := parseNumber(string(s))
		if err != nil {
			return err
		}
		*v = read
	default:
		return croft.Errorf(croft.Invalid,
			"%.40s is not a value of a property: use a string, a number, true or false", text)
	}
	return nil
}

// Check validates a value's size and characters. Invalid.
func (v Value) Check() error {
	s, is := v.scalar.(string)
	switch {
	case v.scalar == nil:
		return croft.Errorf(croft.Invalid, "there is no value: use a string, a number, true or false")
	case !is:
		return nil
	case len(s) > MaxText:
		return croft.Errorf(croft.Invalid, "the value %.20q... has %d bytes: a value has at most %d", s, len(s),
			MaxText)
	case !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsControl(r) && r != '\n' && r != '\t'
	}):
		return croft.Errorf(croft.Invalid,
			"the value %.80q has bytes that are no text: use UTF-8 without control characters", s)
	}
	return checkComposed("value", s)
}

// checkComposed rejects text that is not in Unicode's composed form, since it looks like its composed form and differs
// from it. Invalid.
func checkComposed(what, text string) error {
	if norm.NFC.IsNormalString(text) {
		return nil
	}
	return croft.Errorf(croft.Invalid, "the %s %+.80q has letters apart from their accents, so it differs from the "+
		"same text in Unicode's composed form (NFC): write it as %+.80q", what, text, norm.NFC.String(text))
}

// is reports whether text denotes the value in a filter; a number may be written in any notation.
func (v Value) is(text string) bool {
	if norm.NFC.String(v.String()) == norm.NFC.String(text) {
		return true
	}
	switch v.scalar.(type) {
	case int64, float64:
		n, err := parseNumber(text)
		return err == nil && n == v
	}
	return false
}
