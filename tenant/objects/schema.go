package objects

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"croft"
)

// Violation is a property that its definition does not permit.
type Violation struct {
	Key     string `json:"key"`     // key of the property
	Problem string `json:"problem"` // predicate of a sentence whose subject is the key; never contains the value
}

// ViolationsError is the cause of an Invalid error: the object would violate its definition.
type ViolationsError struct {
	Ref
	Violations []Violation // by key
}

func (e *ViolationsError) Error() string {
	var all []string
	for _, v := range e.Violations {
		all = append(all, "the property "+v.Key+" "+v.Problem)
	}
	return fmt.Sprintf("%s: %s; `croft property definition get %s` shows what is permitted", e.Ref, strings.Join(all, ", "),
		e.Kind)
}

// JSONSchema returns the definition as a JSON Schema of draft 07 for the properties of one object.
func (d Definition) JSONSchema() ([]byte, error) {
	properties, required := map[string]any{}, []string{}
	for key, p := range d.Properties {
		properties[key] = p.schema()
		if p.Required {
			required = append(required, key)
		}
	}
	slices.Sort(required)
	return json.Marshal(map[string]any{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
		"properties": properties, "required": required, "additionalProperties": d.Unknown != Refuse})
}

func (p Property) schema() map[string]any {
	s := map[string]any{}
	if len(p.Types) > 0 {
		s["type"] = p.Types
	}
	if len(p.Enum) > 0 {
		s["enum"] = p.Enum
	}
	for keyword, n := range map[string]*float64{"multipleOf": p.MultipleOf, "minimum": p.Minimum,
		"maximum": p.Maximum} {
		if n != nil {
			s[keyword] = *n
		}
	}
	for keyword, n := range map[string]*int{"minLength": p.MinLength, "maxLength": p.MaxLength} {
		if n != nil {
			s[keyword] = *n
		}
	}
	for keyword, text := range map[string]string{"pattern": p.Pattern, "format": string(p.Format)} {
		if text != "" {
			s[keyword] = text
		}
	}
	return s
}

// compile compiles the definition. It succeeds for all definitions that Check accepts.
func (d Definition) compile() (*jsonschema.Schema, error) {
	text, err := d.JSONSchema()
	if err != nil {
		return nil, fmt.Errorf("write the definition as JSON Schema: %w", err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("read the definition as JSON Schema: %w", err)
	}
	const name = "schema:definition" // is never fetched
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft7)
	c.AssertFormat()
	if err := c.AddResource(name, document); err != nil {
		return nil, croft.Errorf(croft.Invalid, "the definition is no JSON Schema: %w", err)
	}
	compiled, err := c.Compile(name)
	if err != nil {
		return nil, croft.Errorf(croft.Invalid, "the definition is no JSON Schema: %w", err)
	}
	return compiled, nil
}

// violations lists the violations of the definition, by key. hints are keys to propose for unknown ones.
func (d Definition) violations(compiled *jsonschema.Schema, properties map[string]Value,
	hints []string) ([]Violation, error) {
	tree := map[string]any{}
	for key, v := range properties {
		tree[key] = v.scalar
	}
	err := compiled.Validate(tree)
	if err == nil {
		return nil, nil
	}
	invalid, is := errors.AsType[*jsonschema.ValidationError](err)
	if !is {
		return nil, fmt.Errorf("check properties: %w", err)
	}
	problems := map[string]string{}
	d.collect(invalid, problems, hints)
	var all []Violation
	for _, key := range slices.Sorted(maps.Keys(problems)) {
		all = append(all, Violation{key, problems[key]})
	}
	return all, nil
}

// collect adds the leaves of an error, one per key.
func (d Definition) collect(e *jsonschema.ValidationError, problems map[string]string, hints []string) {
	for _, cause := range e.Causes {
		d.collect(cause, problems, hints)
	}
	if len(e.Causes) > 0 {
		return
	}
	switch k := e.ErrorKind.(type) {
	case *kind.Required:
		for _, key := range k.Missing {
			problems[key] = "is required"
		}
	case *kind.AdditionalProperties:
		for _, key := range k.Properties {
			problems[key] = "is not defined" + proposal(key, hints)
		}
	default:
		if len(e.InstanceLocation) == 1 {
			key := e.InstanceLocation[0]
			words := e.ErrorKind.KeywordPath()
			if _, told := problems[key]; !told || slices.Equal(words, []string{"type"}) {
				problems[key] = d.Properties[key].mustBe(strings.Join(words, "/"))
			}
		}
	}
}

// mustBe returns the requirement of a keyword in words.
func (p Property) mustBe(keyword string) string {
	switch keyword {
	case "type":
		return "must be " + article(strings.Join(p.Types, " or "))
	case "enum":
		var all []string
		for _, v := range p.Enum {
			all = append(all, strconv.Quote(v.String()))
		}
		return "must be one of " + strings.Join(all, ", ")
	case "multipleOf":
		return fmt.Sprintf("must be a multiple of %v", *p.MultipleOf)
	case "minimum":
		return fmt.Sprintf("must be %v or more", *p.Minimum)
	case "maximum":
		return fmt.Sprintf("must be %v or less", *p.Maximum)
	case "minLength":
		return fmt.Sprintf("must have %d characters or more", *p.MinLength)
	case "maxLength":
		return fmt.Sprintf("must have %d characters or less", *p.MaxLength)
	case "pattern":
		return "must match " + p.Pattern
	case "format":
		return "must have the format " + string(p.Format)
	}
	return "is not permitted"
}
