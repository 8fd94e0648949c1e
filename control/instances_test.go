package control_test

import (
	"net/http"
	"strings"
	"testing"

	"croft/control/api"
	"croft/control/controltest"
)

// TestAnInstanceIsShownAsItWasAskedFor: with its labels and, to operators who ask, with the internal records.
func TestAnInstanceIsShownAsItWasAskedFor(t *testing.T) {
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	a.ask(t, "anna", http.MethodPost, "/v1/instances",
		wanted("name", "web", "user_data", "aHVzaC1odXNo", "tags", map[string]string{"role": "web"})).
		want(t, http.StatusAccepted, "")
	a.ask(t, "anna", http.MethodPut, "/v1/instances/web/properties/owner", map[string]any{"value": "jo"}).
		want(t, http.StatusOK, "")
	got := a.ask(t, "anna", http.MethodGet, "/v1/instances/web", nil)
	var web api.Instance
	got.into(t, &web)
	if web.Name != "web" || web.Project != "anna" || web.Image != wanted()["image"] || web.Tags["role"] != "web" ||
		web.Labels["owner"].String() != "jo" || string(web.UserData) != "hush-hush" || web.Internal != nil {
		t.Errorf("it is %+v", web)
	}
	if got.generation() != `"1"` || web.Generation != 1 {
		t.Errorf("its ETag is %s, and its generation %d", got.generation(), web.Generation)
	}
	a.ask(t, "anna", http.MethodGet, "/v1/instances", nil).hides(t, "aHVzaC1odXNo")
	a.ask(t, "anna", http.MethodGet, "/v1/instances/web?internal=true", nil).
		want(t, http.StatusForbidden, api.ForbiddenVerb)
	a.ask(t, "operator", http.MethodGet, "/v1/instances/web?internal=true&project=anna", nil).into(t, &web)
	if web.Internal == nil || web.Internal.Instance.ID != web.ID || web.Internal.Order == nil ||
		strings.Contains(web.Internal.Order.Spec.HostKey, "PRIVATE") {
		t.Errorf("internally it is %+v", web.Internal)
	}
}
