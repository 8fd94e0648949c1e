package page

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"croft"
	"croft/internal/wording"
)

// notation is how people write an input whose type in the document does not say it.
type notation int

// The notations. byType is a text, a number, yes or no, a list of words, or pairs of key and value, by the type.
const (
	byType    notation = iota
	duration           // a number of seconds, as 8h or 30d
	lines              // a list with an entry in each line
	block              // a text of several lines
	object             // JSON
	count              // a number; empty: null
	addressed          // taken from the address, and not shown
)

// valueOf reads a text as a value for JSON. Invalid.
func valueOf(text string, of schema, as notation) (any, error) {
	kind := of.kind()
	switch {
	case as == duration:
		seconds, err := secondsOf(text)
		return seconds, err
	case as == lines:
		all := []string{}
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" {
				all = append(all, line)
			}
		}
		return all, nil
	case as == object:
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			return nil, croft.Errorf(croft.Invalid, "it is no JSON: %w", err)
		}
		return value, nil
	case as == count && text == "":
		return nil, nil
	case as == count || kind == "integer" || kind == "number":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, croft.Errorf(croft.Invalid, "%.40q is no whole number", text)
		}
		return n, nil
	case kind == "boolean":
		return text == "yes", nil
	case of.Items != nil:
		return append([]string{}, strings.FieldsFunc(text, func(r rune) bool {
			return r == ',' || r == ' ' ||
				r == '\n'
		})...), nil
	case kind == "object":
		return pairsOf(text, of)
	case of.Encoding != "":
		return base64.StdEncoding.EncodeToString([]byte(text + "\n")), nil
	}
	return text, nil
}

func secondsOf(text string) (int64, error) {
	if text == "" || text == "never" {
		return 0, nil
	}
	d, err := wording.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, croft.Errorf(croft.Invalid, "%.40q is no duration: write one such as 8h or 30d", text)
	}
	return int64(d / time.Second), nil
}

// pairsOf reads pairs of key and value: numbers as in VCPU:1,MEMORY_MB:512, others as key=value, one in a line.
func pairsOf(text string, of schema) (any, error) {
	values := valuesOf(of)
	separators, sign := "\n", "="
	if values.kind() == "integer" {
		separators, sign = ",\n", ":"
	}
	all := map[string]any{}
	for _, pair := range strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(separators, r) }) {
		if strings.TrimSpace(pair) == "" {
			continue
		}
		key, value, found := strings.Cut(strings.TrimSpace(pair), sign)
		if key = strings.TrimSpace(key); !found || key == "" {
			return nil, croft.Errorf(croft.Invalid, "%.40q is no pair: write KEY%sVALUE", pair, sign)
		}
		if _, twice := all[key]; twice {
			return nil, croft.Errorf(croft.Invalid, "%.40q is there twice", key)
		}
		value = strings.TrimSpace(value)
		all[key] = value
		if values.kind() == "integer" {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return nil, croft.Errorf(croft.Invalid, "%s is %.40q: write a whole number", key, value)
			}
			all[key] = n
		} else if values.kind() == "any" { // a number, true and false are read as such
			var typed any
			if json.Unmarshal([]byte(value), &typed) == nil {
				all[key] = typed
			}
		}
	}
	return all, nil
}

// textOf writes a value as valueOf reads it.
func textOf(value any, of schema, as notation) string {
	switch value := value.(type) {
	case nil:
		if of.kind() == "boolean" {
			return "no"
		}
		return ""
	case string:
		return value
	case bool:
		return yes(value)
	case json.Number:
		if n, err := value.Int64(); as == duration && err == nil {
			if n == 0 {
				return ""
			}
			return wording.Duration(time.Duration(n) * time.Second)
		}
		return value.String()
	case []any:
		if as != object {
			var all []string
			for _, one := range value {
				all = append(all, textOf(one, schema{}, byType))
			}
			return strings.Join(all, map[bool]string{true: "\n", false: ", "}[as == lines])
		}
	case map[string]any:
		if as != object {
			return pairsText(value, of)
		}
	}
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	return string(indented(text, ""))
}

// valuesOf returns the schema of the values of a map.
func valuesOf(of schema) (values schema) {
	_ = json.Unmarshal(of.Values, &values) // the document is valid, and objects without pairs have false or nothing
	return values
}

func pairsText(value map[string]any, of schema) string {
	values := valuesOf(of)
	sign, separator := "=", "\n"
	if values.kind() == "integer" {
		sign, separator = ":", ","
	}
	var all []string
	for _, key := range slices.Sorted(maps.Keys(value)) {
		text := textOf(value[key], values, byType)
		if one, is := value[key].(string); is && values.kind() == "any" && json.Valid([]byte(one)) {
			text = strconv.Quote(one) // a text that looks like a number
		} else if flag, is := value[key].(bool); is {
			text = strconv.FormatBool(flag)
		}
		all = append(all, key+sign+text)
	}
	return strings.Join(all, separator)
}
