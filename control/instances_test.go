package control_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"croft/control/api"
	"croft/control/controltest"
)

// TestAnInstanceIsShownAsItWasAskedFor: with its labels and, to operators who ask, with the internal records.
func TestAnInstanceIsShownAsItWasAskedFor(t *testing.T) {
	t.Parallel()
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
	if web.Generation != 1 {
		t.Errorf("its generation is %d", web.Generation)
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

// TestAnInstanceIsChangedInPart: labels by name and the expiry, based on a version of both.
func TestAnInstanceIsChangedInPart(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	a.create(t, "anna", "web")
	patch := func(match string, body map[string]any) answer {
		t.Helper()
		return a.askWith(t, "anna", http.MethodPatch, "/v1/instances/web", body, "If-Match", match)
	}
	labels := func(pairs ...any) map[string]any {
		all := map[string]any{}
		for pair := range slices.Chunk(pairs, 2) {
			all[pair[0].(string)] = pair[1]
		}
		return map[string]any{"labels": all}
	}
	patch("", labels("owner", "jo", "tier", 3)).want(t, http.StatusOK, "")
	version := func() string { return a.ask(t, "anna", http.MethodGet, "/v1/instances/web", nil).generation() }
	old := version()
	got := patch(`"x", W/"1", `+old, labels("tier", nil, "color", "red", "absent", nil))
	got.want(t, http.StatusOK, "")
	if got.generation() != version() {
		t.Errorf("the change answers with ETag %s, and a read with %s", got.generation(), version())
	}
	stales := map[string]string{"before a label changed": old, "weak": "W/" + version(), "another": `"7"`}
	for name, stale := range stales {
		t.Run("a tag that is "+name+" changes nothing", func(t *testing.T) {
			for _, change := range []map[string]any{labels("owner", "mo"), {"expires": 60}} {
				patch(stale, change).want(t, http.StatusPreconditionFailed, api.GenerationMismatch)
			}
		})
	}
	var web api.Instance
	if got.into(t, &web); len(web.Labels) != 2 || web.Labels["owner"].String() != "jo" ||
		web.Labels["color"].String() != "red" || !web.Expires.IsZero() {
		t.Errorf("it is %+v until %s", web.Labels, web.Expires)
	}
	old = version()
	if patch("*", map[string]any{"expires": 3600}).into(t, &web); web.Expires.IsZero() || len(web.Labels) != 2 {
		t.Errorf("it has %+v until %s", web.Labels, web.Expires)
	}
	web.Expires = time.Time{}
	if patch("", map[string]any{"expires": 0}).into(t, &web); !web.Expires.IsZero() {
		t.Errorf("it still expires at %s", web.Expires)
	}
	patch(old, labels("owner", "mo")).want(t, http.StatusPreconditionFailed, api.GenerationMismatch)
	patch("new", labels("owner", "mo")).want(t, http.StatusBadRequest, api.BadRequest)
	body := labels("owner", "mo")
	body["expires"] = 7200
	now := version()
	patch(now, body).want(t, http.StatusOK, "")
	patch(now, body).want(t, http.StatusPreconditionFailed, api.GenerationMismatch)
	patch("", map[string]any{}).want(t, http.StatusBadRequest, api.SchemaViolation)
	patch("", labels("", "x")).want(t, http.StatusBadRequest, api.BadRequest)
	a.askWith(t, "berta", http.MethodPatch, "/v1/instances/web?project=anna", labels("owner", "b")).
		want(t, http.StatusNotFound, api.NotFound)
	a.ask(t, "anna", http.MethodPost, "/v1/claims", wanted("name", "later", "hold", 600)).
		want(t, http.StatusCreated, "")
	a.ask(t, "anna", http.MethodPatch, "/v1/instances/later", map[string]any{"expires": 0}).
		want(t, http.StatusBadRequest, api.BadRequest)
}

// TestAProtectedInstanceStays: nobody removes it or replaces its disk, and it has no expiry, until the protection ends.
func TestAProtectedInstanceStays(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	a.ask(t, "anna", http.MethodPost, "/v1/instances", wanted("name", "web", "protected", true)).
		want(t, http.StatusAccepted, "")
	patch := func(match string, body map[string]any) answer {
		t.Helper()
		return a.askWith(t, "anna", http.MethodPatch, "/v1/instances/web", body, "If-Match", match)
	}
	refused := func(method, path string) {
		t.Helper()
		for _, who := range []string{"anna", "operator"} {
			got := a.ask(t, who, method, "/v1/instances/web"+path+"project=anna", nil)
			got.want(t, http.StatusConflict, api.BadState)
			if !strings.Contains(got.problem.Detail, "`schedule protect --off web`") {
				t.Errorf("%s %s says %q", method, path, got.problem.Detail)
			}
		}
	}
	refused(http.MethodDelete, "?")
	refused(http.MethodDelete, "?snapshots=true&")
	refused(http.MethodPost, "/rebuild?")
	a.ask(t, "operator", http.MethodDelete, "/v1/instances/web?force=true&project=anna", nil).
		want(t, http.StatusConflict, api.BadState)
	patch("", map[string]any{"expires": 60}).want(t, http.StatusConflict, api.BadState)
	patch("", map[string]any{"expires": 60, "protected": true}).want(t, http.StatusConflict, api.BadState)
	a.ask(t, "berta", http.MethodPatch, "/v1/instances/web?project=anna", map[string]any{"protected": false}).
		want(t, http.StatusNotFound, api.NotFound)
	now := a.ask(t, "anna", http.MethodGet, "/v1/instances/web", nil).generation()
	var web api.Instance
	patch(now, map[string]any{"expires": 60, "protected": false}).into(t, &web)
	if web.Protected || web.Expires.IsZero() {
		t.Errorf("it is protected: %t, and expires at %s", web.Protected, web.Expires)
	}
	patch(now, map[string]any{"protected": true}).want(t, http.StatusPreconditionFailed, api.GenerationMismatch)
	patch("", map[string]any{"protected": true}).want(t, http.StatusConflict, api.BadState)
	web.Expires = time.Time{}
	patch("", map[string]any{"expires": 0, "protected": true}).into(t, &web)
	if !web.Protected || !web.Expires.IsZero() {
		t.Errorf("it is protected: %t, and expires at %s", web.Protected, web.Expires)
	}
	patch("", map[string]any{"protected": false}).want(t, http.StatusOK, "")
	a.ask(t, "anna", http.MethodDelete, "/v1/instances/web", nil).want(t, http.StatusAccepted, "")
	a.ask(t, "anna", http.MethodPost, "/v1/claims", wanted("name", "held", "hold", 60, "protected", true)).
		want(t, http.StatusBadRequest, api.BadRequest)
	a.ask(t, "anna", http.MethodPost, "/v1/claims", wanted("name", "held", "hold", 60)).want(t, http.StatusCreated, "")
	a.ask(t, "anna", http.MethodPatch, "/v1/instances/held", map[string]any{"protected": true}).
		want(t, http.StatusConflict, api.BadState)
}
