package api

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"sync"
)

//go:embed reference.html
var referenceText string

// Reference returns the page that describes the operations and schemas of the document, for browsers.
var Reference = sync.OnceValues(func() ([]byte, error) {
	page, err := template.New("reference").Funcs(template.FuncMap{"kind": kindOfSchema, "schema": schemaNamed,
		"operations": operationsTagged}).Parse(referenceText)
	if err != nil {
		return nil, err
	}
	var document Schema
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	var to bytes.Buffer
	err = page.Execute(&to, document)
	return to.Bytes(), err
})

// described is an operation with its place in the document.
type described struct {
	Method, Path string
	Schema
}

// operationsTagged lists the operations with a tag, by path and method.
func operationsTagged(document Schema, tag string) []described {
	var all []described
	for path, methods := range document["paths"].(Schema) {
		for method, o := range methods.(Schema) {
			if tags := o.(Schema)["tags"].([]any); tags[0] == tag {
				all = append(all, described{strings.ToUpper(method), path, o.(Schema)})
			}
		}
	}
	slices.SortFunc(all, func(a, b described) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Method, b.Method))
	})
	return all
}

// schemaNamed returns the name of the definition that the content of a body or an answer refers to; empty: none.
func schemaNamed(of any) string {
	content, _ := of.(Schema)["content"].(Schema)
	for _, media := range content {
		schema, _ := media.(Schema)["schema"].(Schema)
		ref, _ := schema["$ref"].(string)
		return ref[strings.LastIndex(ref, "/")+1:]
	}
	return ""
}

// kindOfSchema describes the values that a schema permits.
func kindOfSchema(s Schema) template.HTML {
	if ref, is := s["$ref"].(string); is {
		name := template.HTMLEscapeString(ref[strings.LastIndex(ref, "/")+1:])
		return template.HTML(fmt.Sprintf(`<a href="#schema-%s">%s</a>`, name, name))
	}
	if words, is := s["enum"].([]any); is {
		all := make([]string, len(words))
		for i, word := range words {
			all[i] = "<code>" + template.HTMLEscapeString(fmt.Sprint(word)) + "</code>"
		}
		return template.HTML(strings.Join(all, ", "))
	}
	if items, is := s["items"].(Schema); is {
		return "list of " + kindOfSchema(items)
	}
	if values, is := s["additionalProperties"].(Schema); is {
		return "map to " + kindOfSchema(values)
	}
	kind, _ := s["type"].(string)
	kind = cmp.Or(kind, "any value")
	if s["format"] != nil {
		kind += fmt.Sprintf(" (%v)", s["format"])
	}
	for _, bound := range [][2]string{{"minimum", "at least"}, {"maximum", "at most"}, {"minLength", "at least"},
		{"maxLength", "at most"}, {"default", "by default"}} {
		if n := s[bound[0]]; n != nil {
			unit := map[bool]string{true: " characters"}[strings.HasSuffix(bound[0], "Length")]
			kind += fmt.Sprintf(", %s %v%s", bound[1], n, unit)
		}
	}
	return template.HTML(template.HTMLEscapeString(kind))
}
