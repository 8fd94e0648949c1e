package control_test

import (
	"net/http"
	"testing"

	"croft"
	"croft/control/api"
	"croft/control/controltest"
)

func TestClaimsAreHeldForTenants(t *testing.T) {
	t.Parallel()
	url, c := controltest.Start(t)
	a := newAsker(t, url)
	hidden := []string{"host1", string(c.Hosts["host1"].ID), "PRIVATE KEY"}
	a.create(t, "anna", "busy")
	claim := wanted("id", string(croft.NewInstanceID()), "name", "web", "hold", 3600)
	delete(claim, "image")
	for _, wrong := range []map[string]any{wanted(), wanted("hold", 0), wanted("hold", 1.5), wanted("hold", 1<<40)} {
		a.ask(t, "anna", http.MethodPost, "/v1/claims", wrong).want(t, http.StatusBadRequest, api.SchemaViolation)
	}
	a.ask(t, "anna", http.MethodPost, "/v1/claims", wanted("hold", 60, "expires", 60)).
		want(t, http.StatusBadRequest, api.BadRequest)
	a.ask(t, "anna", http.MethodPost, "/v1/instances", wanted("hold", 60)).
		want(t, http.StatusBadRequest, api.SchemaViolation)
	for range 2 { // a repeated request returns the same claim
		got := a.ask(t, "anna", http.MethodPost, "/v1/claims", claim)
		got.want(t, http.StatusCreated, "")
		got.hides(t, hidden...)
	}
	a.ask(t, "anna", http.MethodPost, "/v1/instances", wanted("id", claim["id"], "name", "web")).
		want(t, http.StatusConflict, api.UUIDReused)
	var list api.InstanceList
	a.ask(t, "anna", http.MethodGet, "/v1/claims", nil).into(t, &list)
	if len(list.Instances) != 1 || list.Instances[0].Name != "web" || list.Instances[0].State != "held" {
		t.Errorf("anna holds %+v", list.Instances)
	}
	a.ask(t, "anna", http.MethodGet, "/v1/claims/web", nil).want(t, http.StatusOK, "")
	a.ask(t, "anna", http.MethodGet, "/v1/claims/busy", nil).want(t, http.StatusNotFound, api.NotFound)

	// Other projects can neither see nor end it.
	image := map[string]any{"image": wanted()["image"]}
	a.ask(t, "berta", http.MethodGet, "/v1/claims", nil).into(t, &list)
	if len(list.Instances) != 0 {
		t.Errorf("berta holds %+v", list.Instances)
	}
	for _, path := range []string{"/v1/claims/web", "/v1/claims/" + claim["id"].(string)} {
		a.ask(t, "berta", http.MethodGet, path, nil).want(t, http.StatusNotFound, api.NotFound)
		a.ask(t, "berta", http.MethodDelete, path, nil).want(t, http.StatusNotFound, api.NotFound)
		a.ask(t, "berta", http.MethodPost, path+"/use", image).want(t, http.StatusNotFound, api.NotFound)
		a.ask(t, "reader", http.MethodPost, path+"/use", image).want(t, http.StatusForbidden, api.ForbiddenVerb)
	}

	a.ask(t, "anna", http.MethodPost, "/v1/claims/web/use", map[string]any{"image": "/etc/shadow"}).
		want(t, http.StatusForbidden, api.PropertyForbidden)
	got := a.ask(t, "anna", http.MethodPost, "/v1/claims/web/use?wait=running", image)
	got.want(t, http.StatusOK, "")
	got.hides(t, hidden...)
	a.ask(t, "anna", http.MethodPost, "/v1/claims/web/use", image).want(t, http.StatusConflict, api.BadState)
	a.ask(t, "anna", http.MethodDelete, "/v1/claims/web", nil).want(t, http.StatusConflict, api.BadState)
	a.ask(t, "anna", http.MethodGet, "/v1/claims/web", nil).want(t, http.StatusNotFound, api.NotFound)

	delete(claim, "id")
	claim["name"] = "db"
	a.ask(t, "anna", http.MethodPost, "/v1/claims", claim).want(t, http.StatusCreated, "")
	got = a.ask(t, "anna", http.MethodDelete, "/v1/claims/db", nil)
	got.want(t, http.StatusOK, "")
	got.hides(t, hidden...)
	a.ask(t, "anna", http.MethodGet, "/v1/instances/db", nil).want(t, http.StatusNotFound, api.NotFound)
}
