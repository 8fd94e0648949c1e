package schema

import (
	"fmt"
	"maps"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"croft/placement/internal/pyjson"
)

type check = func(v any, report func(*Error))

// rule makes the check of one keyword of s. The schemas are part of the program,
// so one that is not understood is a bug.
func (s *Schema) rule(keyword string, value any) check {
	switch keyword {
	case "type":
		return s.typeRule(value)
	case "properties":
		return propertiesRule(value.(*pyjson.Object))
	case "patternProperties":
		return patternPropertiesRule(value.(*pyjson.Object))
	case "additionalProperties":
		if value != false { // true allows what is allowed anyway; of an object the original's schemas make no use
			return func(any, func(*Error)) {}
		}
		return s.additionalRule()
	case "required":
		return requiredRule(value.([]any))
	case "items":
		return itemsRule(part(value.(*pyjson.Object)))
	case "minItems", "minLength", "maxLength", "minProperties":
		return sizeRule(keyword, int(value.(int64)))
	case "uniqueItems":
		return uniqueRule
	case "pattern":
		return patternRule(value.(string))
	case "format":
		return formatRule(value.(string))
	case "enum":
		return enumRule(value.([]any))
	case "minimum":
		return boundRule(value, -1, "less than the minimum")
	case "maximum":
		return boundRule(value, 1, "greater than the maximum")
	case "anyOf":
		return anyOfRule(value.([]any))
	}
	panic(fmt.Sprintf("schema: keyword %q is not known", keyword))
}

func (s *Schema) typeRule(value any) check {
	list, ok := value.([]any)
	if !ok {
		list = []any{value}
	}
	var shown []string
	for _, t := range list {
		s.types = append(s.types, t.(string))
		shown = append(shown, pyjson.Repr(t))
	}
	return func(v any, report func(*Error)) {
		if !s.matchesType(v) {
			report(failure("%s is not of type %s", pyjson.Repr(v), strings.Join(shown, ", ")))
		}
	}
}

func propertiesRule(properties *pyjson.Object) check {
	inner := make([]*Schema, properties.Len())
	for i := range inner {
		_, v := properties.At(i)
		inner[i] = part(v.(*pyjson.Object))
	}
	return func(v any, report func(*Error)) {
		o, ok := v.(*pyjson.Object)
		if !ok {
			return
		}
		for i, s := range inner {
			name, _ := properties.At(i)
			if value, ok := o.Get(name); ok {
				s.descend(value, report, name, name)
			}
		}
	}
}

func patternPropertiesRule(patterns *pyjson.Object) check {
	type entry struct {
		pattern string
		re      *regexp.Regexp
		schema  *Schema
	}
	var entries []entry
	for i := range patterns.Len() {
		p, v := patterns.At(i)
		entries = append(entries, entry{p, regexp.MustCompile(p), part(v.(*pyjson.Object))})
	}
	return func(v any, report func(*Error)) {
		o, ok := v.(*pyjson.Object)
		if !ok {
			return
		}
		for _, e := range entries {
			for i := range o.Len() {
				if key, value := o.At(i); search(e.re, key) {
					e.schema.descend(value, report, key, e.pattern)
				}
			}
		}
	}
}

// search is Python's re.search: there $ also matches before a last newline.
func search(re *regexp.Regexp, s string) bool {
	return re.MatchString(s) || strings.HasSuffix(s, "\n") && re.MatchString(s[:len(s)-1])
}

// additionalRule allows no properties but those that the schema names.
func (s *Schema) additionalRule() check {
	known := s.raw.Object("properties")
	patterns := s.raw.Object("patternProperties")
	var res []*regexp.Regexp
	shown := map[string]bool{}
	for i := range patterns.Len() {
		p, _ := patterns.At(i)
		res = append(res, regexp.MustCompile(p))
		shown[pyjson.Repr(p)] = true
	}
	regexes := strings.Join(slices.Sorted(maps.Keys(shown)), ", ")
	return func(v any, report func(*Error)) {
		o, ok := v.(*pyjson.Object)
		if !ok {
			return
		}
		var extras []string
		for i := range o.Len() {
			key, _ := o.At(i)
			_, named := known.Get(key)
			if !named && !slices.ContainsFunc(res, func(re *regexp.Regexp) bool { return search(re, key) }) {
				extras = append(extras, key)
			}
		}
		if len(extras) == 0 {
			return
		}
		slices.Sort(extras)
		for i, e := range extras {
			extras[i] = pyjson.Repr(e)
		}
		joined, one := strings.Join(extras, ", "), len(extras) == 1
		switch {
		case len(res) > 0 && one:
			report(failure("%s does not match any of the regexes: %s", joined, regexes))
		case len(res) > 0:
			report(failure("%s do not match any of the regexes: %s", joined, regexes))
		case one:
			report(failure("Additional properties are not allowed (%s was unexpected)", joined))
		default:
			report(failure("Additional properties are not allowed (%s were unexpected)", joined))
		}
	}
}

func requiredRule(names []any) check {
	return func(v any, report func(*Error)) {
		o, ok := v.(*pyjson.Object)
		if !ok {
			return
		}
		for _, name := range names {
			if _, ok := o.Get(name.(string)); !ok {
				report(failure("%s is a required property", pyjson.Repr(name)))
			}
		}
	}
}

func itemsRule(s *Schema) check {
	return func(v any, report func(*Error)) {
		list, _ := v.([]any)
		for i, e := range list {
			s.descend(e, report, i)
		}
	}
}

func sizeRule(keyword string, bound int) check {
	words := map[string]string{
		"minItems": "is too short", "minLength": "is too short", "maxLength": "is too long",
		"minProperties": "does not have enough properties",
	}[keyword]
	return func(v any, report func(*Error)) {
		wrong := false
		switch v := v.(type) {
		case []any:
			wrong = keyword == "minItems" && len(v) < bound
		case string:
			n := utf8.RuneCountInString(v)
			wrong = keyword == "minLength" && n < bound || keyword == "maxLength" && n > bound
		case *pyjson.Object:
			wrong = keyword == "minProperties" && v.Len() < bound
		}
		if wrong {
			report(failure("%s %s", pyjson.Repr(v), words))
		}
	}
}

func uniqueRule(v any, report func(*Error)) {
	list, _ := v.([]any)
	seen := map[string]bool{}
	for _, e := range list {
		shown := pyjson.Repr(e)
		if seen[shown] {
			report(failure("%s has non-unique elements", pyjson.Repr(v)))
			return
		}
		seen[shown] = true
	}
}

func patternRule(pattern string) check {
	re := regexp.MustCompile(pattern)
	return func(v any, report func(*Error)) {
		if s, ok := v.(string); ok && !search(re, s) {
			report(failure("%s does not match %s", pyjson.Repr(s), pyjson.Repr(pattern)))
		}
	}
}

func formatRule(format string) check {
	if format != "uuid" {
		panic(fmt.Sprintf("schema: format %q is not known", format))
	}
	return func(v any, report func(*Error)) {
		if s, ok := v.(string); !ok || !IsUUID(s) {
			report(failure("%s is not a 'uuid'", pyjson.Repr(v)))
		}
	}
}

func enumRule(values []any) check {
	return func(v any, report func(*Error)) {
		if s, ok := v.(string); !ok || !slices.Contains(values, any(s)) {
			report(failure("%s is not one of %s", pyjson.Repr(v), pyjson.Repr(values)))
		}
	}
}

func boundRule(bound any, side int, words string) check {
	limit := number(bound)
	return func(v any, report func(*Error)) {
		if n := number(v); n != nil && n.Cmp(limit) == side {
			report(failure("%s is %s of %s", pyjson.Repr(v), words, pyjson.Repr(bound)))
		}
	}
}

func number(n any) *big.Float {
	switch n := n.(type) {
	case int64:
		return new(big.Float).SetInt64(n)
	case *big.Int:
		return new(big.Float).SetInt(n)
	case float64:
		if !math.IsNaN(n) {
			return new(big.Float).SetFloat64(n)
		}
	}
	return nil
}

func anyOfRule(list []any) check {
	var options []*Schema
	for _, raw := range list {
		options = append(options, part(raw.(*pyjson.Object)))
	}
	return func(v any, report func(*Error)) {
		var all []*Error
		for i, s := range options {
			errs := s.validate(v)
			if len(errs) == 0 {
				return
			}
			for _, e := range errs {
				e.schemaPath = append([]any{i}, e.schemaPath...)
			}
			all = append(all, errs...)
		}
		e := failure("%s is not valid under any of the given schemas", pyjson.Repr(v))
		e.context = all
		report(e)
	}
}

// IsUUID tells whether s is a UUID, dashed or not, in either case, as liberally
// as the original reads them.
func IsUUID(s string) bool {
	_, ok := UUID(s)
	return ok
}

// UUID returns the dashed, lower-case form of what IsUUID accepts.
func UUID(s string) (string, bool) {
	s = strings.ReplaceAll(strings.ReplaceAll(s, "urn:", ""), "uuid:", "")
	s = strings.ToLower(strings.ReplaceAll(strings.Trim(s, "{}"), "-", ""))
	if len(s) != 32 || strings.Trim(s, "0123456789abcdef") != "" {
		return "", false
	}
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:], true
}
