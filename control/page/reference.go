package page

import (
	"bytes"
	"cmp"
	"encoding/json"
	"html/template"
	"maps"
	"slices"
	"strings"
	"sync"

	"croft/control/api"
	"croft/control/page/manual"
)

// openAPI is what the reference shows of the OpenAPI document.
type openAPI struct {
	Tags []struct{ Name, Description string }
	// Paths has the operations by path and method.
	Paths      map[string]map[string]operation
	Components struct{ Schemas map[string]schema }
}

type operation struct {
	ID                   string `json:"operationId"`
	Tags                 []string
	Summary, Description string
	Parameters           []parameter
	RequestBody          struct {
		Content map[string]struct{ Schema schema }
	}
}

type parameter struct {
	Name, In, Description string
	Required              bool
	Schema                schema
}

type schema struct {
	Ref         string `json:"$ref"`
	Type        any    // a name, or several
	Description string
	Items       *schema
	Properties  map[string]schema
	Required    []string
	Enum        []string
	Default     any
	Minimum     *int64
	Maximum     *int64
	MaxLength   int
	Encoding    string `json:"contentEncoding"`
	WriteOnly   bool
	Values      json.RawMessage `json:"additionalProperties"` // false, or the schema of the values of a map
}

// kind names the type of a value.
func (s schema) kind() string {
	if s.Ref != "" {
		return s.Ref[strings.LastIndexByte(s.Ref, '/')+1:]
	}
	var names []string
	switch t := s.Type.(type) {
	case string:
		names = []string{t}
	case []any:
		for _, one := range t {
			if name, is := one.(string); is && name != "null" {
				names = append(names, name)
			}
		}
	}
	if s.Items != nil && slices.Equal(names, []string{"array"}) {
		return "array of " + s.Items.kind()
	}
	return cmp.Or(strings.Join(names, " or "), "any")
}

// parsed is the document of the API.
var parsed = sync.OnceValues(func() (all openAPI, err error) {
	err = json.Unmarshal(api.Document(), &all)
	return all, err
})

// call is an operation in the reference.
type call struct {
	ID, Method, Path, Summary string
	Description               template.HTML
	Inputs                    []input
	Unsent                    string // why it cannot be tried; empty: it can
}

// input is a parameter of an operation, or a field of its body.
type input struct {
	Name, In, Kind string
	Required       bool
	Description    template.HTML
}

// callGroup has the operations of a tag.
type callGroup struct {
	Name, ID    string
	Description template.HTML
	Calls       []call
}

// reference returns the reference of the API as a document, made from the OpenAPI document.
func reference() (manual.Document, error) {
	all, err := parsed()
	if err != nil {
		return manual.Document{}, err
	}
	var groups []callGroup
	d := manual.Document{Name: "reference", Title: "Reference of the API"}
	for _, tag := range all.Tags {
		g := callGroup{Name: tag.Name, ID: strings.ReplaceAll(tag.Name, " ", "-"),
			Description: manual.Text(tag.Description)}
		for _, path := range slices.Sorted(maps.Keys(all.Paths)) {
			for _, method := range slices.Sorted(maps.Keys(all.Paths[path])) {
				if o := all.Paths[path][method]; slices.Contains(o.Tags, tag.Name) {
					g.Calls = append(g.Calls, call{o.ID, strings.ToUpper(method), path, o.Summary,
						manual.Text(o.Description), all.inputs(o), operations()[o.ID].Unsent})
				}
			}
		}
		groups = append(groups, g)
		d.Sections = append(d.Sections, manual.Section{ID: g.ID, Title: g.Name, Level: 2})
	}
	var b bytes.Buffer
	if err := pages["reference"].ExecuteTemplate(&b, "reference", groups); err != nil {
		return manual.Document{}, err
	}
	d.Body = template.HTML(b.String()) // a template wrote it
	return d, nil
}

// inputs returns the parameters of an operation, then the fields of its JSON body, the required ones first.
func (d openAPI) inputs(o operation) (all []input) {
	for _, p := range o.Parameters {
		all = append(all, input{p.Name, p.In, p.Schema.kind(), p.Required, manual.Text(p.Description)})
	}
	for kind, content := range o.RequestBody.Content {
		body := content.Schema
		if body.Ref != "" {
			body = d.Components.Schemas[body.kind()]
		}
		if len(body.Properties) == 0 {
			all = append(all, input{"", "body", kind, true, manual.Text(body.Description)})
		}
		for _, name := range slices.Sorted(maps.Keys(body.Properties)) {
			p := body.Properties[name]
			required := slices.Contains(body.Required, name)
			all = append(all, input{name, "body", p.kind(), required, manual.Text(p.Description)})
		}
	}
	slices.SortStableFunc(all, func(a, b input) int { return requiredFirst(a.Required, b.Required) })
	return all
}

// requiredFirst compares two inputs by whether they are required.
func requiredFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}
