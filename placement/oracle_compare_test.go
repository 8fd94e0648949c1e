package placement_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// difference describes the difference between two answers to a call.
func difference(c call, theirs, ours reply) string {
	if theirs.status != ours.status {
		return fmt.Sprintf("status %d, not %d", ours.status, theirs.status)
	}
	for _, name := range []string{"Content-Type", "Allow", "Openstack-Api-Version", "Cache-Control"} {
		if a, b := theirs.header.Get(name), ours.header.Get(name); a != b &&
			!(c.method == http.MethodHead && name == "Content-Type") {
			return fmt.Sprintf("header %s is %q, not %q", name, b, a)
		}
	}
	if a, b := theirs.header.Get("Location"), ours.header.Get("Location"); path(a) != path(b) {
		return fmt.Sprintf("location %q, not %q", b, a)
	}
	if c.method == http.MethodPut && strings.HasPrefix(c.path, "/resource_providers/") &&
		strings.Count(c.path, "/") == 2 {
		theirs.header.Del("Last-Modified") // the time of the previous change, or none: meaningless
		ours.header.Del("Last-Modified")
	}
	if a, b := theirs.header.Get("Last-Modified") != "", ours.header.Get("Last-Modified") != ""; a != b {
		return fmt.Sprintf("last-modified is there: %v, not %v", b, a)
	}
	if a, b := normal(c, theirs.body), normal(c, ours.body); a != b {
		return "body\n- " + a + "\n+ " + b
	}
	return ""
}

func path(location string) string {
	u, err := url.Parse(location)
	if err != nil {
		return location
	}
	return u.Path
}

var requestID = regexp.MustCompile(`req-[0-9a-f-]{36}`)

// normal returns a body without permitted differences: the request's ID, the order of keys, and the order of lists in
// which it has no meaning.
func normal(c call, body string) string {
	body = requestID.ReplaceAllString(body, "req-ID")
	d := json.NewDecoder(strings.NewReader(body))
	d.UseNumber()
	var v any
	if d.Decode(&v) != nil {
		return normalDetail(strings.ReplaceAll(body, "&#x27;", "'"))
	}
	v = normalize("", v)
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return body
	}
	return out.String()
}

// unordered are the keys whose lists the original returns in any order.
var unordered = map[string]bool{"resource_classes": true, "traits": true, "aggregates": true,
	"allocation_requests": true, "mappings": true, "allocations": true}

func normalize(key string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			inner := k
			if key == "mappings" {
				inner = key // suffix -> list
			}
			v[k] = normalize(inner, v[k])
		}
	case []any:
		for i := range v {
			v[i] = normalize("", v[i])
		}
		if unordered[key] {
			slices.SortFunc(v, func(a, b any) int { return strings.Compare(text(a), text(b)) })
		}
	case json.Number:
		if f, err := v.Float64(); err == nil {
			return f // 2 and 2.0 are equal
		}
	case string:
		if key == "detail" {
			return normalDetail(v)
		}
	}
	return v
}

func text(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// Lists in texts that the original builds from sets.
var sets = regexp.MustCompile(
	`(No such trait |bad group\(s\) - |same_subtree.: |resource provider '|Inventory for '|in root_required: )([^.]*)`)

// If several traits do not exist, the original names any one of them.
var unknownTrait = regexp.MustCompile(`No such trait\(s\): [^.]*`)

// If a request violates a schema, the original shows the text of the schema and the whole value. Ours shows the place
// in both, and values as JSON: compare the sentence with its plain values, and the rule with its place in the schema.
var (
	failedRule = regexp.MustCompile(`(?s)(Failed validating '[a-zA-Z]+' in schema.*?)(:\s{4,}|\s+On instance).*`)
	shownValue = regexp.MustCompile(
		`(JSON does not validate|parameters): (.*?) (is not of type|has non-unique|does not have|is not valid|is too|is not one of|is not a|does not match '|is less|is greater)`)
	plainValue = regexp.MustCompile(`^('[a-zA-Z0-9_:,.!-]*'|-?[0-9]+)$`)
	malformed  = regexp.MustCompile(`Malformed JSON: .*`)
)

func normalDetail(s string) string {
	s = strings.ReplaceAll(s, `"`, "'") // Python quotes "it's" like this
	s = malformed.ReplaceAllString(s, "Malformed JSON: in the words of the parser")
	s = failedRule.ReplaceAllString(s, "$1")
	s = shownValue.ReplaceAllStringFunc(s, func(m string) string {
		parts := shownValue.FindStringSubmatch(m)
		if !plainValue.MatchString(parts[2]) {
			parts[2] = "a value"
		}
		return strings.Join(parts[1:], " ")
	})
	s = unknownTrait.ReplaceAllString(s, "No such trait(s): one of them")
	return sets.ReplaceAllStringFunc(s, func(m string) string {
		words := strings.FieldsFunc(m, func(r rune) bool { return strings.ContainsRune(" ,[]'", r) })
		slices.Sort(words)
		return strings.Join(words, " ")
	})
}

// explain returns the reason for a known, intended difference.
func explain(c call, theirs, ours reply) string {
	for _, e := range explanations {
		if e.is(c, theirs, ours) {
			return e.reason
		}
	}
	return ""
}

// explanations lists the intended differences.
var explanations = []struct {
	reason string
	is     func(c call, theirs, ours reply) bool
}{
	{"the original keeps the consumer that an empty or refused request made; ours forgets it", func(_ call, theirs,
		ours reply) bool {
		return theirs.status == 409 && strings.Contains(theirs.body,
			"consumer generation conflict - expected 0 but got") ||
			ours.status == 409 && strings.Contains(ours.body, "consumer generation conflict - expected null but got 0")
	}},
	{"unless group_policy is none, the original adds amounts of a class asked for in several groups up, from " +
		"candidate to candidate", func(c call, theirs, ours reply) bool {
		return theirs.status == 200 && ours.status == 200 && strings.HasPrefix(c.path, "/allocation_candidates") &&
			!strings.Contains(c.path, "group_policy=none") && classTwice(c)
	}},
	{"the original loses trees where a sharing provider satisfies the group without suffix alone", func(c call, theirs,
		ours reply) bool {
		return theirs.status == 200 && ours.status == 200 && strings.HasPrefix(c.path, "/allocation_candidates") &&
			loneLenders(theirs.body, ours.body)
	}},
	{"the original fails with 500, ours answers", func(_ call, theirs, ours reply) bool {
		return theirs.status == 500 && ours.status < 500
	}},
	{"the original quotes its database", func(_ call, theirs, ours reply) bool {
		return theirs.status == ours.status && strings.Contains(theirs.body, "IntegrityError")
	}},
}

// loneLenders reports whether ours has all candidates of theirs, and in each additional one only sharing providers
// serve the group without suffix.
func loneLenders(theirs, ours string) bool {
	type candidates struct {
		Requests []struct {
			Allocations any                 `json:"allocations"`
			Mappings    map[string][]string `json:"mappings"`
		} `json:"allocation_requests"`
		Summaries map[string]struct{ Traits []string } `json:"provider_summaries"`
	}
	var a, b candidates
	if json.Unmarshal([]byte(theirs), &a) != nil || json.Unmarshal([]byte(ours), &b) != nil {
		return false
	}
	known := map[string]bool{}
	for _, r := range a.Requests {
		known[text(normalize("", map[string]any{"allocations": r.Allocations, "mappings": anyMap(r.Mappings)}))] = true
	}
	found := 0
	for _, r := range b.Requests {
		if known[text(normalize("", map[string]any{"allocations": r.Allocations, "mappings": anyMap(r.Mappings)}))] {
			found++
			continue
		}
		for _, p := range r.Mappings[""] {
			if !slices.Contains(b.Summaries[p].Traits, "MISC_SHARES_VIA_AGGREGATE") {
				return false
			}
		}
	}
	return found == len(a.Requests) && found < len(b.Requests)
}

func anyMap(m map[string][]string) map[string]any {
	out := map[string]any{}
	for k, list := range m {
		var values []any
		for _, v := range list {
			values = append(values, v)
		}
		out[k] = values
	}
	return out
}

// classTwice reports whether a candidate request asks for a class in several groups.
func classTwice(c call) bool {
	u, err := url.Parse(c.path)
	if err != nil {
		return false
	}
	seen := map[string]bool{}
	for key, values := range u.Query() {
		if !strings.HasPrefix(key, "resources") {
			continue
		}
		own := map[string]bool{}
		for item := range strings.SplitSeq(values[len(values)-1], ",") {
			class, _, _ := strings.Cut(item, ":")
			own[class] = true
		}
		for class := range own {
			if seen[class] {
				return true
			}
			seen[class] = true
		}
	}
	return false
}

var limitParam = regexp.MustCompile(`[?&]limit=[0-9]+`)

// checkLimit requests candidates from our server with a limit: it must return that many, and no others.
func (d *duel) checkLimit(t *testing.T, c call, all reply) {
	t.Helper()
	requests := func(body string) map[string]bool {
		var v struct {
			Requests []any `json:"allocation_requests"`
		}
		if err := json.Unmarshal([]byte(body), &v); err != nil {
			t.Fatalf("%v: %v", c, err)
		}
		set := map[string]bool{}
		for _, r := range v.Requests {
			set[text(normalize("", r))] = true
		}
		return set
	}
	if c.version < "placement 1.16" && c.version != "placement latest" || limitParam.MatchString(c.path) {
		return
	}
	limited := c
	limited.path += "&limit=2"
	ours := d.send(t, d.ours, limited)
	if ours.status != http.StatusOK {
		return // the version has no limit parameter
	}
	whole, some := requests(all.body), requests(ours.body)
	if len(some) != min(2, len(whole)) {
		t.Errorf("%v: %d candidates of %d", limited, len(some), len(whole))
	}
	for r := range some {
		if !whole[r] {
			t.Errorf("%v: %s is not a candidate without a limit", limited, r)
		}
	}
}

// sweep empties both servers, each based on its own answers.
func (d *duel) sweep(t *testing.T) {
	t.Helper()
	for _, base := range []string{d.theirs, d.ours} {
		d.empty(t, base)
	}
}

func (d *duel) empty(t *testing.T, base string) {
	t.Helper()
	get := func(path string, v any) {
		r := d.send(t, base, latest("GET", path, ""))
		if err := json.Unmarshal([]byte(r.body), v); err != nil {
			t.Fatalf("%s%s: %v: %s", base, path, err, r.body)
		}
	}
	del := func(path string) bool {
		return d.send(t, base, latest("DELETE", path, "")).status == http.StatusNoContent
	}
	var list struct {
		Providers []struct {
			UUID string `json:"uuid"`
		} `json:"resource_providers"`
	}
	get("/resource_providers", &list)
	for _, p := range list.Providers {
		var has struct{ Allocations map[string]any }
		get("/resource_providers/"+p.UUID+"/allocations", &has)
		for consumer := range has.Allocations {
			del("/allocations/" + consumer)
		}
	}
	for rounds := 0; len(list.Providers) > 0; rounds++ { // children before parents
		if rounds > 20 {
			t.Fatalf("%s: providers cannot be deleted", base)
		}
		for _, p := range list.Providers {
			del("/resource_providers/" + p.UUID)
		}
		get("/resource_providers", &list)
	}
	var traits struct{ Traits []string }
	get("/traits?name=startswith:CUSTOM_", &traits)
	for _, name := range traits.Traits {
		if !del("/traits/" + name) {
			t.Errorf("%s: trait %s cannot be deleted", base, name)
		}
	}
	var classes struct {
		Classes []struct{ Name string } `json:"resource_classes"`
	}
	get("/resource_classes", &classes)
	for _, c := range classes.Classes {
		if strings.HasPrefix(c.Name, "CUSTOM_") && !del("/resource_classes/"+c.Name) {
			t.Errorf("%s: resource class %s cannot be deleted", base, c.Name)
		}
	}
}
