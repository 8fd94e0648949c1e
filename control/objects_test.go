package control_test

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"croft/control/api"
	"croft/control/controltest"
	"croft/tenant/objects"
)

// notes is a body of changeObject.
func notes(set map[string]any, tags ...string) map[string]any {
	return map[string]any{"set": set, "add_tags": append([]string{}, tags...)}
}

func TestAThingIsNotedAbout(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	web := string(a.create(t, "anna", "web"))
	var o objects.Object
	empty := a.ask(t, "anna", http.MethodGet, "/v1/instances/web/object", nil)
	empty.into(t, &o)
	if !o.Empty() || empty.generation() != `"0"` || o.ID != web || o.Project != "anna" {
		t.Errorf("nothing is noted, got %s", empty.body)
	}
	made := a.askWith(t, "anna", http.MethodPatch, "/v1/instances/web/object",
		notes(map[string]any{"owner": "jo", "cores": 4, "spare": true, "load": 0.5}, "keep", "a/b"), "If-Match", `"0"`)
	made.want(t, http.StatusOK, "")
	for key, want := range map[string]string{"owner": `"jo"`, "cores": `4`, "spare": `true`, "load": `0.5`} {
		got := a.ask(t, "anna", http.MethodGet, "/v1/instances/"+web+"/properties/"+key, nil)
		if string(got.body) != `{"value":`+want+"}\n" || got.generation() != made.generation() {
			t.Errorf("%s is %s, %s", key, got.body, got.generation())
		}
	}
	for _, request := range []struct {
		method, path string
		body         any
	}{
		{http.MethodPut, "properties/owner", map[string]any{"value": "ann"}},
		{http.MethodDelete, "properties/cores", nil},
		{http.MethodPut, "tags/two%20words", nil},
		{http.MethodDelete, "tags/a%2Fb", nil},
	} {
		got := a.ask(t, "anna", request.method, "/v1/instances/web/"+request.path, request.body)
		got.want(t, http.StatusOK, "")
		got.into(t, &o)
		if got.generation() != fmt.Sprintf("%q", fmt.Sprint(o.Generation)) || got.generation() == made.generation() {
			t.Errorf("the generation is %s, of %+v", got.generation(), o)
		}
		// A change based on an older generation is refused.
		a.askWith(t, "anna", request.method, "/v1/instances/web/"+request.path, request.body, "If-Match",
			made.generation()).want(t, http.StatusPreconditionFailed, api.GenerationMismatch)
	}
	o = objects.Object{}
	a.ask(t, "reader", http.MethodGet, "/v1/instances/web/object", nil).into(t, &o)
	if len(o.Properties) != 3 || o.Properties["owner"] != objects.Text("ann") ||
		strings.Join(o.Tags, ",") != "keep,two words" {
		t.Errorf("noted is %+v", o)
	}
	change := func(token, method, path string, body any) answer {
		return a.ask(t, token, method, "/v1/"+path, body)
	}
	a.askWith(t, "anna", http.MethodPut, "/v1/instances/web/tags/x", nil, "If-Match", "new").
		want(t, http.StatusBadRequest, api.BadRequest)
	change("anna", http.MethodPatch, "instances/web/object", map[string]any{}).
		want(t, http.StatusBadRequest, api.BadRequest)
	change("anna", http.MethodPut, "instances/web/properties/a%2Fb", map[string]any{"value": 1}).
		want(t, http.StatusBadRequest, api.BadRequest)
	change("anna", http.MethodPut, "instances/web/properties/a", map[string]any{"value": nil}).
		want(t, http.StatusBadRequest, api.SchemaViolation)
	change("anna", http.MethodDelete, "instances/web/properties/cores", nil).
		want(t, http.StatusNotFound, api.NotFound)
	change("anna", http.MethodGet, "instances/web/properties/cores", nil).want(t, http.StatusNotFound, api.NotFound)
	change("anna", http.MethodDelete, "instances/web/tags/none", nil).want(t, http.StatusNotFound, api.NotFound)
	change("anna", http.MethodGet, "pets/web/object", nil).want(t, http.StatusNotFound, api.NotFound)
	change("anna", http.MethodGet, "groups/none/object", nil).want(t, http.StatusNotFound, api.NotFound)
	change("reader", http.MethodPut, "instances/web/tags/x", nil).want(t, http.StatusForbidden, api.ForbiddenVerb)
	refused := change("reader", http.MethodPut, "instances/web/properties/owner", map[string]any{"value": "rita"})
	refused.want(t, http.StatusForbidden, api.PropertyForbidden)
}

func TestNotesOfOthersAreNotThere(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	web := string(a.create(t, "anna", "web"))
	a.ask(t, "anna", http.MethodPatch, "/v1/instances/web/object", notes(map[string]any{"owner": "jo"}, "keep")).
		want(t, http.StatusOK, "")
	a.ask(t, "anna", http.MethodPatch, "/v1/images/debian-12/object", notes(map[string]any{"owner": "jo"})).
		want(t, http.StatusOK, "")
	a.ask(t, "operator", http.MethodPatch, "/v1/hosts/host1/object", notes(map[string]any{"rack": "r7"}, "noisy")).
		want(t, http.StatusOK, "")

	value := map[string]any{"value": 1}
	for _, thing := range []string{"instances/" + web, "instances/web", "instances/" + web + "%3Fproject=anna",
		"hosts/host1", "hosts/none"} {
		for _, request := range []struct {
			method, path string
			body         any
		}{
			{http.MethodGet, "object", nil}, {http.MethodGet, "properties/owner", nil},
			{http.MethodPatch, "object", notes(map[string]any{"a": 1})}, {http.MethodPut, "properties/a", value},
			{http.MethodDelete, "properties/owner", nil}, {http.MethodPut, "tags/a", nil},
			{http.MethodDelete, "tags/keep", nil},
		} {
			got := a.ask(t, "berta", request.method, "/v1/"+thing+"/"+request.path, request.body)
			got.want(t, http.StatusNotFound, api.NotFound)
			got.hides(t, "r7", "noisy", "jo")
		}
	}
	for path, want := range map[string]int{
		"kind=instance": 0, "kind=image": 0, "kind=group": 0, "kind=instance&filter=owner": 0,
	} {
		var list api.ObjectList
		a.ask(t, "berta", http.MethodGet, "/v1/objects?"+path, nil).into(t, &list)
		if len(list.Objects) != want || list.Next != "" {
			t.Errorf("berta lists %s: %+v", path, list)
		}
	}
	for _, path := range []string{"/v1/objects?kind=host", "/v1/objects?kind=instance&project=anna",
		"/v1/definitions/host/breaches", "/v1/definitions/instance/breaches?project=anna"} {
		a.ask(t, "berta", http.MethodGet, path, nil).want(t, http.StatusNotFound, api.NotFound)
	}
	var list api.ObjectList
	a.ask(t, "operator", http.MethodGet, "/v1/objects?kind=host&filter=tag:noisy", nil).into(t, &list)
	if len(list.Objects) != 1 || list.Objects[0].Properties["rack"] != objects.Text("r7") {
		t.Errorf("an operator lists %+v", list)
	}
	// Each project has its own properties of an image in the catalog. Names outside the catalog are refused.
	var o objects.Object
	a.ask(t, "berta", http.MethodGet, "/v1/images/debian-12/object", nil).into(t, &o)
	if !o.Empty() || o.Generation != 0 {
		t.Errorf("berta reads %+v", o)
	}
	a.ask(t, "berta", http.MethodPut, "/v1/images/any/properties/a", value).want(t, http.StatusNotFound, api.NotFound)
	a.ask(t, "berta", http.MethodPut, "/v1/images/any/tags/a", nil).want(t, http.StatusNotFound, api.NotFound)
}

// define sets the definition of instances.
func (a asker) define(t *testing.T, definition map[string]any) {
	t.Helper()
	a.askWith(t, "operator", http.MethodPut, "/v1/definitions/instance", definition, "If-Match", "0").
		want(t, http.StatusOK, "")
}

// TestWhatMayNotBeReadLeavesNoTrace: hidden properties affect no answers, counts, filters, pages, generations or
// errors.
func TestWhatMayNotBeReadLeavesNoTrace(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	a.define(t, map[string]any{"properties": map[string]any{
		"billing": map[string]any{"permissions": []any{map[string]any{"role": "partition-admin", "value": "rw"}}}}})
	for _, name := range []string{"one", "two"} {
		a.create(t, "anna", name)
		a.ask(t, "operator", http.MethodPut, "/v1/instances/"+name+"/properties/billing?project=anna",
			map[string]any{"value": "secret"}).want(t, http.StatusOK, "")
	}
	a.ask(t, "anna", http.MethodPut, "/v1/instances/two/properties/owner", map[string]any{"value": "jo"}).
		want(t, http.StatusOK, "")
	for _, path := range []string{"instances/one/object", "instances/two/object", "instances/one/properties/billing",
		"objects?kind=instance", "objects?kind=instance&limit=1", "objects?kind=instance&filter=billing",
		"objects?kind=instance&filter=billing=secret&filter=owner", "instances?filter=billing", "instances",
		"definitions/instance/breaches"} {
		a.ask(t, "anna", http.MethodGet, "/v1/"+path, nil).hides(t, "secret", `"billing"`)
	}
	count := func(token, path string) int {
		var list api.ObjectList
		a.ask(t, token, http.MethodGet, "/v1/objects?kind=instance&"+path, nil).into(t, &list)
		if list.Next != "" {
			t.Errorf("%s: there is more than what is shown", path)
		}
		return len(list.Objects)
	}
	for path, want := range map[string][2]int{"": {1, 2}, "limit=1": {1, -1}, "filter=billing": {0, 2},
		"filter=billing%3Dsec*": {0, 2}, "filter=owner": {1, 1}} {
		if got := count("anna", path); got != want[0] {
			t.Errorf("%q: anna counts %d, want %d", path, got, want[0])
		}
		if want[1] < 0 {
			continue
		}
		if got := count("operator", path); got != want[1] {
			t.Errorf("%q: an operator counts %d, want %d", path, got, want[1])
		}
	}
	if got := a.ask(t, "anna", http.MethodGet, "/v1/instances/one/object", nil).generation(); got != `"0"` {
		t.Errorf("nothing that anna may read is noted about one, at generation %s", got)
	}
	// Writing a property without permission is refused, whether or not it exists.
	for _, key := range []string{"/v1/instances/one", "/v1/instances/two"} {
		got := a.ask(t, "anna", http.MethodDelete, key+"/properties/billing", nil)
		got.want(t, http.StatusForbidden, api.PropertyForbidden)
		got.hides(t, "secret")
	}
	refused := a.ask(t, "anna", http.MethodPatch, "/v1/instances/two/object",
		notes(map[string]any{"billing": "mine", "note": "x"}))
	refused.want(t, http.StatusForbidden, api.PropertyForbidden)
	refused.hides(t, "secret")
	a.ask(t, "anna", http.MethodGet, "/v1/instances/two/properties/note", nil).
		want(t, http.StatusNotFound, api.NotFound)
}

func TestDefinitionsGovern(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	a.create(t, "anna", "web")
	a.ask(t, "anna", http.MethodPut, "/v1/instances/web/properties/tier", map[string]any{"value": "tin"}).
		want(t, http.StatusOK, "")
	const at = "/v1/definitions/instance"
	a.ask(t, "anna", http.MethodGet, at, nil).want(t, http.StatusNotFound, api.NotFound)
	definition := map[string]any{"unknown": "refuse", "properties": map[string]any{
		"tier":  map[string]any{"enum": []any{"gold", 1}},
		"cores": map[string]any{"type": []any{"integer"}, "maximum": 8},
		"owner": map[string]any{"permissions": []any{map[string]any{"project": "berta", "value": "rw"}}},
	}, "permissions": []any{map[string]any{"project": "berta", "value": ""},
		map[string]any{"role": "member", "value": "rw"}}}
	put := func(token, match string, body any) answer {
		return a.askWith(t, token, http.MethodPut, at, body, "If-Match", match)
	}
	put("operator", "", definition).want(t, http.StatusPreconditionRequired, api.GenerationRequired)
	put("operator", "7", definition).want(t, http.StatusPreconditionFailed, api.GenerationMismatch)
	put("anna", "0", definition).want(t, http.StatusForbidden, api.ForbiddenVerb)
	put("operator", "0", map[string]any{"unknwon": "refuse"}).want(t, http.StatusBadRequest, api.SchemaViolation)
	put("operator", "0", map[string]any{"properties": map[string]any{"a": map[string]any{"pattern": "("}}}).
		want(t, http.StatusBadRequest, api.BadRequest)
	set := put("operator", "0", definition)
	set.want(t, http.StatusOK, "")

	// All callers read it, without the names of projects that they do not see.
	for _, path := range []string{at, at + "?effective=true", at + "?level=partition"} {
		got := a.ask(t, "anna", http.MethodGet, path, nil)
		got.want(t, http.StatusOK, "")
		got.hides(t, "berta")
		var d objects.Definition
		got.into(t, &d)
		if own := d.Properties["owner"].Permissions; len(own) != 1 || own[0] != (objects.Permission{}) {
			t.Errorf("the permissions of owner are %+v", own)
		}
		if got.generation() != set.generation() {
			t.Errorf("the generation is %s, not %s", got.generation(), set.generation())
		}
	}
	a.ask(t, "anna", http.MethodGet, at+"?effective=true&level=global", nil).
		want(t, http.StatusBadRequest, api.BadQuery)
	a.ask(t, "anna", http.MethodGet, "/v1/definitions/pet", nil).want(t, http.StatusBadRequest, api.BadRequest)

	var list api.BreachList
	a.ask(t, "anna", http.MethodGet, at+"/breaches", nil).into(t, &list)
	if len(list.Breaches) != 1 || list.Breaches[0].Violations[0].Key != "tier" {
		t.Errorf("the breaches are %+v", list)
	}
	if a.ask(t, "berta", http.MethodGet, at+"/breaches", nil).into(t, &list); len(list.Breaches) != 0 {
		t.Errorf("berta's breaches are %+v", list)
	}

	// The answer points to each wrong field.
	refused := a.ask(t, "anna", http.MethodPatch, "/v1/instances/web/object",
		map[string]any{"set": map[string]any{"cores": 9, "ties": "gold"}})
	refused.want(t, http.StatusBadRequest, api.SchemaViolation)
	var got []string
	for _, f := range refused.problem.Errors {
		got = append(got, f.Pointer+" "+f.Detail)
	}
	want := []string{`/set/cores must be 8 or less`, `/set/tier must be one of "gold", "1"`,
		`/set/ties is not defined (did you mean "tier"?)`}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the fields are %q", got)
	}
	refused = a.ask(t, "anna", http.MethodPut, "/v1/instances/web/properties/cores", map[string]any{"value": "x"})
	refused.want(t, http.StatusBadRequest, api.SchemaViolation)
	if e := refused.problem.Errors; len(e) != 2 || e[0].Pointer != "/value" || e[1].Pointer != "" ||
		!strings.Contains(e[1].Detail, "the property tier") {
		t.Errorf("the fields are %+v", e)
	}
	a.ask(t, "anna", http.MethodDelete, at, nil).want(t, http.StatusForbidden, api.ForbiddenVerb)
	a.ask(t, "operator", http.MethodDelete, at, nil).want(t, http.StatusNoContent, "")
	a.ask(t, "operator", http.MethodDelete, at, nil).want(t, http.StatusNotFound, api.NotFound)
}

func TestListsChooseByProperties(t *testing.T) {
	t.Parallel()
	at, _ := controltest.Start(t)
	a := newAsker(t, at)
	for name, set := range map[string]map[string]any{
		"a": {"owner": "jo", "cores": 4}, "b": {"owner": "ann"}, "c": {"note": "two words"},
	} {
		a.ask(t, "anna", http.MethodPost, "/v1/instances", wanted("name", name)).want(t, http.StatusAccepted, "")
		a.ask(t, "anna", http.MethodPatch, "/v1/instances/"+name+"/object", notes(set, "tag-"+name)).
			want(t, http.StatusOK, "")
	}
	for _, c := range []struct {
		filters []string
		want    string
	}{
		{nil, "abc"}, {[]string{"owner"}, "ab"}, {[]string{"owner=jo", "note=two*"}, "ac"},
		{[]string{"owner=* tag:tag-b"}, "b"}, {[]string{"cores=4.0"}, "a"}, {[]string{`note="two words"`}, "c"},
		{[]string{"owner=jo owner=ann"}, ""}, {[]string{"billing"}, ""},
	} {
		query := url.Values{"filter": c.filters}.Encode()
		var page api.InstanceList
		names := ""
		a.ask(t, "anna", http.MethodGet, "/v1/instances?"+query, nil).into(t, &page)
		for _, one := range page.Instances {
			names += one.Name
		}
		if names != c.want {
			t.Errorf("%q chooses %s, want %s", c.filters, names, c.want)
		}
		var ids []string
		for after := ""; ; {
			var list api.ObjectList
			page := "/v1/objects?kind=instance&limit=1&after=" + url.QueryEscape(after) + "&" + query
			a.ask(t, "anna", http.MethodGet, page, nil).into(t, &list)
			for _, o := range list.Objects {
				ids = append(ids, o.ID)
			}
			if after = list.Next; after == "" {
				break
			}
		}
		if len(ids) != len(c.want) {
			t.Errorf("%q chooses the objects %q, want %d", c.filters, ids, len(c.want))
		}
		var none api.InstanceList
		if a.ask(t, "berta", http.MethodGet, "/v1/instances?"+query, nil).into(t, &none); len(none.Instances) != 0 {
			t.Errorf("%q: berta sees %+v", c.filters, none)
		}
	}
	for _, query := range []string{"filter=", "filter=a%2Fb", "filter=" + strings.Repeat("filter=a&", 17),
		"filter=" + strings.Repeat("x", 5000), "filter=" + strings.Repeat("a%20", 40)} {
		a.ask(t, "anna", http.MethodGet, "/v1/instances?"+query, nil).want(t, http.StatusBadRequest, api.BadQuery)
	}
	a.ask(t, "anna", http.MethodGet, "/v1/objects", nil).want(t, http.StatusBadRequest, api.BadQuery)
	a.ask(t, "anna", http.MethodGet, "/v1/objects?kind=any", nil).want(t, http.StatusBadRequest, api.BadQuery)
}
