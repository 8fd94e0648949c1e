package control_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"croft"
	"croft/control/api"
	"croft/control/controltest"
)

// asker asks a server, and checks that each answer fits the document.
type asker struct {
	url    string
	router routers.Router
}

// documentRouter finds the operation of a request in the document. Parsing it takes longer than most tests.
var documentRouter = sync.OnceValues(func() (routers.Router, error) {
	document, err := openapi3.NewLoader().LoadFromData(api.Document())
	if err != nil {
		return nil, err
	}
	document.Servers = nil // the router would compare the address of the test's server with "/"
	return legacy.NewRouter(document)
})

func newAsker(t *testing.T, url string) asker {
	t.Helper()
	router, err := documentRouter()
	if err != nil {
		t.Fatal(err)
	}
	return asker{url, router}
}

// client limits requests to a minute, so that a hang fails the test, and does not follow redirects.
var client = &http.Client{Timeout: time.Minute,
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

// answer is the answer of a server.
type answer struct {
	status  int
	header  http.Header
	body    []byte
	problem api.Problem // of an error
}

// ask sends a request; body is text, or a value to be sent as JSON, or nil.
func (a asker) ask(t *testing.T, token, method, path string, body any) answer {
	t.Helper()
	return a.askWith(t, token, method, path, body)
}

// askWith is ask with more headers, as pairs of names and values.
func (a asker) askWith(t *testing.T, token, method, path string, body any, headers ...string) answer {
	t.Helper()
	var text []byte
	switch b := body.(type) {
	case nil:
	case string:
		text = []byte(b)
	default:
		var err error
		if text, err = json.Marshal(b); err != nil {
			t.Fatal(err)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), method, a.url+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set(api.RequestIDHeader, "test") // so that equal problems are equal documents
	for pair := range slices.Chunk(headers, 2) {
		if pair[1] != "" {
			r.Header.Set(pair[0], pair[1])
		}
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	got, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	ans := answer{status: got.StatusCode, header: got.Header}
	if ans.body, err = io.ReadAll(got.Body); err != nil {
		t.Fatal(err)
	}
	if got.StatusCode >= http.StatusBadRequest {
		if len(ans.body) > 64<<10 {
			t.Errorf("%s %s: the problem has %d bytes", method, path, len(ans.body))
		}
		if err := json.Unmarshal(ans.body, &ans.problem); err != nil || ans.problem.Status != got.StatusCode {
			t.Errorf("%s %s: %d is no problem document, but %s (%v)", method, path, got.StatusCode, ans.body, err)
		}
	}
	if r.Body, err = r.GetBody(); err == nil {
		a.check(t, r, ans)
	}
	return ans
}

// check compares an answer with the document.
func (a asker) check(t *testing.T, r *http.Request, got answer) {
	t.Helper()
	r = r.Clone(t.Context())
	r.URL.Path = r.URL.EscapedPath() // a name may have a slash in it
	route, parameters, err := a.router.FindRoute(r)
	if err != nil {
		if got.status < http.StatusBadRequest && strings.HasPrefix(r.URL.Path, "/v1") {
			t.Errorf("%s %s is done, and is not in the document: %v", r.Method, r.URL, err)
		}
		return
	}
	documented := route.Operation.Responses.Status(got.status)
	switch {
	case got.status >= http.StatusBadRequest:
		fits(t, "#/components/schemas/Problem", got.body)
		return
	case documented == nil:
		t.Errorf("%s %s: the document lacks the answer %d", r.Method, r.URL, got.status)
		return
	}
	input := &openapi3filter.RequestValidationInput{Request: r, PathParams: parameters, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc,
			ExcludeRequestBody: true}}
	if err := openapi3filter.ValidateRequest(t.Context(), input); err != nil {
		t.Errorf("%s %s is done, although the document does not allow it: %v", r.Method, r.URL, err)
	}
	if body := route.Operation.RequestBody; body != nil {
		if media := body.Value.Content["application/json"]; media != nil {
			text, _ := io.ReadAll(r.Body)
			fits(t, media.Schema.Ref, text)
		}
	}
	checkMedia(t, r, documented, got)
	if media := documented.Value.Content["application/json"]; media != nil && media.Schema.Ref != "" {
		fits(t, media.Schema.Ref, got.body)
	}
}

// schemas compiles schemas of the document, each once: the validator of openapi3filter compiles them for each answer.
var schemas = struct {
	sync.Mutex
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema // by their references in the document
}{compiled: map[string]*jsonschema.Schema{}}

// schemaOfDocument returns the schema that a reference in the document names.
func schemaOfDocument(ref string) (*jsonschema.Schema, error) {
	schemas.Lock()
	defer schemas.Unlock()
	if schemas.compiler == nil {
		schemas.compiler = jsonschema.NewCompiler()
		if err := schemas.compiler.AddResource("croft:document", controltest.Tree()); err != nil {
			return nil, err
		}
	}
	if schemas.compiled[ref] == nil {
		schema, err := schemas.compiler.Compile("croft:document" + ref)
		if err != nil {
			return nil, err
		}
		schemas.compiled[ref] = schema
	}
	return schemas.compiled[ref], nil
}

// fits fails the test unless a JSON document fits the schema that a reference in the document names.
func fits(t *testing.T, ref string, text []byte) {
	t.Helper()
	schema, err := schemaOfDocument(ref)
	if err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err == nil {
		err = schema.Validate(value)
	}
	if err != nil {
		t.Errorf("%.2000s does not fit %s: %v", text, ref, err)
	}
}

// checkMedia compares the type of an answer with the types that the document has for it.
func checkMedia(t *testing.T, r *http.Request, documented *openapi3.ResponseRef, got answer) {
	t.Helper()
	given := got.header.Get("Content-Type")
	if _, has := documented.Value.Content[given]; !has && (given != "" || len(documented.Value.Content) > 0) {
		t.Errorf("the answer of %s %s is %q, and in the document one of %v", r.Method, r.URL, given,
			slices.Collect(maps.Keys(documented.Value.Content)))
	}
}

// want fails the test unless the answer has this status and, as an error, this code.
func (a answer) want(t *testing.T, status int, code api.Code) {
	t.Helper()
	if a.status != status || a.problem.Code != code {
		t.Errorf("got %d %s (%s), want %d %s", a.status, a.problem.Code, a.problem.Detail, status, code)
	}
}

// into decodes the answer.
func (a answer) into(t *testing.T, v any) {
	t.Helper()
	if err := json.Unmarshal(a.body, v); err != nil {
		t.Fatalf("%v: %s", err, a.body)
	}
}

// wanted is a request for a small instance, with additional fields.
func wanted(more ...any) map[string]any {
	r := map[string]any{"query": "VCPU:1,MEMORY_MB:256,DISK_GB:1", "image": "https://images.example/tiny.qcow2"}
	for i := 0; i+1 < len(more); i += 2 {
		r[fmt.Sprint(more[i])] = more[i+1]
	}
	return r
}

// create creates an instance and waits until it runs.
func (a asker) create(t *testing.T, token, name string, more ...any) croft.InstanceID {
	t.Helper()
	got := a.ask(t, token, http.MethodPost, "/v1/instances?wait=running", wanted(append(more, "name", name)...))
	if got.status != http.StatusOK {
		t.Fatalf("create %s: %d %s", name, got.status, got.body)
	}
	var made api.Instance
	got.into(t, &made)
	return made.ID
}

// hides fails the test if an answer contains one of the words.
func (a answer) hides(t *testing.T, words ...string) {
	t.Helper()
	for _, word := range words {
		if strings.Contains(string(a.body), word) {
			t.Errorf("the answer tells %q: %s", word, a.body)
		}
	}
}
