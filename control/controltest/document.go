package controltest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"croft/control/api"
)

// Operation is one verb of one path of the document.
type Operation struct {
	ID, Method, Path string
	Tag, Summary     string
	Parameters       []api.Parameter
	Body             string // fragment of the schema of its body in the document; empty: no body
	Open             bool   // also for callers without credentials
}

// document is the OpenAPI document in all required forms.
type document struct {
	tree       map[string]any
	operations []Operation
}

// load parses the document once. A document that cannot be parsed is a bug, which the tests find.
var load = sync.OnceValue(func() document {
	d := document{}
	if err := json.Unmarshal(api.Document(), &d.tree); err != nil {
		panic(fmt.Sprintf("the OpenAPI document: %v", err))
	}
	d.operations = operationsOf(d.tree)
	return d
})

// Operations lists the operations, by path and method.
func Operations() []Operation { return load().operations }

// Tree returns the document as values of encoding/json. Callers must not change it.
func Tree() map[string]any { return load().tree }

// methods are the keys of a path that name operations.
var methods = []string{http.MethodDelete, http.MethodGet, http.MethodPatch, http.MethodPost, http.MethodPut}

func operationsOf(tree map[string]any) []Operation {
	var all []Operation
	for path, item := range objectAt(tree, "paths") {
		verbs := item.(map[string]any)
		for _, method := range methods {
			o, there := verbs[strings.ToLower(method)].(map[string]any)
			if !there {
				continue
			}
			one := Operation{Method: method, Path: path, Open: isOpen(o)}
			one.ID, _ = o["operationId"].(string)
			one.Summary, _ = o["summary"].(string)
			if tags, ok := o["tags"].([]any); ok && len(tags) > 0 {
				one.Tag, _ = tags[0].(string)
			}
			one.Body, _ = objectAt(o, "requestBody", "content", "application/json", "schema")["$ref"].(string)
			for _, list := range []any{verbs["parameters"], o["parameters"]} {
				one.Parameters = append(one.Parameters, parametersIn(tree, list)...)
			}
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b Operation) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Method, b.Method))
	})
	return all
}

// isOpen reports whether an operation overrides the security of the document with none.
func isOpen(operation map[string]any) bool {
	ways, ok := operation["security"].([]any)
	if !ok || len(ways) != 1 {
		return false
	}
	way, ok := ways[0].(map[string]any)
	return ok && len(way) == 0
}

func parametersIn(tree map[string]any, list any) []api.Parameter {
	var all []api.Parameter
	values, _ := list.([]any)
	for _, value := range values {
		p, _ := value.(map[string]any)
		if ref, ok := p["$ref"].(string); ok {
			p = objectAt(tree, strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
		}
		one := api.Parameter{}
		one.Name, _ = p["name"].(string)
		one.In, _ = p["in"].(string)
		one.Required, _ = p["required"].(bool)
		one.Schema, _ = p["schema"].(map[string]any)
		all = append(all, one)
	}
	return all
}

// objectAt returns the object at a path; nil: it does not exist.
func objectAt(tree map[string]any, path ...string) map[string]any {
	for _, step := range path {
		tree, _ = tree[step].(map[string]any)
	}
	return tree
}
