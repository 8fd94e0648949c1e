package objects

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"croft"
	"croft/internal/nearest"
	"croft/tenant/access"
)

// Level is the reach of a definition.
type Level string

// The levels, most specific first.
const (
	Partition Level = "partition" // this partition
	Global    Level = "global"    // every partition without its own definition
)

// Levels lists all levels, most specific first.
var Levels = []Level{Partition, Global}

// Place identifies a definition: by level, and by kind or Any.
type Place struct {
	// whether it is the definition of the cloud or of a project
	Level Level `json:"level" enum:"partition,global"`
	Kind  Kind  `json:"kind" enum:"instance,image,host,group,any"` // kind of the objects
}

// Check validates a place. Invalid.
func (p Place) Check() error {
	if !slices.Contains(Levels, p.Level) {
		return croft.Errorf(croft.Invalid, "%.40q is not a level of definitions: use %s or %s", string(p.Level),
			Partition, Global)
	}
	if p.Kind == Any {
		return nil
	}
	return p.Kind.Check()
}

// Places lists the places of definitions for a kind, most specific first.
func Places(kind Kind) []Place {
	return []Place{{Partition, kind}, {Partition, Any}, {Global, kind}, {Global, Any}}
}

// Definition governs the properties of objects. It completely replaces all less specific ones; nothing is merged.
type Definition struct {
	Place
	Unknown Unknown `json:"unknown" enum:"allow,refuse"` // rule for keys that are not in Properties
	// The properties by their keys, with keywords of JSON Schema.
	Properties map[string]Property `json:"properties,omitempty" maxProperties:"64"`
	// Permissions for properties without own permissions, including unknown ones.
	Permissions []Permission `json:"permissions,omitempty" maxItems:"64"`
	Generation  int64        `json:"generation"` // revision of the stored definition; 0: not stored
}

// Unknown is a rule for properties that the definition does not name.
type Unknown string

// The rules for unknown keys.
const (
	Allow  Unknown = "allow"
	Refuse Unknown = "refuse"
)

// The types of values, named as in JSON Schema. An integer is also a number.
const (
	typeString  = "string"
	typeInteger = "integer"
	typeNumber  = "number"
	typeBoolean = "boolean"
)

var types = []string{typeString, typeInteger, typeNumber, typeBoolean}

// Property constrains the values of one key with keywords of JSON Schema. Keywords about numbers do not apply to
// strings, and vice versa.
type Property struct {
	Types []string `json:"type,omitempty" enum:"string,integer,number,boolean" maxItems:"4"` // any if empty
	// the permitted values
	Enum []Value `json:"enum,omitempty" maxItems:"64" minItems:"1"`
	// numbers must be multiples of it
	MultipleOf *float64 `json:"multipleOf,omitempty" exclusiveMinimum:"0"`
	// the smallest number
	Minimum *float64 `json:"minimum,omitempty"`
	// the largest number
	Maximum   *float64 `json:"maximum,omitempty"`
	MinLength *int     `json:"minLength,omitempty" maximum:"2048" minimum:"0"` // characters
	// of strings, in characters
	MaxLength *int `json:"maxLength,omitempty" maximum:"2048" minimum:"0"`
	// RE2, unanchored
	Pattern string `json:"pattern,omitempty" maxLength:"512"`
	Format  Format `json:"format,omitempty"` // of strings
	// in every object with properties
	Required bool `json:"required,omitempty"`
	// which roles may read and write it
	Permissions []Permission `json:"permissions,omitempty" maxItems:"64"`
}

// Permission grants rights to callers. An empty selector matches every caller.
type Permission struct {
	// Of the callers whom it concerns; all if it is left out.
	Project croft.Project `json:"project,omitempty"`
	// the role that it is granted to
	Role access.Role `json:"role,omitempty" enum:"reader,member,project-admin,partition-admin,agent"`
	// What they may do; nothing where it is empty.
	Value Grant `json:"value" enum:",r,w,rw"`
}

// Grant is the right that a permission grants.
type Grant string

// The grants. Nothing takes away the grants of less specific permissions.
const (
	Nothing   Grant = ""
	Read      Grant = "r"
	Write     Grant = "w"
	ReadWrite Grant = "rw"
)

var grants = []Grant{Nothing, Read, Write, ReadWrite}

// Definitions are the stored definitions that may govern a kind.
type Definitions []Definition

// Effective returns the definition that governs a kind: the one at the first of the kind's places that has one. If none
// exists, it is the built-in one, which permits everything and has no permissions.
func (d Definitions) Effective(kind Kind) Definition {
	for _, place := range Places(kind) {
		for _, one := range d {
			if one.Place == place {
				return one
			}
		}
	}
	return Definition{Place: Place{Global, Any}, Unknown: Allow}
}

// ReadText converts text to the value of a property: to the first type in its definition that fits, or to a string if
// the definition names no type.
func (d Definition) ReadText(key, text string) Value {
	for _, t := range d.Properties[key].Types {
		switch t {
		case typeString:
			return Text(text)
		case typeBoolean:
			if text == "true" || text == "false" {
				return Boolean(text == "true")
			}
		default:
			v, err := parseNumber(text)
			if err == nil && (t == typeNumber || v.Type() == typeInteger) {
				return v
			}
		}
	}
	return Text(text)
}

// Limits of a definition.
const (
	MaxDefinition  = 64 << 10 // bytes, as JSON and in the source
	maxEnum        = 64
	maxPermissions = 64
	maxPattern     = 512 // bytes
)

// Format is a format of strings in JSON Schema.
type Format string

// Words returns all formats.
func (Format) Words() []string { return formats }

var formats = []string{"date", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "time", "uri",
	"uri-reference", "uuid"}

// fault is an error in a definition, with the path of the faulty part: properties.KEY.KEYWORD, or a shorter path.
type fault struct{ path, text string }

func (f *fault) Error() string { return f.path + ": " + f.text }

func faultf(path, format string, args ...any) error {
	return &fault{path, fmt.Sprintf(format, args...)}
}

// Check validates a definition. Invalid; the error names the path of the faulty part.
func (d Definition) Check() error {
	if err := d.Place.Check(); err != nil {
		return err
	}
	if err := d.check(); err != nil {
		return croft.Errorf(croft.Invalid, "%w", err)
	}
	if text, err := json.Marshal(d); err != nil || len(text) > MaxDefinition {
		return croft.Errorf(croft.Invalid, "the definition has %d bytes: it may have %d", len(text), MaxDefinition)
	}
	return nil
}

// check validates everything but the place. The error is a *fault.
func (d Definition) check() error {
	if d.Unknown != Allow && d.Unknown != Refuse {
		return faultf("unknown", "want %s or %s, not %.40q", Allow, Refuse, string(d.Unknown))
	}
	if len(d.Properties) > MaxProperties {
		return faultf("properties", "there are %d: a definition has at most %d", len(d.Properties), MaxProperties)
	}
	for _, key := range slices.Sorted(maps.Keys(d.Properties)) {
		path := "properties." + key
		if err := CheckKey(key); err != nil {
			return faultf("properties", "%v", err)
		}
		if err := d.Properties[key].check(path); err != nil {
			return err
		}
	}
	return checkPermissions("permissions", d.Permissions)
}

func (p Property) check(path string) error {
	for i, t := range p.Types {
		if !slices.Contains(types, t) {
			return faultf(path+".type", "%.40q is not a type of a property: use one of %s%s", t,
				strings.Join(types, ", "), nearest.Hint(t, types))
		}
		if slices.Contains(p.Types[:i], t) {
			return faultf(path+".type", "%s is there twice", t)
		}
	}
	if err := p.checkEnum(path + ".enum"); err != nil {
		return err
	}
	if err := p.checkNumbers(path); err != nil {
		return err
	}
	if err := p.checkStrings(path); err != nil {
		return err
	}
	return checkPermissions(path+".permissions", p.Permissions)
}

// takes reports whether the property can have values of a type.
func (p Property) takes(t string) bool {
	return len(p.Types) == 0 || slices.Contains(p.Types, t) ||
		t == typeInteger && slices.Contains(p.Types, typeNumber)
}

func (p Property) checkEnum(path string) error {
	if p.Enum != nil && len(p.Enum) == 0 || len(p.Enum) > maxEnum {
		return faultf(path, "there are %d values: list 1 to %d", len(p.Enum), maxEnum)
	}
	for i, v := range p.Enum {
		if err := v.Check(); err != nil {
			return faultf(path, "%v", err)
		}
		if !p.takes(v.Type()) {
			return faultf(path, "%q is %s, and the property is %s", v.String(), article(v.Type()),
				strings.Join(p.Types, " or "))
		}
		if slices.Contains(p.Enum[:i], v) {
			return faultf(path, "%q is there twice", v.String())
		}
	}
	return nil
}

func (p Property) checkNumbers(path string) error {
	for _, n := range []struct {
		keyword string
		value   *float64
	}{{"multipleOf", p.MultipleOf}, {"minimum", p.Minimum}, {"maximum", p.Maximum}} {
		switch {
		case n.value == nil:
		case math.IsInf(*n.value, 0) || math.IsNaN(*n.value):
			return faultf(path+"."+n.keyword, "%v is not a finite number", *n.value)
		case !p.takes(typeInteger) && !p.takes(typeNumber):
			return faultf(path+"."+n.keyword, "it concerns numbers, and the property is %s",
				strings.Join(p.Types, " or "))
		}
	}
	if p.MultipleOf != nil && *p.MultipleOf <= 0 {
		return faultf(path+".multipleOf", "it is %v: use a number above 0", *p.MultipleOf)
	}
	if p.Minimum != nil && p.Maximum != nil && *p.Minimum > *p.Maximum {
		return faultf(path+".minimum", "%v is above the maximum, %v", *p.Minimum, *p.Maximum)
	}
	return nil
}

func (p Property) checkStrings(path string) error {
	for _, s := range []struct {
		keyword string
		there   bool
	}{{"minLength", p.MinLength != nil}, {"maxLength", p.MaxLength != nil}, {"pattern", p.Pattern != ""},
		{"format", p.Format != ""}} {
		if s.there && !p.takes(typeString) {
			return faultf(path+"."+s.keyword, "it concerns strings, and the property is %s",
				strings.Join(p.Types, " or "))
		}
	}
	least, most := 0, MaxText
	if p.MinLength != nil {
		if least = *p.MinLength; least < 0 || least > MaxText {
			return faultf(path+".minLength", "it is %d: use 0 to %d", least, MaxText)
		}
	}
	if p.MaxLength != nil {
		if most = *p.MaxLength; most < 0 || most > MaxText {
			return faultf(path+".maxLength", "it is %d: use 0 to %d", most, MaxText)
		}
	}
	if least > most {
		return faultf(path+".minLength", "%d is above the maxLength, %d", least, most)
	}
	if len(p.Pattern) > maxPattern {
		return faultf(path+".pattern", "it has %d bytes: a pattern has at most %d", len(p.Pattern), maxPattern)
	}
	if _, err := regexp.Compile(p.Pattern); err != nil {
		return faultf(path+".pattern", "it is no regular expression: %s", strings.TrimPrefix(err.Error(),
			"error parsing regexp: "))
	}
	if p.Format != "" && !slices.Contains(formats, string(p.Format)) {
		return faultf(path+".format", "there is no format %.40q: use one of %s%s", p.Format,
			strings.Join(formats, ", "), nearest.Hint(string(p.Format), formats))
	}
	return nil
}

func checkPermissions(path string, all []Permission) error {
	if len(all) > maxPermissions {
		return faultf(path, "there are %d: a property has at most %d", len(all), maxPermissions)
	}
	for i, p := range all {
		at := path + "[" + strconv.Itoa(i) + "]"
		if p.Project != "" {
			if err := p.Project.Check(); err != nil {
				return faultf(at+".project", "%v", err)
			}
		}
		if p.Role != "" {
			if err := p.Role.Check(); err != nil {
				return faultf(at+".role", "%v", err)
			}
		}
		if !slices.Contains(grants, p.Value) {
			return faultf(at+".value", `want "", r, w or rw, not %.40q`, string(p.Value))
		}
	}
	return nil
}
