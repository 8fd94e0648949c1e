package api

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"strings"
	"time"

	"croft"
	"croft/cluster"
	pools "croft/pool/api"
	"croft/tenant/objects"
)

// Schema is a JSON Schema (2020-12), as values of encoding/json.
type Schema = map[string]any

// Schemas makes the schemas of Go types, as encoding/json reads and writes them. A struct becomes a definition, and
// schemas refer to it.
//
// A field without omitempty or omitzero is required, unless its struct is embedded by a pointer.
//
// Keywords of JSON Schema are tags of a field: format, enum (values separated by commas), pattern, default,
// minLength, maxLength, minimum, maximum and exclusiveMinimum apply to a scalar or to the elements of a list or map,
// minItems and maxItems to a list, and minProperties and maxProperties to a map.
// The last two apply to the struct if they are tags of a field named _.
type Schemas struct {
	Prefix string                    // of references, such as "#/$defs/"
	Name   func(reflect.Type) string // of the definition of a struct
	// Describe describes a struct, or its field with this Go name. Nil: no descriptions.
	Describe    func(reflect.Type, string) string
	Definitions map[string]Schema // by name

	types map[string]reflect.Type // of Definitions
}

// worded is implemented by types of text that has one of a few values.
type worded interface{ Words() []string }

// special has the types whose JSON does not follow from their Go type.
var special = map[reflect.Type]Schema{
	reflect.TypeFor[time.Time]():        {"type": "string", "format": "date-time"},
	reflect.TypeFor[json.RawMessage]():  {},
	reflect.TypeFor[any]():              {},
	reflect.TypeFor[croft.Status]():     {"type": "object"}, // the internal record
	reflect.TypeFor[croft.InstanceID](): {"type": "string", "format": "uuid"},
	reflect.TypeFor[cluster.Secret]():   {"type": "string"},
	reflect.TypeFor[Given]():            {"type": "string", "writeOnly": true},
	reflect.TypeFor[cluster.Seconds]():  {"type": "integer", "format": "int64"},
	reflect.TypeFor[pools.Seconds]():    {"type": "number", "format": "double"},
	reflect.TypeFor[pools.Text]():       {},
	reflect.TypeFor[pools.Change]():     {"type": []any{"integer", "null"}, "minimum": 0},
	reflect.TypeFor[objects.Value]():    {"type": []any{"string", "number", "boolean"}},
	reflect.TypeFor[*objects.Value]():   {"type": []any{"string", "number", "boolean", "null"}},
}

// Of returns the schema of a type. tag is of the field that has the type, or is empty.
func (s *Schemas) Of(t reflect.Type, tag reflect.StructTag) Schema {
	if schema, is := special[t]; is {
		return tagged(maps.Clone(schema), tag)
	}
	if t.Kind() == reflect.Pointer {
		return s.Of(t.Elem(), tag)
	}
	if t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return tagged(Schema{"type": "string"}, tag)
	}
	switch t.Kind() {
	case reflect.Bool:
		return tagged(Schema{"type": "boolean"}, tag)
	case reflect.Int32, reflect.Uint16:
		return tagged(Schema{"type": "integer", "format": "int32"}, tag)
	case reflect.Int, reflect.Int64, reflect.Uint32, reflect.Uint64:
		return tagged(Schema{"type": "integer", "format": "int64"}, tag)
	case reflect.Float64:
		return tagged(Schema{"type": "number", "format": "double"}, tag)
	case reflect.String:
		schema := Schema{"type": "string"}
		if w, is := reflect.Zero(t).Interface().(worded); is {
			schema["enum"] = texts(w.Words())
		}
		return tagged(schema, tag)
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return tagged(Schema{"type": "string", "contentEncoding": "base64"}, tag)
		}
		return numbered(Schema{"type": "array", "items": s.Of(t.Elem(), tag)}, tag, "minItems", "maxItems")
	case reflect.Map:
		schema := Schema{"type": "object", "additionalProperties": s.Of(t.Elem(), tag)}
		return numbered(schema, tag, "minProperties", "maxProperties")
	case reflect.Struct:
		if t.Name() == "" {
			return s.object(t)
		}
		return Schema{"$ref": s.Prefix + s.define(t)}
	}
	panic(fmt.Sprintf("the type %s has no schema", t))
}

// define makes the definition of a struct, and returns its name.
func (s *Schemas) define(t reflect.Type) string {
	name := s.Name(t)
	if known := s.types[name]; known == t {
		return name
	} else if known != nil {
		panic(fmt.Sprintf("the types %s and %s have one name in the document: %s", known, t, name))
	}
	if s.types == nil {
		s.types, s.Definitions = map[string]reflect.Type{}, map[string]Schema{}
	}
	s.types[name] = t // before its fields, which may have the type
	s.Definitions[name] = s.object(t)
	return name
}

// object returns the schema of a struct without the parameters of an operation.
func (s *Schemas) object(t reflect.Type) Schema {
	properties, required := Schema{}, []any{}
	schema := Schema{"type": "object", "additionalProperties": false, "properties": properties}
	if s.Describe != nil {
		schema["description"] = s.Describe(t, "")
	}
	for _, f := range reflect.VisibleFields(t) {
		if f.Name == "_" {
			numbered(schema, f.Tag, "minProperties", "maxProperties")
		}
		if !isProperty(f) {
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name = f.Name
		}
		of := s.Of(f.Type, f.Tag)
		if s.Describe != nil {
			of["description"] = s.Describe(OwnerOf(t, f), f.Name)
		}
		properties[name] = of
		if f.Tag.Get("required") == "true" || !strings.Contains(options, "omit") && !behindPointer(t, f) {
			required = append(required, name)
		}
	}
	if len(required) > 0 {
		schema["required"] = required
	}
	return schema
}

// behindPointer reports whether a visible field of t is in a struct that t embeds by a pointer, which may be nil.
func behindPointer(t reflect.Type, f reflect.StructField) bool {
	for i := 1; i < len(f.Index); i++ {
		if t.FieldByIndex(f.Index[:i]).Type.Kind() == reflect.Pointer {
			return true
		}
	}
	return false
}

// isProperty reports whether encoding/json writes a field of a struct.
func isProperty(f reflect.StructField) bool {
	if _, is := ParameterOf(f); is {
		return false
	}
	name, t := f.Tag.Get("json"), f.Type
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return f.IsExported() && name != "-" && !(f.Anonymous && name == "" && t.Kind() == reflect.Struct)
}

// OwnerOf returns the struct that declares a visible field of t: t, or one that it embeds.
func OwnerOf(t reflect.Type, f reflect.StructField) reflect.Type {
	for _, i := range f.Index[:len(f.Index)-1] {
		if t = t.Field(i).Type; t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
	}
	return t
}

// tagged adds the keywords that a tag has for a scalar.
func tagged(schema Schema, tag reflect.StructTag) Schema {
	for _, word := range []string{"format", "pattern"} {
		if text, is := tag.Lookup(word); is {
			schema[word] = text
		}
	}
	if value, is := tag.Lookup("default"); is {
		schema["default"] = value
		if schema["type"] != "string" {
			schema["default"] = json.RawMessage(value)
		}
	}
	if enum := tag.Get("enum"); enum != "" {
		schema["enum"] = texts(strings.Split(enum, ","))
	}
	return numbered(schema, tag, "minLength", "maxLength", "minimum", "maximum", "exclusiveMinimum")
}

// numbered adds the keywords with numbers that a tag has, of those given.
func numbered(schema Schema, tag reflect.StructTag, words ...string) Schema {
	for _, word := range words {
		if n, err := strconv.ParseFloat(tag.Get(word), 64); err == nil {
			schema[word] = n
		}
	}
	return schema
}

func texts(words []string) []any {
	var all []any
	for _, word := range words {
		all = append(all, word)
	}
	return all
}

// OneLine is the pattern of texts for people: one line without characters that are invisible or control a terminal.
const OneLine = `^[^\p{C}\p{Zl}\p{Zp}]*$`
