package api

import (
	"encoding"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"croft/internal/nearest"
)

// Input describes the inputs of an operation, which are structs. A field with the tag path, query or header is a
// parameter of the name that the tag gives, and may have the tags required, enum (values separated by commas), minimum,
// maximum, minLength, maxLength, maxItems, default and format, as in JSON Schema. The other fields that have names in
// JSON are sent as the body.
//
// A parameter is a string, a bool, a *bool (nil: the default), an integer, a []string (which may be given several
// times), or a type that reads and writes itself as text, such as Match in the header If-Match. An error of such a type
// is the rest of a sentence that starts with the parameter. All parameters are read before an operation starts.
type Input struct {
	Parameters []Parameter
	Body       bool // some fields are sent as a JSON body

	fields [][]int // of Parameters, in the struct
	match  []int   // field for If-Match; nil: none
}

// places are the tags of parameters.
var places = []string{"path", "query", "header"}

// Parameter is a parameter of an operation.
type Parameter struct {
	Name     string
	In       string // path, query or header
	Required bool
	Schema   map[string]any
}

var inputs sync.Map // Input by reflect.Type

// InputOf returns how values of a struct type are sent.
func InputOf(t reflect.Type) Input {
	if known, ok := inputs.Load(t); ok {
		return known.(Input)
	}
	var in Input
	for _, f := range reflect.VisibleFields(t) {
		p, is := ParameterOf(f)
		if !is {
			in.Body = in.Body || isProperty(f)
			continue
		}
		in.Parameters, in.fields = append(in.Parameters, p), append(in.fields, f.Index)
		if p.In == "header" && p.Name == "If-Match" {
			in.match = f.Index
		}
	}
	inputs.Store(t, in)
	return in
}

// ParameterOf returns the parameter that a field of an input is, if it is one.
func ParameterOf(f reflect.StructField) (p Parameter, is bool) {
	for _, place := range places {
		name, ok := f.Tag.Lookup(place)
		if !ok {
			continue
		}
		p = Parameter{Name: name, In: place, Required: place == "path" || f.Tag.Get("required") == "true",
			Schema: Schema{"type": "string"}}
		if f.Type.Kind() != reflect.Pointer || kindOf(f.Type) == reflect.Bool {
			p.Schema = (&Schemas{}).Of(f.Type, f.Tag)
		}
		return p, true
	}
	return p, false
}

// kindOf returns the kind of a type, or of the bool that a pointer points to.
func kindOf(t reflect.Type) reflect.Kind {
	if t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Bool {
		return reflect.Bool
	}
	return t.Kind()
}

// Base returns the field for If-Match of an input.
func (i Input) Base(input any) (base Match) {
	if i.match != nil {
		base, _ = reflect.ValueOf(input).FieldByIndex(i.match).Interface().(Match)
	}
	return base
}

// Query parses a query string. It refuses parameters that the operation does not have, and wrong values. Invalid.
func Query(parameters []Parameter, text string) (url.Values, error) {
	given, err := url.ParseQuery(text)
	if err != nil {
		return nil, NewProblem(BadQuery, "the query string cannot be read: "+err.Error())
	}
	var known []string
	for _, p := range parameters {
		if p.In == "query" {
			known = append(known, p.Name)
		}
	}
	for name := range given {
		if !slices.Contains(known, name) {
			return nil, NewProblem(BadQuery, "there is no parameter "+strconv.Quote(Clip(name))+
				nearest.Hint(Clip(name), known))
		}
	}
	for _, p := range parameters {
		if p.In == "query" {
			if err := p.check(given[p.Name]); err != nil {
				return nil, err
			}
		}
	}
	return given, nil
}

// Read sets the parameters of the input that into points to. query is from Query. Invalid.
func (i Input) Read(r *http.Request, query url.Values, into any) error {
	to := reflect.ValueOf(into).Elem()
	for n, p := range i.Parameters {
		var values []string
		switch p.In {
		case "path":
			values = []string{r.PathValue(p.Name)}
		case "query":
			values = query[p.Name]
		case "header":
			if values = r.Header.Values(p.Name); len(values) == 1 && values[0] == "" {
				values = nil
			}
			if len(values) > 1 && p.Name == "If-Match" { // a list, which may be split into lines
				values = []string{strings.Join(values, ", ")}
			}
		}
		if p.In != "query" {
			if err := p.check(values); err != nil {
				return err
			}
		}
		if len(values) == 0 {
			continue
		}
		if err := p.set(to.FieldByIndex(i.fields[n]), values); err != nil {
			return err
		}
	}
	return nil
}

func (p Parameter) bad(why string) error {
	if p.In == "header" {
		return NewProblem(BadRequest, "the header "+p.Name+" "+why)
	}
	return NewProblem(BadQuery, "the parameter "+p.Name+" "+why)
}

// check checks how many times a parameter is given, and its values.
func (p Parameter) check(values []string) error {
	most := 1.0
	if p.Schema["type"] == "array" {
		most, _ = p.Schema["maxItems"].(float64)
		p.Schema, _ = p.Schema["items"].(map[string]any)
	}
	switch {
	case len(values) > int(most) && most == 1:
		return p.bad("is there twice")
	case len(values) > int(most):
		return p.bad("is there " + strconv.Itoa(len(values)) + " times, more than " + strconv.Itoa(int(most)))
	case len(values) == 0 && p.Required && p.Name == "If-Match":
		return NewProblem(GenerationRequired, "name the generation that this builds on in the header If-Match, as the "+
			"header ETag of the last answer had it")
	case len(values) == 0 && p.Required:
		return p.bad("is missing")
	case p.In == "path":
		return nil // the operation answers NotFound for names that cannot exist
	}
	for _, value := range values {
		if err := p.checkValue(value); err != nil {
			return err
		}
	}
	return nil
}

// checkValue checks a value against the type, the enum and the bounds of the schema.
func (p Parameter) checkValue(value string) error {
	if words, ok := p.Schema["enum"].([]any); ok {
		var known []string
		for _, word := range words {
			known = append(known, word.(string))
		}
		if !slices.Contains(known, value) {
			return p.bad("is one of " + strings.Join(known, ", ") + nearest.Hint(Clip(value), known))
		}
	}
	switch p.Schema["type"] {
	case "boolean":
		if value != "true" && value != "false" {
			return p.bad("is true or false")
		}
	case "integer":
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return p.bad("is a whole number")
		}
		if least, ok := p.Schema["minimum"].(float64); ok && float64(n) < least {
			return p.bad("is at least " + strconv.Itoa(int(least)))
		}
		if most, ok := p.Schema["maximum"].(float64); ok && float64(n) > most {
			return p.bad("is at most " + strconv.Itoa(int(most)))
		}
	case "string":
		length := float64(utf8.RuneCountInString(value))
		if least, ok := p.Schema["minLength"].(float64); ok && length < least {
			return p.bad("has fewer than " + strconv.Itoa(int(least)) + " characters")
		}
		if most, ok := p.Schema["maxLength"].(float64); ok && length > most {
			return p.bad("has more than " + strconv.Itoa(int(most)) + " characters")
		}
	}
	return nil
}

// set converts the checked values of a parameter.
func (p Parameter) set(field reflect.Value, values []string) error {
	if of, is := field.Addr().Interface().(encoding.TextUnmarshaler); is {
		if err := of.UnmarshalText([]byte(values[0])); err != nil {
			return p.bad(err.Error())
		}
		return nil
	}
	switch kindOf(field.Type()) {
	case reflect.Slice:
		field.Set(reflect.ValueOf(values).Convert(field.Type()))
	case reflect.Bool:
		if field.Kind() == reflect.Pointer {
			field.Set(reflect.New(field.Type().Elem()))
		}
		reflect.Indirect(field).SetBool(values[0] == "true")
	case reflect.Int, reflect.Int64:
		n, _ := strconv.ParseInt(values[0], 10, 64)
		field.SetInt(n)
	default:
		field.SetString(values[0])
	}
	return nil
}

// CheckPath returns Invalid for a name in the path that would lead to another path.
func (i Input) CheckPath(input any) error {
	for n, p := range i.Parameters {
		if p.In != "path" {
			continue
		}
		switch value := reflect.ValueOf(input).FieldByIndex(i.fields[n]).String(); value {
		case "", ".", "..":
			return NewProblem(BadRequest, strconv.Quote(value)+" cannot be the name or the ID of anything")
		}
	}
	return nil
}

// Write returns the path of a request for an input, with its query string, and adds its headers. Zero values are left
// out, except in the path.
func (i Input) Write(path string, input any, header http.Header) string {
	from := reflect.ValueOf(input)
	query := url.Values{}
	for n, p := range i.Parameters {
		for _, value := range valuesOf(from.FieldByIndex(i.fields[n]), p.In) {
			switch p.In {
			case "path":
				path = strings.Replace(path, "{"+p.Name+"}", url.PathEscape(value), 1)
			case "query":
				query.Add(p.Name, value)
			case "header":
				header.Set(p.Name, value)
			}
		}
	}
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return path
}

// valuesOf returns the values of a parameter as they are sent.
func valuesOf(field reflect.Value, in string) []string {
	if field.IsZero() && in != "path" {
		return nil
	}
	if of, is := field.Interface().(encoding.TextMarshaler); is {
		text, _ := of.MarshalText()
		return []string{string(text)}
	}
	switch kindOf(field.Type()) {
	case reflect.Slice:
		var all []string
		for i := range field.Len() {
			all = append(all, field.Index(i).String())
		}
		return all
	case reflect.Bool:
		return []string{strconv.FormatBool(reflect.Indirect(field).Bool())}
	case reflect.Int, reflect.Int64:
		return []string{strconv.FormatInt(field.Int(), 10)}
	default:
		return []string{field.String()}
	}
}
