package placement_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"croft/placement"
)

// Objects in the fuzzed requests.
const (
	rackID     = "11111111-1111-4111-8111-111111111111"
	hostID     = "22222222-2222-4222-8222-222222222222"
	diskID     = "33333333-3333-4333-8333-333333333333"
	consumerID = "44444444-4444-4444-8444-444444444444"
	groupID    = "55555555-5555-4555-8555-555555555555"
)

// world has a tree of two providers, a provider that shares its disk with them, and a consumer.
var world = [][3]string{
	{"PUT", "/traits/CUSTOM_BLUE"},
	{"PUT", "/resource_classes/CUSTOM_SLOT"},
	{"POST", "/resource_providers", `{"name": "rack", "uuid": "` + rackID + `"}`},
	{"POST", "/resource_providers", `{"name": "host", "uuid": "` + hostID + `", "parent_provider_uuid": "` + rackID +
		`"}`},
	{"POST", "/resource_providers", `{"name": "disk", "uuid": "` + diskID + `"}`},
	{"PUT", "/resource_providers/" + rackID + "/inventories",
		`{"resource_provider_generation": 0, "inventories": {"CUSTOM_SLOT": {"total": 4}}}`},
	{"PUT", "/resource_providers/" + hostID + "/inventories",
		`{"resource_provider_generation": 0, "inventories": {"VCPU": {"total": 8, "max_unit": 4}, "MEMORY_MB": {"total": 1024, "step_size": 64}}}`},
	{"PUT", "/resource_providers/" + diskID + "/inventories",
		`{"resource_provider_generation": 0, "inventories": {"DISK_GB": {"total": 100}}}`},
	{"PUT", "/resource_providers/" + hostID + "/traits",
		`{"resource_provider_generation": 1, "traits": ["CUSTOM_BLUE", "HW_CPU_X86_AVX2"]}`},
	{"PUT", "/resource_providers/" + diskID + "/traits",
		`{"resource_provider_generation": 1, "traits": ["MISC_SHARES_VIA_AGGREGATE"]}`},
	{"PUT", "/resource_providers/" + rackID + "/aggregates",
		`{"resource_provider_generation": 1, "aggregates": ["` + groupID + `"]}`},
	{"PUT", "/resource_providers/" + diskID + "/aggregates",
		`{"resource_provider_generation": 2, "aggregates": ["` + groupID + `"]}`},
	{"PUT", "/allocations/" + consumerID, claimOf(`{"` + hostID + `": {"resources": {"VCPU": 1}}, "` + diskID +
		`": {"resources": {"DISK_GB": 5}}}`)},
}

// target is a server whose answers are checked.
type target struct {
	f     *testing.F
	full  *memory // the world
	store *memory
	serve http.Handler
	stop  func()
}

func newTarget(f *testing.F) *target {
	t := &target{f: f, full: newMemory(), stop: func() {}}
	f.Cleanup(func() { t.stop() })
	t.begin()
	for _, r := range world {
		if w := t.send(r[0], r[1], "placement 1.39", "application/json", "", "admin", r[2]); w == nil || w.Code > 299 {
			f.Fatalf("%v: %v", r, w)
		}
	}
	t.full = t.store
	return t
}

// begin starts a server on the world.
func (t *target) begin() {
	t.stop()
	t.store = t.full.copy()
	server, err := placement.New(placement.Config{Store: t.store, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.stop = func() { cancel(); <-ended }
	if err := server.WaitReady(ctx); err != nil {
		t.f.Fatal(err)
	}
	t.serve = server.Handler()
}

// send makes net/http parse a request from text; nil: the text is not a request.
func (t *target) send(method, uri, version, contentType, accept, token, body string) *httptest.ResponseRecorder {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: localhost\r\n", method, uri)
	for name, value := range map[string]string{"OpenStack-API-Version": version, "Content-Type": contentType,
		"Accept": accept, "X-Auth-Token": token} {
		if value != "" {
			fmt.Fprintf(&b, "%s: %s\r\n", name, value)
		}
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(b.String())))
	if err != nil {
		return nil
	}
	w := httptest.NewRecorder()
	t.serve.ServeHTTP(w, r)
	return w
}

// judge sends a request and fails if the answer is not a permitted one.
func (t *target) judge(test *testing.T, method, uri, version, contentType, accept, token, body string) {
	before := t.store.now()
	w := t.send(method, uri, version, contentType, accept, token, body)
	if w == nil {
		return
	}
	if after := t.store.now(); after != before {
		if w.Code > 299 || method == http.MethodGet || method == http.MethodHead {
			test.Errorf("answered %d, but changed something: %s", w.Code, w.Body)
		}
		t.begin() // the next request must find the same world
	}
	if w.Code >= 500 {
		test.Errorf("answered %d: %s", w.Code, w.Body)
	}
	if w.Header().Get("X-Openstack-Request-Id") == "" && !strings.HasSuffix(uri, "z") {
		test.Errorf("answered %d without a request id", w.Code)
	}
	if w.Header().Get("Content-Type") != "application/json" {
		return
	}
	var v struct {
		Errors []struct {
			Status              int
			Title, Detail, Code string
			RequestID           string `json:"request_id"`
		}
	}
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
		test.Errorf("answered %d with what is no JSON: %v: %q", w.Code, err, w.Body)
	}
	if w.Code == http.StatusUnauthorized { // the original answers 401 in a different form
		return
	}
	if w.Code > 299 && (len(v.Errors) != 1 || v.Errors[0].Status != w.Code || v.Errors[0].Title == "" ||
		v.Errors[0].RequestID == "") {
		test.Errorf("answered %d without the document of an error: %s", w.Code, w.Body)
	}
}

// microversion returns versions that exist, and some that do not.
func microversion(n uint8) string { return fmt.Sprintf("placement 1.%d", n%42) }

var queried = []string{"/allocation_candidates", "/resource_providers", "/usages", "/traits", "/resource_classes",
	"/allocations/" + consumerID, "/resource_providers/" + hostID}

// FuzzQuery sends query strings.
func FuzzQuery(f *testing.F) {
	for _, q := range []string{
		"", "resources=VCPU:1", "resources=VCPU:1,DISK_GB:5&limit=3",
		"resources=VCPU:1%20&required=!CUSTOM_BLUE,HW_CPU_X86_AVX2",
		"resources1=VCPU:1&resources2=MEMORY_MB:64&group_policy=isolate",
		"resources_A=VCPU:1&resources_B=DISK_GB:1&group_policy=none&same_subtree=_A,_B",
		"resources=VCPU:1&root_required=CUSTOM_BLUE,!CUSTOM_RED",
		"resources=VCPU:1&member_of=in:" + groupID + "&member_of=!in:" + rackID,
		"resources=VCPU:1&required=in:CUSTOM_BLUE,HW_CPU_X86_AVX2&required=in:COMPUTE_NODE,CUSTOM_BLUE",
		"resources=VCPU:1&in_tree=" + rackID,
		"resources1=VCPU:1&in_tree1=" + hostID + "&member_of1=" + groupID + "&required1=CUSTOM_BLUE",
		"name=host&uuid=" + hostID,
		"in_tree=" + rackID + "&resources=MEMORY_MB:64", "project_id=p&user_id=u&consumer_type=all",
		"name=startswith:CUSTOM&associated=true",
		"name=in:CUSTOM_BLUE,HW", "limit=0", "limit=99999999999999999999", "resources=VCPU:-1", "resources=VCPU",
		"resources=:", "resources=VCPU:1:1",
		"%zz=1&a=%ff", "resources=VCPU:99999999999999999999", "required=", "member_of=in:", "same_subtree=",
		"group_policy=other", "=", "&&&",
	} {
		for i := range queried {
			f.Add(uint8(i), uint8(39), q)
		}
		f.Add(uint8(0), uint8(16), q)
	}
	t := newTarget(f)
	f.Fuzz(func(test *testing.T, path, version uint8, query string) {
		t.judge(test, "GET", queried[int(path)%len(queried)]+"?"+query, microversion(version), "", "", "admin", "")
	})
}

// bodied lists the requests with a body.
var bodied = [][2]string{
	{"POST", "/resource_providers"}, {"PUT", "/resource_providers/" + hostID}, {"PUT",
		"/resource_providers/" + hostID + "/inventories"},
	{"POST", "/resource_providers/" + hostID + "/inventories"}, {"PUT",
		"/resource_providers/" + hostID + "/inventories/VCPU"},
	{"PUT", "/resource_providers/" + hostID + "/aggregates"}, {"PUT", "/resource_providers/" + hostID + "/traits"},
	{"PUT", "/allocations/" + consumerID}, {"POST", "/allocations"}, {"POST", "/reshaper"},
	{"POST", "/resource_classes"},
	{"PUT", "/resource_classes/CUSTOM_SLOT"}, {"PUT", "/traits/CUSTOM_RED"}, {"PUT", "/allocations/" + groupID},
}

// FuzzBody sends bodies.
func FuzzBody(f *testing.F) {
	bodies := []string{"", "{}", "[]", "null", `{"a": 1e999}`, `{"a": NaN}`, "{\"name\": \"\\ud800\"}",
		`{"name": "x", "name": "y"}`,
		`{"name": "` + strings.Repeat("n", 201) + `"}`, `{"name": "CUSTOM_NEW"}`, `{"uuid": "x"}`,
		strings.Repeat("[", 10000),
		`{"resource_provider_generation": 2, "resource_class": "DISK_GB", "total": 10, "reserved": 1, "allocation_ratio": 1.5}`,
		`{"resource_provider_generation": 2, "total": 99999999999999999999}`,
		`{"resource_provider_generation": 2.0, "total": 1e3}`,
		`{"resource_provider_generation": 2, "inventories": {}}`,
		`{"resource_provider_generation": 2, "inventories": {"VCPU": {"total": 0}}}`,
		`["` + groupID + `"]`, `{"allocations": [{"resource_provider": {"uuid": "` + hostID +
			`"}, "resources": {"VCPU": 1}}]}`,
		`{"` + consumerID + `": {"allocations": {"` + hostID +
			`": {"resources": {"VCPU": 9}}}, "project_id": "p", "user_id": "u", "consumer_generation": 1, "consumer_type": "X"}}`,
		`{"` + consumerID +
			`": {"allocations": {}, "project_id": "p", "user_id": "u", "consumer_generation": 1, "consumer_type": "X"}}`,
		`{"inventories": {"` + hostID +
			`": {"resource_provider_generation": 2, "inventories": {"VCPU": {"total": 4}}}}, "allocations": {}}`,
		`{"allocations": {}, "project_id": "p", "user_id": "u", "consumer_generation": 1, "consumer_type": "X", "mappings": {"": ["` + hostID + `"]}}`,
	}
	for _, r := range world {
		bodies = append(bodies, r[2])
	}
	for _, b := range bodies {
		for i := range bodied {
			f.Add(uint8(i), uint8(39), b)
			f.Add(uint8(i), uint8(11), b)
		}
	}
	t := newTarget(f)
	f.Fuzz(func(test *testing.T, endpoint, version uint8, body string) {
		w := bodied[int(endpoint)%len(bodied)]
		t.judge(test, w[0], w[1], microversion(version), "application/json", "", "admin", body)
	})
}

// FuzzRequest sends methods, paths and headers.
func FuzzRequest(f *testing.F) {
	for _, method := range []string{"GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH", "X"} {
		for _, path := range []string{"/", "//", "/nothing", "/resource_providers", "/resource_providers/" + hostID,
			"/resource_providers/x/inventories/VCPU",
			"/resource_providers/" + diskID + "/traits", "/traits/CUSTOM_%C3%A4", "/allocations/x", "/usages", "*",
			"http://other/traits", "/traits/%2F", "/%00"} {
			f.Add(method, path, "placement 1.39", "application/json", "application/json", "admin", "{}")
		}
	}
	for _, version := range []string{"", "placement latest", "latest", "placement", "placement 1", "placement 1.",
		"placement 1.-1", "placement 2.0", "placement 1.040",
		"compute 2.1, placement 1.5", "placement 1.99999999999999999999", "placement 1.1, placement 1.2", ",",
		"placement 1.1 1", "placement \u0661.1"} {
		f.Add("GET", "/resource_providers", version, "", "*/*;q=0.1, application/json", "admin:admin", "")
	}
	for _, accept := range []string{"text/html", "text/plain", "image/png", "*/*;q=0", "application/json;q=x", ";;;,",
		"application/*;q=1e9", "a/b/c"} {
		f.Add("GET", "/resource_providers?x", "placement 1.20", "text/plain; charset=\"", accept, "nobody", "body")
		f.Add("PUT", "/resource_providers/"+hostID, "placement 1.20", accept, accept, "", "body")
	}
	t := newTarget(f)
	f.Fuzz(func(test *testing.T, method, uri, version, contentType, accept, token, body string) {
		t.judge(test, method, uri, version, contentType, accept, token, body)
	})
}
