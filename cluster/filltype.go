package cluster

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// ParameterTypes are the types of parameters in Heat; all sites support the same ones.
var ParameterTypes = []string{"string", "number", "boolean", "json", "comma_delimited_list"}

// convert converts a value to the type that the template declares; false: the value has no such type. Numbers and
// booleans may be given as text, as on a command line.
func convert(kind string, value any) (any, bool) {
	switch kind {
	case "string":
		return text(value)
	case "number":
		return number(value)
	case "boolean":
		return truth(value)
	case "json":
		return structure(value)
	case "comma_delimited_list":
		return list(value)
	}
	return value, true
}

func text(value any) (any, bool) {
	switch v := value.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	}
	n, ok := number(value)
	if !ok {
		return nil, false
	}
	return fmt.Sprint(n), true
}

// number returns an int for a whole number, so that it is written without a decimal point.
func number(value any) (any, bool) {
	var f float64
	switch v := value.(type) {
	case int:
		return v, true
	case int64:
		return int(v), true
	case float64:
		f = v
	case json.Number:
		return number(string(v))
	case string:
		if n, err := strconv.Atoi(v); err == nil {
			return n, true
		}
		parsed, err := strconv.ParseFloat(v, 64)
		if err != nil {
			return nil, false
		}
		f = parsed
	default:
		return nil, false
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, false
	}
	if f == math.Trunc(f) && math.Abs(f) < 1<<53 {
		return int(f), true
	}
	return f, true
}

var (
	yes = []string{"true", "t", "1", "on", "y", "yes"}
	no  = []string{"false", "f", "0", "off", "n", "no"}
)

func truth(value any) (any, bool) {
	if v, ok := value.(bool); ok {
		return v, true
	}
	word := strings.ToLower(fmt.Sprint(value))
	return slices.Contains(yes, word), slices.Contains(yes, word) || slices.Contains(no, word)
}

// structure accepts a mapping or a list, or JSON text of one.
func structure(value any) (any, bool) {
	if s, ok := value.(string); ok {
		var parsed any
		if json.Unmarshal([]byte(s), &parsed) != nil {
			return nil, false
		}
		value = parsed
	}
	switch value.(type) {
	case map[string]any, []any:
		return value, true
	}
	return nil, false
}

// list accepts text with commas, or a list of scalars.
func list(value any) (any, bool) {
	if s, ok := value.(string); ok {
		return s, true
	}
	items, ok := value.([]any)
	if !ok {
		return nil, false
	}
	var all []string
	for _, item := range items {
		s, ok := text(item)
		if !ok || strings.Contains(s.(string), ",") {
			return nil, false
		}
		all = append(all, s.(string))
	}
	return strings.Join(all, ","), true
}

// shown quotes a value in an error, unless it is secret.
func shown(d Declared, name string, value any) string {
	if d.hides(name) {
		return masked
	}
	s, err := json.Marshal(value)
	if err != nil {
		return "what is given"
	}
	return fmt.Sprintf("%.80s", s)
}
