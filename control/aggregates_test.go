package control_test

import (
	"net/http"
	"testing"

	"croft"
	"croft/control/api"
	"croft/control/controltest"
)

func TestTenantsChooseByPublicAggregatesAlone(t *testing.T) {
	t.Parallel()
	url, c := controltest.Start(t)
	a := newAsker(t, url)
	host := c.Hosts["host1"].ID
	hidden := []string{"host1", string(host)}
	for _, wrong := range []any{map[string]any{}, map[string]any{"name": ""}, map[string]any{"name": "a", "host": "x"},
		map[string]any{"name": "a", "hosts": []string{""}}} {
		a.ask(t, "operator", http.MethodPost, "/v1/aggregates", wrong).
			want(t, http.StatusBadRequest, api.SchemaViolation)
	}
	a.ask(t, "operator", http.MethodPost, "/v1/aggregates", api.NewAggregate{Name: "a/b"}).
		want(t, http.StatusBadRequest, api.BadRequest)
	a.ask(t, "operator", http.MethodPost, "/v1/aggregates", api.NewAggregate{Name: "ssd", Hosts: []string{"nobody"}}).
		want(t, http.StatusNotFound, api.NotFound)
	ssd := api.NewAggregate{Name: "ssd", Hosts: []string{"host1"}}
	a.ask(t, "operator", http.MethodPost, "/v1/aggregates", ssd).want(t, http.StatusCreated, "")
	a.ask(t, "operator", http.MethodPost, "/v1/aggregates", ssd).want(t, http.StatusConflict, api.NameTaken)
	a.ask(t, "operator", http.MethodPost, "/v1/aggregates", api.NewAggregate{Name: "empty", Public: true}).
		want(t, http.StatusCreated, "")
	a.ask(t, "anna", http.MethodPost, "/v1/aggregates", api.NewAggregate{Name: "mine"}).
		want(t, http.StatusForbidden, api.ForbiddenVerb)

	// An aggregate that is not public is NotFound for tenants, and so are locations.
	var list api.AggregateList
	got := a.ask(t, "anna", http.MethodGet, "/v1/aggregates", nil)
	got.into(t, &list)
	if got.hides(t, hidden...); len(list.Aggregates) != 1 || list.Aggregates[0].Name != "empty" {
		t.Errorf("anna sees %+v", list.Aggregates)
	}
	a.ask(t, "anna", http.MethodGet, "/v1/aggregates/ssd", nil).want(t, http.StatusNotFound, api.NotFound)
	for _, name := range []string{"ssd", "!ssd", "in:empty,ssd", "host=" + string(host), "s1"} {
		for _, body := range []map[string]any{wanted("in", []string{name}),
			wanted("query", "VCPU:1,MEMORY_MB:256,DISK_GB:1&in="+name)} {
			for _, path := range []string{"/v1/instances", "/v1/candidates"} {
				a.ask(t, "anna", http.MethodPost, path, body).want(t, http.StatusNotFound, api.NotFound)
			}
			body["hold"] = 60
			a.ask(t, "anna", http.MethodPost, "/v1/claims", body).want(t, http.StatusNotFound, api.NotFound)
		}
	}
	a.ask(t, "anna", http.MethodPost, "/v1/instances", wanted("in", []string{"a,b"})).
		want(t, http.StatusBadRequest, api.BadRequest)
	a.ask(t, "operator", http.MethodPost, "/v1/candidates", wanted("in", []string{"!ssd", "nothing-like-it"})).
		want(t, http.StatusNotFound, api.NotFound)

	// Tenants can name a public aggregate in a request, but do not see its hosts.
	var now croft.Aggregate
	got = a.ask(t, "operator", http.MethodGet, "/v1/aggregates/ssd", nil)
	got.into(t, &now)
	tag := got.header.Get("ETag")
	if len(now.Hosts) != 1 || now.Hosts[0] != host || tag == "" {
		t.Errorf("the operator sees %+v, %s", now, tag)
	}
	public := map[string]any{"public": true}
	a.askWith(t, "operator", http.MethodPatch, "/v1/aggregates/ssd", public, "If-Match", `"1"`).
		want(t, http.StatusPreconditionFailed, api.GenerationMismatch)
	a.askWith(t, "operator", http.MethodPatch, "/v1/aggregates/ssd", public, "If-Match", tag).
		want(t, http.StatusOK, "")
	a.askWith(t, "operator", http.MethodDelete, "/v1/aggregates/ssd", nil, "If-Match", tag).
		want(t, http.StatusPreconditionFailed, api.GenerationMismatch)
	got = a.ask(t, "anna", http.MethodGet, "/v1/aggregates/ssd", nil)
	got.into(t, &now)
	if got.hides(t, hidden...); len(now.Hosts) != 0 || now.Generation != 0 || got.header.Get("ETag") != "" {
		t.Errorf("anna sees %+v, %s", now, got.header.Get("ETag"))
	}
	got = a.ask(t, "anna", http.MethodPost, "/v1/instances?wait=running", wanted("name", "web", "in", []string{"ssd"}))
	got.want(t, http.StatusOK, "")
	got.hides(t, append(hidden, "ssd")...)
	got = a.ask(t, "anna", http.MethodPost, "/v1/instances", wanted("in", []string{"empty"}))
	got.want(t, http.StatusConflict, api.NoCapacity)
	got.hides(t, hidden...)
	got = a.ask(t, "anna", http.MethodPost, "/v1/instances", wanted("query",
		"VCPU:1,MEMORY_MB:256,DISK_GB:1&in=!ssd"))
	got.want(t, http.StatusConflict, api.NoCapacity)
	got.hides(t, hidden...)

	a.ask(t, "operator", http.MethodPatch, "/v1/aggregates/ssd", map[string]any{"remove_hosts": []string{"host1"}}).
		want(t, http.StatusOK, "")
	a.ask(t, "anna", http.MethodPost, "/v1/candidates", wanted("in", []string{"ssd"})).want(t, http.StatusOK, "")
	a.ask(t, "operator", http.MethodDelete, "/v1/aggregates/ssd", nil).want(t, http.StatusNoContent, "")
	a.ask(t, "operator", http.MethodDelete, "/v1/aggregates/ssd", nil).want(t, http.StatusNotFound, api.NotFound)
}

// TestTenantsChooseByPropertiesThatTheyMayRead: other properties of a host count as absent.
func TestTenantsChooseByPropertiesThatTheyMayRead(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	a.ask(t, "operator", http.MethodPatch, "/v1/hosts/host1/object", map[string]any{"add_tags": []string{"new"},
		"set": map[string]any{"tier": "gold", "owner": "jo", "cost": "7"}}).want(t, http.StatusOK, "")
	a.askWith(t, "operator", http.MethodPut, "/v1/definitions/host", map[string]any{"properties": map[string]any{
		"tier":  map[string]any{"permissions": []any{map[string]any{"project": "anna", "value": "r"}}},
		"owner": map[string]any{"permissions": []any{map[string]any{"role": "project-admin", "value": "rw"}}},
	}}, "If-Match", `"0"`).want(t, http.StatusOK, "")
	for _, c := range []struct {
		name, token     string
		where, whereNot []string
		fits            bool
	}{
		{"a permission lets the project read it", "anna", []string{"tier=gold"}, nil, true},
		{"and be barred by it", "anna", nil, []string{"tier=gold"}, false},
		{"another value", "anna", []string{"tier=tin"}, nil, false},
		{"one for a role that the caller does not have", "anna", []string{"owner=jo"}, nil, false},
		{"whatever its value", "anna", []string{"owner"}, nil, false},
		{"it bars nothing either", "anna", nil, []string{"owner=jo"}, true},
		{"one without a permission", "anna", []string{"cost"}, nil, false},
		{"which bars nothing", "anna", nil, []string{"cost"}, true},
		{"one that there is not", "anna", []string{"nothing"}, nil, false},
		{"a tag", "anna", []string{"tag:new"}, nil, false},
		{"which bars nothing", "anna", nil, []string{"tag:new"}, true},
		{"both at once", "anna", []string{"tier=gold owner=jo"}, nil, false},
		{"one or the other", "anna", []string{"owner=jo", "tier=g*"}, nil, true},
		{"another project", "berta", []string{"tier=gold"}, nil, false},
		{"an operator", "operator", []string{"tier=gold owner=jo cost=7 tag:new"}, nil, true},
		{"an operator is barred", "operator", nil, []string{"tag:new"}, false},
	} {
		body := wanted()
		if c.where != nil {
			body["where"] = c.where
		}
		if c.whereNot != nil {
			body["where_not"] = c.whereNot
		}
		var why struct{ Fits []any }
		got := a.ask(t, c.token, http.MethodPost, "/v1/candidates", body)
		got.into(t, &why)
		if c.token != "operator" {
			got.hides(t, "host1")
		}
		if (len(why.Fits) == 1) != c.fits {
			t.Errorf("%s: fits %v, want %v", c.name, why.Fits, c.fits)
		}
	}
	for _, wrong := range []string{"", " ", "a$b", "tag:"} {
		got := a.ask(t, "anna", http.MethodPost, "/v1/candidates", wanted("where_not", []string{wrong}))
		if got.status != http.StatusBadRequest {
			t.Errorf("%q: %d", wrong, got.status)
		}
	}
	query := "VCPU:1,MEMORY_MB:256,DISK_GB:1&where=owner=jo&where=tier=gold&where_not=cost"
	got := a.ask(t, "anna", http.MethodPost, "/v1/instances?wait=running", wanted("name", "web", "query", query))
	got.want(t, http.StatusOK, "")
	got.hides(t, "tier=gold", "cost")
	var made api.Instance
	a.ask(t, "operator", http.MethodGet, "/v1/instances/web?project=anna", nil).into(t, &made)
	if spec := made; len(spec.Where) != 1 || spec.Where[0] != "tier=gold" || len(spec.WhereNot) != 0 {
		t.Errorf("a move would look at %q, and not %q", spec.Where, spec.WhereNot)
	}
}
