package objects

import (
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/unicode/norm"

	"croft"
)

// Filter selects objects for which all terms of at least one alternative hold. Without alternatives it selects all
// objects.
type Filter []Alternative

// Alternative is a list of terms, all of which have to hold.
type Alternative []Term

// Term requires a property or a tag.
type Term struct {
	Key    string // of a property; empty: the term is about a tag
	Value  string // of the property, or the tag
	Prefix bool   // Value is only a prefix; with an empty Value, any value matches
}

// Limits of a filter.
const (
	maxFilter       = 4096 // bytes per alternative
	maxAlternatives = 16
	maxTerms        = 32
)

// tagMark starts a term about a tag. No key contains a colon.
const tagMark = "tag:"

// labelMark may precede the key of a property.
const labelMark = "label."

// ParseFilter parses alternatives. Each consists of terms separated by blanks: key=value, key=prefix*, key alone for
// objects with the property, each with or without label. before it, tag:name and tag:prefix*. A value in double quotes,
// with Go's syntax, may contain blanks and end with a *. Invalid: the error names the term.
func ParseFilter(alternatives []string) (Filter, error) {
	if len(alternatives) > maxAlternatives {
		return nil, croft.Errorf(croft.Invalid, "there are %d filters: at most %d can be combined", len(alternatives),
			maxAlternatives)
	}
	var f Filter
	for _, text := range alternatives {
		a, err := parseAlternative(text)
		if err != nil {
			return nil, err
		}
		f = append(f, a)
	}
	return f, nil
}

func parseAlternative(text string) (Alternative, error) {
	if len(text) > maxFilter {
		return nil, croft.Errorf(croft.Invalid, "the filter %.20q... has %d bytes: it may have %d", text, len(text),
			maxFilter)
	}
	var a Alternative
	for rest := skipBlanks(text); rest != ""; rest = skipBlanks(rest) {
		term, after, err := parseTerm(rest)
		if err != nil {
			return nil, err
		}
		if a = append(a, term); len(a) > maxTerms {
			return nil, croft.Errorf(croft.Invalid, "the filter %.20q... has more than %d terms", text, maxTerms)
		}
		rest = after
	}
	if a == nil {
		return nil, croft.Errorf(croft.Invalid,
			"a filter is empty: write key=value, key=beginning*, key, or tag:name, with blanks between several")
	}
	return a, nil
}

const blanks = " \t\n"

func skipBlanks(s string) string { return strings.TrimLeft(s, blanks) }

// parseTerm parses the first term of a text without leading blanks.
func parseTerm(text string) (t Term, rest string, err error) {
	if tag, is := strings.CutPrefix(text, tagMark); is {
		if t.Value, t.Prefix, rest, err = parseOperand(tag); err == nil && t.Value == "" && !t.Prefix {
			err = croft.Errorf(croft.Invalid, "the filter tag: names no tag: write tag:name, or tag:* for any")
		}
		return t, rest, err
	}
	end := strings.IndexAny(text, blanks+"=")
	if end < 0 {
		end = len(text)
	}
	t.Key = strings.TrimPrefix(text[:end], labelMark) // as the API calls the properties of instances
	if err := CheckKey(t.Key); err != nil {
		return t, "", croft.Errorf(croft.Invalid, "the filter %.80q: %w", text, err)
	}
	value, equals := strings.CutPrefix(text[end:], "=")
	if !equals {
		t.Prefix = true
		return t, value, nil
	}
	t.Value, t.Prefix, rest, err = parseOperand(value)
	return t, rest, err
}

// parseOperand parses a value, which may be quoted and followed by a *, up to a blank or the end.
func parseOperand(text string) (value string, prefix bool, rest string, err error) {
	if !strings.HasPrefix(text, `"`) {
		end := strings.IndexAny(text, blanks)
		if end < 0 {
			end = len(text)
		}
		value, prefix = strings.CutSuffix(text[:end], "*")
		return value, prefix, text[end:], nil
	}
	quoted, err := strconv.QuotedPrefix(text)
	if err != nil {
		return "", false, "", croft.Errorf(croft.Invalid,
			"the filter %.80q: the quote does not end, or has an unknown escape", text)
	}
	if value, err = strconv.Unquote(quoted); err != nil {
		return "", false, "", croft.Errorf(croft.Invalid, "the filter %.80q: the quote is wrong: %w", text, err)
	}
	rest, prefix = strings.CutPrefix(text[len(quoted):], "*")
	if rest != "" && !strings.ContainsAny(rest[:1], blanks) {
		return "", false, "", croft.Errorf(croft.Invalid,
			"the filter %.80q: after a quote stands a blank, or a * and a blank", text)
	}
	return value, prefix, rest, nil
}

// String returns the term in the notation of ParseFilter.
func (t Term) String() string {
	if t.Key != "" && t.Prefix && t.Value == "" {
		return t.Key
	}
	operand := t.Value
	if strings.ContainsAny(operand, blanks) || strings.HasPrefix(operand, `"`) || strings.HasSuffix(operand, "*") {
		operand = strconv.Quote(operand)
	}
	if t.Prefix {
		operand += "*"
	}
	if t.Key == "" {
		return tagMark + operand
	}
	return t.Key + "=" + operand
}

// String returns the alternative in the notation of ParseFilter.
func (a Alternative) String() string {
	var all []string
	for _, t := range a {
		all = append(all, t.String())
	}
	return strings.Join(all, " ")
}

// Match reports whether the filter selects an object. The object must contain only what the caller may read.
func (f Filter) Match(o Object) bool {
	return len(f) == 0 || slices.ContainsFunc(f, func(a Alternative) bool {
		return !slices.ContainsFunc(a, func(t Term) bool { return !t.holds(o) })
	})
}

func (t Term) holds(o Object) bool {
	begins := func(text string) bool {
		return t.Prefix && strings.HasPrefix(norm.NFC.String(text), norm.NFC.String(t.Value))
	}
	if t.Key == "" {
		return slices.ContainsFunc(o.Tags, func(tag string) bool {
			return norm.NFC.String(tag) == norm.NFC.String(t.Value) || begins(tag)
		})
	}
	v, there := o.Properties[t.Key]
	return there && (v.is(t.Value) || begins(v.String()))
}
