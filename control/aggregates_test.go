package control_test

import (
	"net/http"
	"testing"

	"croft"
	"croft/control/api"
	"croft/control/controltest"
)

func TestTenantsChooseByPublicAggregatesAlone(t *testing.T) {
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

	// One that is not public does not exist, and neither do locations.
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

	// A public one is chosen by, and shows no hosts.
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
	got.hides(t, hidden...)
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
