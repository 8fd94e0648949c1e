package control_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"croft"
	"croft/cluster"
	"croft/compute"
	"croft/control"
	"croft/control/actions"
	"croft/control/api"
	"croft/hosts/audit"
	pools "croft/pool/api"
	"croft/tenant"
	"croft/tenant/usage"
)

// introduction describes the API as a whole.
const introduction = `The API of a croft cloud for its tenants and its operators: instances, their consoles and events,
SSH keys, pools and tickets, clusters, properties and tags, and, for operators, hosts. Every installation of one version
serves exactly this document.

A caller proves who it is with a bearer token, which fixes its project and its roles; no request can widen that. An
object of another project is not found (404). Bodies are JSON of at most 1 MiB, with the fields of their schema, each
once. Errors are problem documents (RFC 9457) with a code of the schema Problem.

A request with the header ` + "`X-Croft-Partition: NAME`" + ` is for another cloud, a peer of this one: it is forwarded, and the
answer is that cloud's. The caller's credentials stay here; that cloud decides what the caller may do there.
`

// called has the names in the document of types whose Go name needs its package, or is taken.
var called = map[reflect.Type]string{
	reflect.TypeFor[croft.CrushPolicy]():   "Policy",
	reflect.TypeFor[croft.Peer]():          "ClusterPeer",
	reflect.TypeFor[tenant.Tenant]():       "Project",
	reflect.TypeFor[usage.Report]():        "UsageReport",
	reflect.TypeFor[usage.Account]():       "ProjectUsage",
	reflect.TypeFor[usage.Day]():           "UsageDay",
	reflect.TypeFor[pools.Tag]():           "PoolTag",
	reflect.TypeFor[pools.Stats]():         "PoolStats",
	reflect.TypeFor[pools.Resource]():      "PoolResource",
	reflect.TypeFor[compute.Usage]():       "GuestUsage",
	reflect.TypeFor[audit.Report]():        "AuditReport",
	reflect.TypeFor[cluster.Health]():      "SiteStanding",
	reflect.TypeFor[cluster.Agent]():       "ApplianceAgent",
	reflect.TypeFor[cluster.Hints]():       "ClusterHints",
	reflect.TypeFor[cluster.Sizing]():      "ClusterSizing",
	reflect.TypeFor[cluster.Failure]():     "ClusterFailure",
	reflect.TypeFor[cluster.Member]():      "ClusterHost",
	reflect.TypeFor[cluster.Remote]():      "ClusterRemote",
	reflect.TypeFor[cluster.Tried]():       "ClusterAttempt",
	reflect.TypeFor[cluster.Retry]():       "ClusterRetry",
	reflect.TypeFor[cluster.Use]():         "ClusterUse",
	reflect.TypeFor[cluster.Event]():       "ClusterEvent",
	reflect.TypeFor[cluster.Explanation](): "ClusterExplanation",
	reflect.TypeFor[cluster.Choice]():      "SiteChoice",
	reflect.TypeFor[cluster.Dropped]():     "SiteDropped",
	reflect.TypeFor[cluster.Placed]():      "PlacedImage",
	reflect.TypeFor[actions.Page]():        "ActionList",
	reflect.TypeFor[actions.Entry]():       "Action",
	reflect.TypeFor[actions.Object]():      "ActionObject",
}

// TestTheDocumentIsMadeFromTheTable keeps the OpenAPI document equal to the table of operations and its types.
func TestTheDocumentIsMadeFromTheTable(t *testing.T) {
	t.Parallel()
	const file = "api/openapi.json"
	want, err := json.MarshalIndent(documentOf(t, control.Operations()), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	} else if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not made from the table: go test ./control -run %s -update (%v)", file, t.Name(), err)
	}
	document, err := openapi3.NewLoader().LoadFromData(want)
	if err != nil {
		t.Fatal(err)
	}
	if err := document.Validate(t.Context()); err != nil {
		t.Error(err)
	}
}

// paragraphs joins the lines of each paragraph of a text.
func paragraphs(text string) string {
	parts := strings.Split(strings.TrimSpace(text), "\n\n")
	for i, part := range parts {
		parts[i] = strings.Join(strings.Fields(part), " ")
	}
	return strings.Join(parts, "\n\n")
}

// writer makes the document.
type writer struct {
	*testing.T
	api.Schemas
	sources map[string]map[string]comments // by package and type
}

// comments are the comments of a struct, by the names of its fields; its own is under the empty name.
type comments map[string]string

// documentOf returns the document of operations.
func documentOf(t *testing.T, all []control.Operation) api.Schema {
	w := &writer{T: t, sources: map[string]map[string]comments{}}
	w.Prefix, w.Describe = "#/components/schemas/", w.describe
	w.Name = func(of reflect.Type) string { return cmp.Or(called[of], of.Name()) }
	var tags []any
	paths := map[string]map[string]any{}
	for _, o := range all {
		if n := len(tags); n == 0 || tags[n-1].(api.Schema)["name"] != o.Tag {
			tags = append(tags, api.Schema{"name": o.Tag, "description": o.About})
		}
		if paths[o.Path] == nil {
			paths[o.Path] = map[string]any{}
		}
		paths[o.Path][strings.ToLower(o.Method)] = w.operation(o)
	}
	problem := w.Of(reflect.TypeFor[api.Problem](), "")
	responses := api.Schema{"Problem": api.Schema{"description": "Another problem.",
		"content": content("application/problem+json", problem)}}
	for status, name := range failures {
		responses[name] = api.Schema{"description": "Codes: " + strings.Join(codesOf(status), ", ") + ".",
			"content": api.Schema{"application/problem+json": api.Schema{"schema": problem}}}
	}
	plain(w.Definitions)
	return api.Schema{
		"openapi": "3.1.0",
		"info":    api.Schema{"title": "croft", "version": "1", "description": paragraphs(introduction)},
		"servers": []any{api.Schema{"url": "/"}},
		"tags":    tags, "paths": paths,
		"security": []any{api.Schema{"token": []any{}}},
		"components": api.Schema{"schemas": w.Definitions, "responses": responses,
			"securitySchemes": api.Schema{"token": api.Schema{"type": "http", "scheme": "bearer",
				"description": "A token of a project, or of an operator."}}},
	}
}

// plain removes types that are unions from a schema, because generators of clients do not know them.
func plain(schema any) {
	switch s := schema.(type) {
	case map[string]api.Schema:
		for _, of := range s {
			plain(of)
		}
	case api.Schema:
		if _, union := s["type"].([]any); union {
			delete(s, "type")
		}
		for _, of := range s {
			plain(of)
		}
	}
}

// failures has the names of the answers that are problems, by their status.
var failures = map[int]string{
	http.StatusBadRequest: "BadRequest", http.StatusUnauthorized: "Unauthorized", http.StatusForbidden: "Forbidden",
	http.StatusNotFound: "NotFound", http.StatusConflict: "Conflict", http.StatusGone: "Gone",
	http.StatusPreconditionFailed: "PreconditionFailed", http.StatusPreconditionRequired: "PreconditionRequired",
	http.StatusTooManyRequests: "TooManyRequests", http.StatusInternalServerError: "InternalServerError",
	http.StatusServiceUnavailable: "ServiceUnavailable", http.StatusNotImplemented: "NotImplemented",
}

// codesOf lists the codes of problems with a status.
func codesOf(status int) []string {
	if status == http.StatusTooManyRequests {
		return []string{string(api.Busy)}
	}
	return slices.DeleteFunc(api.Code("").Words(), func(code string) bool { return api.Code(code).Status() != status })
}

// operation returns an operation of the document.
func (w *writer) operation(o control.Operation) api.Schema {
	said := api.Schema{"operationId": o.ID, "tags": []any{o.Tag}, "summary": o.Summary, "responses": w.responses(o)}
	if o.Description != "" {
		said["description"] = o.Description
	}
	if o.Open {
		said["security"] = []any{api.Schema{}}
	}
	var parameters []any
	for _, p := range o.Parameters {
		parameters = append(parameters, api.Schema{"name": p.Name, "in": p.In, "required": p.Required,
			"schema": p.Schema, "description": w.describe(fieldOf(p, o.In, reflect.TypeFor[api.Listing]()))})
	}
	if parameters != nil {
		said["parameters"] = parameters
	}
	if o.Takes != "" {
		said["requestBody"] = api.Schema{"required": true, "content": content(o.Takes, schemaOf(o.Takes))}
	} else if api.InputOf(o.In).Body {
		said["requestBody"] = api.Schema{"required": true, "content": content("", w.Of(o.In, ""))}
	}
	return said
}

// fieldOf returns the field of one of the inputs that is a parameter: the struct that declares it, and its name.
func fieldOf(p api.Parameter, inputs ...reflect.Type) (reflect.Type, string) {
	for _, in := range inputs {
		for _, f := range reflect.VisibleFields(in) {
			if of, is := api.ParameterOf(f); is && of.Name == p.Name && of.In == p.In {
				return api.OwnerOf(in, f), f.Name
			}
		}
	}
	return nil, ""
}

// schemaOf returns the schema of a body or an answer that is not made of a Go type.
func schemaOf(media string) api.Schema {
	switch media {
	case "application/json":
		return api.Schema{"type": "object"}
	case "text/event-stream":
		return api.Schema{"type": "string"}
	}
	return api.Schema{"type": "string", "format": "binary"}
}

// events returns the schemas of the data of events, by the types of the events.
func (w *writer) events(all control.Events) api.Schema {
	schemas := api.Schema{}
	for kind, of := range all {
		schemas[kind] = w.Of(of, "")
	}
	return schemas
}

func content(media string, schema api.Schema) api.Schema {
	return api.Schema{cmp.Or(media, "application/json"): api.Schema{"schema": schema}}
}

// responses returns the answers of an operation.
func (w *writer) responses(o control.Operation) api.Schema {
	answers := api.Schema{}
	for _, status := range append([]int{cmp.Or(o.Status, http.StatusOK)}, o.Also...) {
		answer := api.Schema{"description": http.StatusText(status)}
		switch {
		case o.Out != nil && o.Out.Name() == "nothing":
			status = http.StatusNoContent
			answer["description"] = "It is done."
		case o.Out != nil:
			schema := w.Of(o.Out, "")
			answer["content"] = content("", schema)
			if tagged(o.Out) {
				answer["headers"] = api.Schema{"ETag": api.Schema{"schema": api.Schema{"type": "string"},
					"description": "The version of the object, to give in If-Match."}}
			}
		case status != http.StatusSwitchingProtocols:
			written := content(o.Media, schemaOf(o.Media))
			if o.Events != nil {
				written[o.Media].(api.Schema)["x-events"] = w.events(o.Events)
			}
			answer["content"] = written
		}
		answers[strconv.Itoa(status)] = answer
	}
	answers["default"] = api.Schema{"$ref": "#/components/responses/Problem"}
	for _, status := range o.Problems() {
		answers[strconv.Itoa(status)] = api.Schema{"$ref": "#/components/responses/" + failures[status]}
	}
	return answers
}

// tagged reports whether the server puts the generation of a result into the header ETag.
func tagged(of reflect.Type) bool {
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if of.Kind() != reflect.Struct {
		return false
	}
	f, is := of.FieldByName("Generation")
	return is && f.Type.Kind() == reflect.Int64
}

// describe returns the comment of a struct, or of a field of it, as a sentence.
func (w *writer) describe(of reflect.Type, field string) string {
	at := strings.TrimPrefix(of.PkgPath(), "croft")
	if w.sources[at] == nil {
		w.sources[at] = commentsIn(w.T, filepath.Join("..", at))
	}
	text := w.sources[at][of.Name()][field]
	if _, rest, named := strings.Cut(text, field+" is "); named && field != "" && strings.HasPrefix(text, field) {
		text = sentence(rest)
	}
	if text == "" && of.Name() != "" {
		w.Errorf("%s.%s has no comment: the document of the API needs one", of, field)
	}
	return text
}

// commentsIn reads the comments of the structs of a package.
func commentsIn(t *testing.T, dir string) map[string]comments {
	all := map[string]comments{}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			group, is := d.(*ast.GenDecl)
			if !is {
				continue
			}
			for _, spec := range group.Specs {
				named, is := spec.(*ast.TypeSpec)
				if !is {
					continue
				}
				if of, is := named.Type.(*ast.StructType); is {
					all[named.Name.Name] = commentsOf(of)
					all[named.Name.Name][""] = sentence(cmp.Or(named.Doc.Text(), group.Doc.Text()))
				}
			}
		}
	}
	return all
}

func commentsOf(of *ast.StructType) comments {
	all := comments{}
	for _, f := range of.Fields.List {
		for _, name := range f.Names {
			all[name.Name] = sentence(cmp.Or(f.Doc.Text(), f.Comment.Text()))
		}
	}
	return all
}

// sentence returns a comment on one line, with a capital letter at its beginning and a full stop at its end.
func sentence(comment string) string {
	text := strings.Join(strings.Fields(comment), " ")
	if text == "" {
		return ""
	}
	if end := text[len(text)-1]; end != '.' && end != '?' {
		text += "."
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
