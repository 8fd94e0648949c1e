// Package bodies checks the bodies of requests against the schemas of the types that they are decoded into. Its errors
// describe every wrong field, without the value where that could be a secret.
package bodies

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"croft"
	"croft/control/api"
	"croft/internal/httpapi"
	"croft/internal/nearest"
)

// Limits of a body. No schema of the document nests deeper.
const (
	Max      = 1 << 20 // bytes, except for imports
	maxDepth = 32
)

// Body checks the bodies of operations with one type of input.
type Body struct {
	schema *jsonschema.Schema
	known  map[string]api.Schema // the structs in the body, by the path of their schema
	secret bool                  // it has a write-only field: errors contain no values
}

// documentURL is the name of the schema among schemas. It is never fetched.
const documentURL = "croft:body"

// compiled has the bodies that were checked, as a *Body by their reflect.Type. Each is compiled when it is first used,
// because a command uses few.
var compiled sync.Map

// Of returns how to check a body that is decoded into this struct.
func Of(t reflect.Type) *Body {
	if b, ok := compiled.Load(t); ok {
		return b.(*Body)
	}
	schemas := api.Schemas{Prefix: "#/$defs/", Name: func(t reflect.Type) string {
		return strings.ReplaceAll(t.PkgPath(), "/", ".") + "." + t.Name()
	}}
	schema := schemas.Of(t, "")
	bound(schemas.Definitions)
	definitions := map[string]any{}
	b := &Body{known: map[string]api.Schema{}}
	for name, d := range schemas.Definitions {
		definitions[name], b.known["/$defs/"+name] = d, d
		b.secret = b.secret || hasSecret(d)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	c.AssertContent()
	c.DefaultDraft(jsonschema.Draft2020)
	err := c.AddResource(documentURL, map[string]any{"$ref": schema["$ref"], "$defs": definitions})
	if err == nil {
		b.schema, err = c.Compile(documentURL)
	}
	if err != nil {
		panic(fmt.Sprintf("the schema of %s: %v", t, err)) // a bug, which the tests of the table find
	}
	compiled.Store(t, b)
	return b
}

// Decode checks a body and decodes it. Invalid: the error lists every wrong field.
func (b *Body) Decode(text []byte, into any) error {
	if err := checkJSON(text); err != nil {
		return api.NewProblem(api.BadRequest, "the body: "+err.Error())
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return api.NewProblem(api.BadRequest, "the body is not JSON: "+err.Error())
	}
	if err := b.schema.Validate(value); err != nil {
		return b.violation(err)
	}
	if integers(value) {
		if text, err = json.Marshal(value); err != nil {
			return api.NewProblem(api.BadRequest, "the body is not JSON: "+err.Error())
		}
	}
	if err := json.Unmarshal(text, into); err != nil {
		return api.NewProblem(api.BadRequest, "the body: "+err.Error())
	}
	return nil
}

// bound limits the integers of a schema to the range of the fields of structs.
func bound(schema any) {
	switch s := schema.(type) {
	case map[string]api.Schema:
		for _, of := range s {
			bound(of)
		}
	case api.Schema:
		if s["type"] == "integer" {
			if _, has := s["maximum"]; !has {
				s["maximum"] = json.Number("9223372036854775807")
			}
			if _, has := s["minimum"]; !has {
				s["minimum"] = json.Number("-9223372036854775808")
			}
		}
		for _, of := range s {
			bound(of)
		}
	}
}

// integers writes the integers in a value without fraction and exponent, and reports whether it changed any. In JSON
// Schema 60.0 and 6e1 are integers, and encoding/json reads only 60 as one.
func integers(value any) (changed bool) {
	each := func(v any, set func(any)) {
		if n, is := v.(json.Number); is {
			if text, is := integer(string(n)); is {
				set(json.Number(text))
				changed = true
			}
			return
		}
		changed = integers(v) || changed
	}
	switch value := value.(type) {
	case map[string]any:
		for key, v := range value {
			each(v, func(n any) { value[key] = n })
		}
	case []any:
		for i, v := range value {
			each(v, func(n any) { value[i] = n })
		}
	}
	return changed
}

// integer returns a number with a fraction or an exponent as an integer, if it is one that an int64 can hold.
func integer(number string) (string, bool) {
	if !strings.ContainsAny(number, ".eE") {
		return "", false
	}
	r, ok := new(big.Rat).SetString(number)
	if !ok || !r.IsInt() || !r.Num().IsInt64() {
		return "", false
	}
	return r.Num().String(), true
}

// checkJSON refuses input that encoding/json accepts, or reads at great cost: duplicate keys, deep nesting, text after
// the value, and text that is not Unicode. Invalid.
func checkJSON(text []byte) error {
	if err := httpapi.CheckText(text); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := checkValue(d, 0); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return croft.Errorf(croft.Invalid, "there is more behind its end")
	}
	return nil
}

func checkValue(d *json.Decoder, depth int) error {
	token, err := d.Token()
	if err != nil {
		return notJSON(err)
	}
	if number, is := token.(json.Number); is {
		return checkNumber(string(number))
	}
	open, nested := token.(json.Delim)
	if !nested {
		return nil
	}
	if depth == maxDepth {
		return croft.Errorf(croft.Invalid, "it is nested more than %d deep", maxDepth)
	}
	keys := map[string]bool{}
	for d.More() {
		if open == '{' {
			token, err := d.Token()
			if err != nil {
				return notJSON(err)
			}
			key, _ := token.(string)
			if keys[key] {
				return croft.Errorf(croft.Invalid, "it has the field %.40q twice", key)
			}
			keys[key] = true
		}
		if err := checkValue(d, depth+1); err != nil {
			return err
		}
	}
	if _, err = d.Token(); err != nil { // the closing bracket
		return notJSON(err)
	}
	return nil
}

// checkNumber refuses numbers outside the range of float64, and numbers with very many digits: schemas compare numbers
// exactly, at a cost that grows with the written length. Invalid.
func checkNumber(text string) error {
	const longest, farthest = 100, 400
	_, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	power, err := strconv.Atoi(cmp.Or(exponent, "0"))
	if len(text) > longest || err != nil || power < -farthest || power > farthest {
		return croft.Errorf(croft.Invalid, "the number %.40s is out of all bounds", text)
	}
	return nil
}

func notJSON(err error) error {
	if err == io.EOF {
		return croft.Errorf(croft.Invalid, "it is not JSON: it ends too early, or is empty")
	}
	return croft.Errorf(croft.Invalid, "it is not JSON: %w", err)
}

// MostFields bounds how many wrong fields one problem names.
const MostFields = 20

// violation describes the error in each field.
func (b *Body) violation(err error) error {
	var fields []api.Field
	if invalid, ok := err.(*jsonschema.ValidationError); ok {
		fields = b.fieldsOf(invalid)
	}
	slices.SortFunc(fields, func(a, b api.Field) int { return strings.Compare(a.Pointer, b.Pointer) })
	fields = fields[:min(len(fields), MostFields)]
	if len(fields) == 0 {
		return api.NewProblem(api.SchemaViolation, "the body does not fit its schema")
	}
	where := "the body"
	if fields[0].Pointer != "" {
		where = "the field " + fields[0].Pointer
	}
	p := api.NewProblem(api.SchemaViolation, where+" "+fields[0].Detail)
	p.Errors = fields
	return p
}

func (b *Body) fieldsOf(e *jsonschema.ValidationError) []api.Field {
	if len(e.Causes) > 0 {
		var all []api.Field
		for _, cause := range e.Causes {
			all = append(all, b.fieldsOf(cause)...)
		}
		return all
	}
	at := Pointer(e.InstanceLocation)
	if k, ok := e.ErrorKind.(*kind.AdditionalProperties); ok {
		var all []api.Field
		known := b.properties(e.SchemaURL)
		for _, name := range k.Properties {
			all = append(all, api.Field{Pointer: at + Pointer([]string{name}),
				Detail: "is not known" + nearest.Hint(api.Clip(name), known)})
		}
		return all
	}
	return []api.Field{{Pointer: at, Detail: b.sentence(e.ErrorKind)}}
}

// sentence describes the error in a value, as the rest of a sentence that starts with the field.
func (b *Body) sentence(broken jsonschema.ErrorKind) string {
	switch k := broken.(type) {
	case *kind.Type:
		return "is " + k.Got + ", not " + strings.Join(k.Want, " or ")
	case *kind.Required:
		return "lacks " + strings.Join(k.Missing, ", ")
	case *kind.Enum:
		var words []string
		for _, word := range k.Want {
			words = append(words, fmt.Sprint(word))
		}
		if b.secret {
			return "is not one of " + strings.Join(words, ", ")
		}
		return fmt.Sprintf("is %.40q, not one of %s%s", fmt.Sprint(k.Got), strings.Join(words, ", "),
			nearest.Hint(api.Clip(fmt.Sprint(k.Got)), words))
	case *kind.Format:
		return "is not a " + k.Want
	case *kind.ContentEncoding:
		return "is not " + k.Want
	case *kind.MinLength:
		return fmt.Sprintf("has %d characters, fewer than %d", k.Got, k.Want)
	case *kind.MaxLength:
		return fmt.Sprintf("has %d characters, more than %d", k.Got, k.Want)
	case *kind.MaxItems:
		return fmt.Sprintf("has %d elements, more than %d", k.Got, k.Want)
	case *kind.MaxProperties:
		return fmt.Sprintf("has %d fields, more than %d", k.Got, k.Want)
	case *kind.MinProperties:
		return fmt.Sprintf("has %d fields, fewer than %d", k.Got, k.Want)
	case *kind.Minimum:
		return "is less than " + k.Want.RatString()
	case *kind.Maximum:
		return "is more than " + k.Want.RatString()
	case *kind.Pattern:
		if k.Want == api.OneLine {
			return "has characters that are invisible or control a terminal, or more than one line"
		}
		return "does not match " + k.Want
	}
	return "does not fit the schema"
}

// hasSecret reports whether a schema of a struct has a write-only field.
func hasSecret(schema api.Schema) bool {
	fields, _ := schema["properties"].(api.Schema)
	for _, field := range fields {
		if field.(api.Schema)["writeOnly"] == true {
			return true
		}
	}
	return false
}

// properties lists the fields of the struct whose schema has this URL.
func (b *Body) properties(schema string) []string {
	_, path, _ := strings.Cut(schema, "#")
	fields, _ := b.known[path]["properties"].(api.Schema)
	return slices.Sorted(maps.Keys(fields))
}

// Pointer returns a JSON pointer. Long steps, which are a caller's words, are clipped.
func Pointer(path []string) string {
	var text strings.Builder
	for _, step := range path {
		text.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(api.Clip(step)))
	}
	return text.String()
}
