package control_test

import (
	"net/http"
	"testing"

	"croft"
	"croft/control/api"
	"croft/control/controltest"
)

// TestTenantsSeeDistancesOfPublicAggregatesAlone: of other distances, tenants see only the types.
func TestTenantsSeeDistancesOfPublicAggregatesAlone(t *testing.T) {
	t.Parallel()
	url, c := controltest.Start(t)
	a := newAsker(t, url)
	hidden := []string{"host1", string(c.Hosts["host1"].ID), "secret"}
	for _, one := range []api.NewAggregate{{Name: "ssd", Public: true, Hosts: []string{"host1"}},
		{Name: "gpu", Public: true}, {Name: "secret"}} {
		a.ask(t, "operator", http.MethodPost, "/v1/aggregates", one).want(t, http.StatusCreated, "")
	}
	set := func(as, to string, n int) answer {
		return a.ask(t, as, http.MethodPut, "/v1/distances", api.NewDistance{Type: "network", A: "ssd",
			B: to, Distance: n})
	}
	set("operator", "gpu", 7).want(t, http.StatusOK, "")
	set("operator", "secret", 9).want(t, http.StatusOK, "")
	set("operator", "secret", 1_000_001).want(t, http.StatusBadRequest, api.SchemaViolation)
	set("operator", "nothing", 1).want(t, http.StatusNotFound, api.NotFound)
	set("operator", "host1", 1).want(t, http.StatusBadRequest, api.BadRequest)
	set("anna", "gpu", 8).want(t, http.StatusForbidden, api.ForbiddenVerb)
	a.ask(t, "anna", http.MethodDelete, "/v1/distances?type=network&a=ssd&b=gpu", nil).
		want(t, http.StatusForbidden, api.ForbiddenVerb)

	var list api.DistanceList
	got := a.ask(t, "anna", http.MethodGet, "/v1/distances", nil)
	got.into(t, &list)
	if got.hides(t, hidden...); len(list.Types) != 1 || list.Types[0].Generation != 0 ||
		len(list.Types[0].Distances) != 1 || list.Types[0].Distances[0].Distance != 7 {
		t.Errorf("anna sees %+v", list)
	}
	var found croft.Between
	a.ask(t, "anna", http.MethodGet, "/v1/distances/between?type=network&a=gpu&b=ssd", nil).into(t, &found)
	if found.Distance != 7 || !found.Stated {
		t.Errorf("got %+v", found)
	}
	for _, query := range []string{"a=gpu&b=host1", "a=secret&b=gpu&type=network", "a=ssd&b=gpu", "a=nothing&b=ssd"} {
		a.ask(t, "anna", http.MethodGet, "/v1/distances/between?"+query, nil).want(t, http.StatusNotFound, api.NotFound)
	}
	for _, body := range []map[string]any{wanted("near", []string{"secret"}), wanted("far", []string{"secret:rack"}),
		wanted("near", []string{"host1"}), wanted("query", "VCPU:1,MEMORY_MB:256,DISK_GB:1&near=secret"),
		wanted("near", []string{"gpu"}, "distance", "netwrk")} {
		a.ask(t, "anna", http.MethodPost, "/v1/instances", body).want(t, http.StatusNotFound, api.NotFound)
	}
	for _, body := range []map[string]any{wanted("distance", "network"), wanted("far", []string{"gpu"}),
		wanted("near", []string{"gpu:rack"}, "distance", "network")} {
		a.ask(t, "anna", http.MethodPost, "/v1/instances", body).want(t, http.StatusBadRequest, api.BadRequest)
	}
	got = a.ask(t, "anna", http.MethodPost, "/v1/instances?wait=running", wanted("name", "web", "near",
		[]string{"gpu:7"}, "far", []string{"gpu:7"}, "distance", "network"))
	got.want(t, http.StatusOK, "")
	got.hides(t, append(hidden, "gpu")...)
	got = a.ask(t, "anna", http.MethodPost, "/v1/instances", wanted("near", []string{"gpu:6"}, "distance", "network"))
	got.want(t, http.StatusConflict, api.NoCapacity)
	got.hides(t, hidden...)
	got = a.ask(t, "anna", http.MethodPost, "/v1/instances", wanted("far", []string{"web:rack"}))
	got.want(t, http.StatusConflict, api.NoCapacity)
	got.hides(t, hidden...)

	a.askWith(t, "operator", http.MethodDelete, "/v1/distances?type=network&a=ssd&b=gpu", nil, "If-Match", `"1"`).
		want(t, http.StatusPreconditionFailed, api.GenerationMismatch)
	a.ask(t, "operator", http.MethodDelete, "/v1/distances?type=network&a=ssd&b=gpu", nil).
		want(t, http.StatusNoContent, "")
	a.ask(t, "operator", http.MethodDelete, "/v1/distances?type=network&a=ssd&b=gpu", nil).
		want(t, http.StatusNotFound, api.NotFound)
}
