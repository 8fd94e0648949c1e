package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"croft"
	"croft/control"
	"croft/control/actions"
	"croft/control/api"
	"croft/control/cloud"
	"croft/control/controltest"
	"croft/tenant/access"
	"croft/tenant/objects"
	"croft/tenant/objects/objectstest"
)

// schemaAt returns the schema that a reference in the document names, or the schema itself.
func schemaAt(schema map[string]any) map[string]any {
	ref, is := schema["$ref"].(string)
	if !is {
		return schema
	}
	at := controltest.Tree()
	for step := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		at, _ = at[step].(map[string]any)
	}
	return at
}

// sample returns a value that fits a schema. It has fixed values for names for which the schema alone does not yield a
// meaningful one.
func sample(name string, schema map[string]any) any {
	sense := map[string]any{"query": "VCPU:1,MEMORY_MB:256,DISK_GB:1", "image": "debian-12", "life": "24h",
		"resources": map[string]any{"VCPU": 1},
		"partition": "11111111-1111-4111-8111-111111111111",
		"line":      "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl anna"}
	if v, ok := sense[name]; ok {
		return v
	}
	schema = schemaAt(schema)
	if words, ok := schema["enum"].([]any); ok {
		return words[0]
	}
	switch schema["type"] {
	case "object":
		o := map[string]any{}
		required, _ := schema["required"].([]any)
		if schema["minProperties"] != nil {
			required = []any{slices.Sorted(maps.Keys(schema["properties"].(map[string]any)))[0]}
		}
		for _, field := range required {
			of := schema["properties"].(map[string]any)[field.(string)].(map[string]any)
			o[field.(string)] = sample(field.(string), of)
		}
		return o
	case "array":
		return []any{}
	case "integer", "number":
		least, _ := schema["minimum"].(float64)
		return max(least, 1)
	case "boolean":
		return true
	}
	return name
}

// misfit returns a value that does not have the type of a schema.
func misfit(schema map[string]any) any {
	switch schemaAt(schema)["type"] {
	case "object", "integer", "number", "boolean":
		return "x"
	case "array":
		return map[string]any{"x": 1}
	case "string":
		return 7
	}
	return []any{nil} // a value of several types, each of them scalar
}

// streams reports whether an operation answers a correct request with an endless stream.
func streams(o controltest.Operation) bool {
	return strings.Contains(o.Summary, "WebSocket") || strings.HasPrefix(o.ID, "watch") || o.ID == "getInstanceLog"
}

// refused fails the test unless the answer describes the error in the request.
func (a answer) refused(t *testing.T, what string) {
	t.Helper()
	if a.status < http.StatusBadRequest || a.status >= http.StatusInternalServerError || a.problem.Detail == "" {
		t.Errorf("%s: %d %.300s", what, a.status, a.body)
	}
}

// nearly returns a field of a schema with one letter too many, and the correct name.
func nearly(schema map[string]any) (wrong, right string) {
	fields, _ := schema["properties"].(map[string]any)
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		if len(field) > len(right) {
			right = field
		}
	}
	return right + "x", right
}

func TestBadBodiesOfEveryOperation(t *testing.T) {
	t.Parallel()
	a, names := crowd(t)
	for _, o := range controltest.Operations() {
		if o.Body == "" {
			continue
		}
		schema := schemaAt(map[string]any{"$ref": o.Body})
		good, _ := sample("", schema).(map[string]any)
		send := func(body any) answer {
			return a.askWith(t, "operator", o.Method, names.Replace(o.Path), body, "If-Match", "999999")
		}
		t.Run(o.ID, func(t *testing.T) {
			first := slices.Sorted(maps.Keys(schema["properties"].(map[string]any)))[0]
			for name, text := range map[string]string{
				"nothing": "", "not JSON": "{", "a NUL": "{}\x00", "text behind it": "{} x",
				"a byte order mark":        "\ufeff{}",
				"10 MB":                    `{"` + first + `":"` + strings.Repeat("x", 10<<20) + `"}`,
				"depth 10,000":             `{"x":` + strings.Repeat(`[`, 10_000) + strings.Repeat(`]`, 10_000) + `}`,
				"objects, 10,000 deep":     strings.Repeat(`{"a":`, 10_000) + `1` + strings.Repeat(`}`, 10_000),
				"a duplicate key":          `{"` + first + `":1,"` + first + `":1}`,
				"a number too large":       `{"` + first + `":1e999999}`,
				"a number too small":       `{"` + first + `":-1E-999999}`,
				"a number too long":        `{"` + first + `":` + strings.Repeat("1", 1000) + `}`,
				"bytes that are not UTF-8": "{\"" + first + "\":\"J\xf6rg\"}",
				"half of a character":      `{"` + first + `":"\ud800x"}`,
				"its other half":           `{"` + first + `":"\udc00"}`,
				"halves in a name":         `{"\udc00\ud800":1}`,
				"an endless exponent":      `{"` + first + `":1e99999999999999999999}`,
			} {
				got := send(text)
				got.want(t, http.StatusBadRequest, api.BadRequest)
				got.refused(t, name)
			}
			for _, text := range []string{"[]", "null", "7", `"x"`} {
				send(text).want(t, http.StatusBadRequest, api.SchemaViolation)
			}
			wrong, right := nearly(schema)
			unknown := maps.Clone(good)
			unknown[wrong] = 1
			got := send(unknown)
			got.want(t, http.StatusBadRequest, api.SchemaViolation)
			if !strings.Contains(got.problem.Detail, "/"+wrong+" is not known") ||
				!strings.Contains(got.problem.Detail, fmt.Sprintf("did you mean %q?", right)) {
				t.Errorf("of the field %s it says %q", wrong, got.problem.Detail)
			}
			for field, of := range schema["properties"].(map[string]any) {
				bad := maps.Clone(good)
				bad[field] = misfit(of.(map[string]any))
				got := send(bad)
				got.want(t, http.StatusBadRequest, api.SchemaViolation)
				if len(got.problem.Errors) == 0 || !strings.HasPrefix(got.problem.Errors[0].Pointer, "/"+field) {
					t.Errorf("of the wrong field %s it says %+v", field, got.problem.Errors)
				}
				bad[field] = strings.Repeat("x", 512<<10) // no field is as long
				send(bad).refused(t, "a long "+field)
				bad[field] = "a\x00\x1b[2J/../\u202e"
				if got := send(bad); got.status >= http.StatusInternalServerError {
					t.Errorf("control characters in %s: %d %s", field, got.status, got.body)
				}
			}
			for _, field := range requiredOf(schema) {
				bad := maps.Clone(good)
				delete(bad, field)
				send(bad).want(t, http.StatusBadRequest, api.SchemaViolation)
			}
		})
	}
}

func requiredOf(schema map[string]any) (all []string) {
	fields, _ := schema["required"].([]any)
	for _, field := range fields {
		all = append(all, field.(string))
	}
	return all
}

// badNames are names, as paths have them, that belong to no object.
var badNames = map[string]string{"a slash": "a%2Fb", "a NUL": "%00", "a control sequence": "%1B%5B2J",
	"a line feed": "a%0D%0Ab", "4 kB": strings.Repeat("x", 4096), "no UTF-8": "%FF", "a dot": ".", "two dots": "..",
	"hidden dots": "%2E%2E", "dots and a slash": "..%2F..%2Fx", "a blank": "%20", "a dash": "-", "nothing": "",
	"a direction": "%E2%80%AE", "a quote": "%22", "a wildcard": "*", "a semicolon": ";x", "a percent sign": "%25zz"}

func TestBadNamesInEveryPath(t *testing.T) {
	t.Parallel()
	a, names := crowd(t)
	for _, o := range controltest.Operations() {
		for _, p := range o.Parameters {
			if p.In != "path" {
				continue
			}
			t.Run(o.ID+" "+p.Name, func(t *testing.T) {
				body, _ := sample("", map[string]any{"$ref": o.Body}).(map[string]any)
				for name, bad := range badNames {
					path := names.Replace(strings.Replace(o.Path, "{"+p.Name+"}", bad, 1))
					for _, token := range []string{"operator", "anna"} {
						got := a.askWith(t, token, o.Method, path, body, "If-Match", "999999")
						if (p.Name != "tag" && p.Name != "id") || got.status != http.StatusOK { // a tag may be any text
							got.refused(t, token+", "+name)
						}
					}
				}
			})
		}
	}
	a.untouched(t)
}

// untouched fails the test unless the instance web runs, which refused requests named.
func (a asker) untouched(t *testing.T) {
	t.Helper()
	var web api.Instance
	a.ask(t, "anna", http.MethodGet, "/v1/instances/web", nil).into(t, &web)
	if web.State != "running" {
		t.Errorf("web is %s", web.State)
	}
}

func TestBadParametersOfEveryOperation(t *testing.T) {
	t.Parallel()
	a, names := crowd(t)
	for _, o := range controltest.Operations() {
		path := names.Replace(o.Path)
		body, _ := sample("", map[string]any{"$ref": o.Body}).(map[string]any)
		required := url.Values{}
		for _, p := range o.Parameters {
			if p.In == "query" && p.Required {
				required.Set(p.Name, fmt.Sprint(sample(p.Name, p.Schema)))
			}
		}
		ask := func(more url.Values) answer {
			query := maps.Clone(required)
			maps.Copy(query, more)
			return a.askWith(t, "operator", o.Method, path+"?"+query.Encode(), body, "If-Match", "999999")
		}
		t.Run(o.ID, func(t *testing.T) {
			ask(url.Values{"no-such": {"1"}}).want(t, http.StatusBadRequest, api.BadQuery)
			for _, p := range o.Parameters {
				var bad []string
				switch {
				case p.In == "header":
					for _, value := range []string{"x", "-1", "1.5", "99999999999999999999", `"`,
						strings.Repeat("1", 4096)} {
						got := a.askWith(t, "operator", o.Method, path+"?"+required.Encode(), body, p.Name, value)
						got.refused(t, p.Name+": "+value)
					}
					continue
				case p.In != "query":
					continue
				case p.Schema["type"] == "integer":
					bad = []string{"-1", "1.5", "x", "1e3", "99999999999999999999", "0x10", ""}
					if fmt.Sprint(p.Schema["minimum"]) != "0" {
						bad = append(bad, "0")
					}
				case p.Schema["type"] == "boolean":
					bad = []string{"yes", "TRUE", "1", ""}
				case p.Schema["enum"] != nil:
					bad = []string{"x", "", "a\x00", strings.Repeat("x", 4096)}
				case p.Name == "timeout":
					bad = []string{"20", "0", "-1s", "1h", "1d", "soon", ""}
				case p.Name == "project":
					bad = []string{"a/b", "no-such-x\x00", "..", strings.Repeat("x", 4096), "\xff"}
				}
				for _, value := range bad {
					if o.ID != "createProject" || p.Name != "project" {
						ask(url.Values{p.Name: {value}}).refused(t, fmt.Sprintf("%s=%.20q", p.Name, value))
					}
				}
				if p.Schema["type"] != "array" {
					ask(url.Values{p.Name: {"1", "1"}}).want(t, http.StatusBadRequest, api.BadQuery)
				}
				if p.Required {
					required := maps.Clone(required)
					required.Del(p.Name)
					a.ask(t, "operator", o.Method, path+"?"+required.Encode(), body).
						want(t, http.StatusBadRequest, api.BadQuery)
				}
				free := p.Schema["type"] == "string" && p.Schema["enum"] == nil
				if free && !streams(o) && o.Method == http.MethodGet {
					for _, value := range []string{"a\x00\x1b[2J", strings.Repeat("x", 4096), "\xff", "..", "a/b/c"} {
						if got := ask(url.Values{p.Name: {value}}); got.status >= http.StatusInternalServerError {
							t.Errorf("%s=%.20q: %d %s", p.Name, value, got.status, got.body)
						}
					}
				}
			}
		})
	}
	a.untouched(t)
}

// documented returns an operation as the document has it.
func documented(id string) controltest.Operation {
	for _, o := range controltest.Operations() {
		if o.ID == id {
			return o
		}
	}
	return controltest.Operation{}
}

// required returns a query with a value for each required parameter of an operation; empty: it has none.
func required(o controltest.Operation) string {
	query := ""
	for _, p := range o.Parameters {
		if p.In == "query" && p.Required {
			query += "&" + p.Name + "=" + fmt.Sprint(sample(p.Name, p.Schema))
		}
	}
	return strings.Replace(query, "&", "?", 1)
}

func TestNothingIsAnothersInEveryOperation(t *testing.T) {
	t.Parallel()
	a, names := crowd(t)
	for _, o := range controltest.Operations() {
		body, _ := sample("", map[string]any{"$ref": o.Body}).(map[string]any)
		if o.ID == "createProject" {
			body["name"], body["parent"] = "x", "anna"
		}
		path := names.Replace(o.Path)
		if o.Tag == "partitions" {
			path += required(o)
		}
		thing := strings.Contains(o.Path, "{project}") || strings.Contains(o.Path, "{id}") ||
			strings.Contains(o.Path, "/pools/{name}")
		named, asks := thing, []string{path}
		for _, p := range o.Parameters {
			if p.In == "query" && p.Name == "project" {
				query := "project=anna"
				for _, p := range o.Parameters {
					if p.In == "query" && p.Required {
						query += "&" + p.Name + "=" + fmt.Sprint(sample(p.Name, p.Schema))
					}
				}
				asks, named = append(asks, path+"?"+query), true
			}
		}
		if !named {
			continue
		}
		for i, path := range asks {
			if i == 0 && !thing {
				continue // about berta's own
			}
			for _, token := range []string{"berta", "adam"} {
				headers := []string{"If-Match", "0"}
				if strings.Contains(o.Summary, "WebSocket") {
					headers = []string{"Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13",
						"Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="}
				}
				got := a.askWith(t, token, o.Method, path, body, headers...)
				// or for the caller's own objects
				operators := []string{"revokeToken", "getResourceLog", "getStanding", "moveInstance", "cancelMove",
					"changePool"}
				whatever := (slices.Contains(operators, o.ID) || o.Tag == "partitions") &&
					got.problem.Code == api.ForbiddenVerb
				if got.problem.Code != api.NotFound && !whatever { // the name exists
					t.Errorf("%s asks for %s %s: %d %s", token, o.Method, path, got.status, got.body)
				}
				got.hides(t, "host1", `"owner"`)
			}
		}
	}
}

// fed is a feed of access tokens under the test's control.
type fed struct {
	all     []access.Token
	watched chan struct{}       // closed after the first list
	revoke  chan access.TokenID // the test sends a token's ID, then receives once the watcher was notified
}

// Watch implements access.TokenFeed.
func (f fed) Watch(ctx context.Context, all func([]access.Token), changed func(access.TokenID, *access.Token)) error {
	all(f.all)
	close(f.watched)
	for {
		select {
		case id := <-f.revoke:
			changed(id, nil)
			f.revoke <- id
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func TestTokensThatCountNoMoreInEveryOperation(t *testing.T) {
	t.Parallel()
	now := time.Now()
	token := func(made time.Time) (access.Token, string) {
		one, secret, err := access.NewToken(access.Token{User: "olga", Roles: []access.Role{access.PartitionAdmin},
			Created: made, Expires: made.Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		return one, secret.Text()
	}
	expired, expiredText := token(now.Add(-2 * time.Hour))
	valid, validText := token(now)
	_, unknown := token(now)
	feed := fed{[]access.Token{expired, valid}, make(chan struct{}), make(chan access.TokenID)}
	bearer := access.NewBearer(feed, "00000000-0000-4000-8000-000000000001", nil)
	ctx, cancel := context.WithCancel(t.Context())
	var run sync.WaitGroup
	run.Go(func() { _ = bearer.Run(ctx) })
	defer run.Wait()
	defer cancel()
	<-feed.watched
	server, err := control.New(control.Config{Cloud: &cloud.Cloud{}, Callers: access.First(bearer),
		Objects: objects.New(&objectstest.Memory{}), Images: controltest.Images{},
		Actions: actions.NewRecorder(nil, nil)})
	if err != nil {
		t.Fatal(err)
	}
	a := newAsker(t, controltest.Serve(t, server.Handler()))
	a.ask(t, validText, http.MethodGet, "/v1/whoami", nil).want(t, http.StatusOK, "")
	feed.revoke <- valid.ID
	<-feed.revoke
	for _, o := range controltest.Operations() {
		if o.Open {
			continue
		}
		for name, token := range map[string]string{"none": "", "expired": expiredText, "revoked": validText,
			"of another cloud": unknown, "cut off": expiredText[:20], "another key": expiredText[:17] + unknown[17:],
			"of 8 kB": "croft_" + strings.Repeat("x", 8<<10), "no token": "x y"} {
			path := strings.NewReplacer("{", "", "}", "").Replace(o.Path)
			got := a.ask(t, token, o.Method, path, map[string]any{"x": 1})
			if got.want(t, http.StatusUnauthorized, api.Unauthenticated); t.Failed() {
				t.Fatalf("%s with a token that is %s", o.ID, name)
			}
			if says := "expired on"; strings.Contains(got.problem.Detail, says) != (name == "expired") {
				t.Errorf("%s: %s", name, got.problem.Detail)
			}
		}
	}
}

func TestLimitsThatAreNoneAndLimitsBelowUse(t *testing.T) {
	t.Parallel()
	a, _ := crowd(t)
	project := a.ask(t, "operator", http.MethodGet, "/v1/projects/anna", nil)
	set := func(limit any) answer {
		return a.askWith(t, "operator", http.MethodPut, "/v1/projects/anna/quota",
			map[string]any{"limits": map[string]any{"VCPU": limit}}, "If-Match", project.generation())
	}
	for _, limit := range []any{-2, 1.5, "1", nil, true, json.RawMessage("1e400"),
		json.RawMessage("99999999999999999999")} {
		got := set(limit)
		if p := got.problem; p.Code != api.SchemaViolation && p.Code != api.BadRequest {
			t.Errorf("the limit %v: %d %s", limit, got.status, got.body)
		}
	}
	a.askWith(t, "operator", http.MethodPut, "/v1/projects/anna/quota",
		map[string]any{"limits": map[string]any{"vcpus": 1}}, "If-Match", project.generation()).
		refused(t, "a limit of what there is not")
	set(0).want(t, http.StatusOK, "")
	refused := a.ask(t, "anna", http.MethodPost, "/v1/instances", wanted("name", "more"))
	refused.want(t, http.StatusForbidden, api.QuotaExceeded)
	if p := refused.problem; p.Limit == nil || *p.Limit != 0 || *p.Used != 1 || *p.Requested != 1 {
		t.Errorf("refused with %s", refused.body)
	}
	for _, path := range []string{"/v1/instances/web/stop?wait=stopped", "/v1/instances/web/start?wait=running"} {
		a.ask(t, "anna", http.MethodPost, path, nil).want(t, http.StatusOK, "")
	}
	a.ask(t, "anna", http.MethodDelete, "/v1/instances/web?wait=gone", nil).want(t, http.StatusOK, "")
}

// TestTwoCreatesOfOneUUID: in either order, exactly one instance is created, and the other request gets an error.
func TestTwoCreatesOfOneUUID(t *testing.T) {
	t.Parallel()
	a, _ := crowd(t)
	id := string(croft.NewInstanceID())
	answers := make([]answer, 8)
	var asked sync.WaitGroup
	for i := range answers {
		asked.Go(func() {
			answers[i] = a.ask(t, "anna", http.MethodPost, "/v1/instances",
				wanted("id", id, "name", fmt.Sprint("vm", i%2)))
		})
	}
	asked.Wait()
	names := map[string]bool{}
	for _, got := range answers {
		switch got.status {
		case http.StatusAccepted:
			var made api.Instance
			got.into(t, &made)
			names[made.Name] = true
		default:
			got.want(t, http.StatusConflict, api.UUIDReused)
		}
	}
	var list api.InstanceList
	a.ask(t, "anna", http.MethodGet, "/v1/instances", nil).into(t, &list)
	if len(list.Instances) != 2 || len(names) != 1 {
		t.Errorf("there are %d instances, and %v were made", len(list.Instances), names)
	}
}
