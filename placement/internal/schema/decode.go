package schema

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxDigits bounds integers, as the original's parser does: conversion time grows with the square of the length.
const maxDigits = 4300

// Decode reads one JSON value. If an object repeats a key, the last value takes the place of the first.
func Decode(text []byte) (Document, error) {
	if !utf8.Valid(text) {
		return Document{}, fmt.Errorf("the text is not UTF-8")
	}
	if !json.Valid(text) {
		return Document{}, malformed(text)
	}
	d := decoder{text: text, open: make([]Part, 0, 8)}
	v := Document{d.value(), text}
	if d.refused {
		return v, refusedNumber(v.tree)
	}
	return v, nil
}

// malformed returns the error of a text that is not one JSON value. encoding/json has no message for a text that ends
// too early.
func malformed(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	err := d.Decode(new(json.RawMessage))
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		return fmt.Errorf("the text is empty")
	case err == nil:
		rest := bytes.TrimLeft(text[d.InputOffset():], " \t\r\n")
		return fmt.Errorf("%s after the value", show(string(rest[:1])))
	case err.Error() == "unexpected EOF":
		return fmt.Errorf("the text ends too early")
	}
	return err
}

// decoder reads a valid JSON text.
type decoder struct {
	text    []byte
	at      int
	open    []Part // members read so far of the objects that enclose at
	refused bool   // a number was left unconverted
}

// value reads the next value, and the white space before it.
func (d *decoder) value() Value {
	switch d.next() {
	case '{':
		return d.object()
	case '[':
		return d.list()
	case '"':
		return Value{tree: d.string()}
	case 't':
		d.at += len("true")
		return Value{tree: true}
	case 'f':
		d.at += len("false")
		return Value{tree: false}
	case 'n':
		d.at += len("null")
		return Value{}
	}
	return Value{tree: d.number()}
}

// next returns the next byte that is not white space, and moves to it.
func (d *decoder) next() byte {
	for {
		switch c := d.text[d.at]; c {
		case ' ', '\t', '\r', '\n':
			d.at++
		default:
			return c
		}
	}
}

// more moves into a list or object, or past a comma, and reports whether there is an element; if not, it moves behind
// the end.
func (d *decoder) more(end byte) bool {
	c := d.next()
	d.at++
	if c != ',' && c != end { // not the opening bracket
		c = d.next()
		if c != end {
			return true
		}
		d.at++
	}
	return c == ','
}

func (d *decoder) object() Value {
	tree, begin := map[string]any{}, len(d.open)
	for d.more('}') {
		d.next()
		p := Part{Name: d.string()}
		d.next()
		d.at++ // the colon
		p.Value = d.value()
		tree[p.Name] = p.tree
		d.open = append(d.open, p)
	}
	parts := slices.Clone(d.open[begin:])
	d.open = d.open[:begin]
	if len(tree) < len(parts) {
		parts = LastOfEach(parts)
	}
	return Value{tree: tree, parts: parts}
}

// LastOfEach keeps only the last part with each name, at the position of the first. It changes the list.
func LastOfEach(parts []Part) []Part {
	at := map[string]int{}
	kept := parts[:0]
	for _, p := range parts {
		if i, repeated := at[p.Name]; repeated {
			kept[i] = p
			continue
		}
		at[p.Name] = len(kept)
		kept = append(kept, p)
	}
	return kept
}

func (d *decoder) list() Value {
	tree := []any{}
	var parts []Part
	for d.more(']') {
		v := d.value()
		tree = append(tree, v.tree)
		if _, object := v.tree.(map[string]any); object {
			parts = append(parts, Part{Value: v})
		}
	}
	return Value{tree: tree, parts: parts}
}

func (d *decoder) string() string {
	begin := d.at
	for d.at++; d.text[d.at] != '"'; d.at++ {
		if d.text[d.at] == '\\' {
			return d.escaped(begin)
		}
	}
	d.at++
	return string(d.text[begin+1 : d.at-1])
}

// escaped reads a string with escape sequences.
func (d *decoder) escaped(begin int) (s string) {
	for ; d.text[d.at] != '"'; d.at++ {
		if d.text[d.at] == '\\' {
			d.at++
		}
	}
	d.at++
	_ = json.Unmarshal(d.text[begin:d.at], &s) // a valid string
	return s
}

func (d *decoder) number() any {
	begin := d.at
	for d.at < len(d.text) && strings.IndexByte("+-.0123456789Ee", d.text[d.at]) >= 0 {
		d.at++
	}
	text := string(d.text[begin:d.at])
	n, err := convertNumber(text)
	if err != nil {
		d.refused = true // no error yet: a later member of the same name may replace the number
		return json.Number(text)
	}
	return n
}

// convertNumber returns a number as in Value.tree.
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

// refusedNumber returns the error of a number that was left unconverted.
func refusedNumber(tree any) (err error) {
	switch tree := tree.(type) {
	case json.Number:
		_, err = convertNumber(string(tree))
	case []any:
		for i := 0; i < len(tree) && err == nil; i++ {
			err = refusedNumber(tree[i])
		}
	case map[string]any:
		for _, v := range tree {
			err = cmp.Or(err, refusedNumber(v))
		}
	}
	return err
}
