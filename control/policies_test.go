package control_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"croft"
	"croft/control/actions"
	"croft/control/api"
	"croft/control/controltest"
	"croft/internal/testing/patient"
	"croft/schedule"
)

// TestEverybodyChoosesByPoliciesThatOperatorsWrite: tenants read policies and use them by name, and learn nothing about
// hosts through them.
func TestEverybodyChoosesByPoliciesThatOperatorsWrite(t *testing.T) {
	t.Parallel()
	url, c := controltest.Start(t)
	a := newAsker(t, url)
	hidden := []string{"host1", string(c.Hosts["host1"].ID)}
	set := func(as, name, text string) answer {
		return a.ask(t, as, http.MethodPut, "/v1/policies/"+name, map[string]any{"text": text})
	}
	for _, wrong := range []any{map[string]any{}, map[string]any{"text": ""}, map[string]any{"text": "take 1", "a": 1},
		map[string]any{"text": strings.Repeat("#", 4097)}} {
		a.ask(t, "operator", http.MethodPut, "/v1/policies/any", wrong).
			want(t, http.StatusBadRequest, api.SchemaViolation)
	}
	set("operator", "A_b", "take 1").want(t, http.StatusBadRequest, api.BadRequest)
	set("operator", "any", "tke 1").want(t, http.StatusBadRequest, api.BadRequest)
	set("operator", "any", "use nowhere; take 1").want(t, http.StatusNotFound, api.NotFound)
	set("anna", "any", "take 1").want(t, http.StatusForbidden, api.ForbiddenVerb)
	got := set("operator", "any", "select 1 rack; take 1")
	got.want(t, http.StatusOK, "")
	var first croft.CrushPolicy
	if got.into(t, &first); first.Name != "any" || first.Generation == 0 {
		t.Errorf("got %+v", first)
	}
	a.askWith(t, "operator", http.MethodPut, "/v1/policies/any", map[string]any{"text": "take 1"}, "If-Match", `"1"`).
		want(t, http.StatusPreconditionFailed, api.GenerationMismatch)
	a.askWith(t, "operator", http.MethodPut, "/v1/policies/new", map[string]any{"text": "take 1"}, "If-Match", `"7"`).
		want(t, http.StatusPreconditionFailed, api.GenerationMismatch)
	var hints api.PolicyHints
	check := map[string]any{"name": "x", "text": "select 1 row; take 1"}
	a.ask(t, "operator", http.MethodPost, "/v1/policies", check).into(t, &hints)
	if len(hints.Hints) != 1 || !strings.Contains(hints.Hints[0], "no host's location names a row") {
		t.Errorf("got %q", hints.Hints)
	}
	a.ask(t, "operator", http.MethodGet, "/v1/policies/x", nil).want(t, http.StatusNotFound, api.NotFound)

	var list api.PolicyList
	a.ask(t, "anna", http.MethodGet, "/v1/policies", nil).into(t, &list)
	if len(list.Policies) != 1 || list.Policies[0] != first {
		t.Errorf("anna sees %+v", list)
	}
	a.ask(t, "anna", http.MethodGet, "/v1/policies/any", nil).want(t, http.StatusOK, "")
	for _, path := range []string{"/v1/crush", "/v1/instances/web/standing"} {
		a.ask(t, "anna", http.MethodGet, path, nil).want(t, http.StatusForbidden, api.ForbiddenVerb)
	}
	a.ask(t, "anna", http.MethodPost, "/v1/policies", check).want(t, http.StatusForbidden, api.ForbiddenVerb)
	a.ask(t, "anna", http.MethodPost, "/v1/instances", wanted("policy", "crush:none")).
		want(t, http.StatusNotFound, api.NotFound)
	a.ask(t, "anna", http.MethodPost, "/v1/instances", wanted("policy", "crush:A_b")).
		want(t, http.StatusBadRequest, api.SchemaViolation)
	got = a.ask(t, "anna", http.MethodPost, "/v1/candidates", wanted("policy", "crush:any"))
	var why schedule.Explanation
	got.into(t, &why)
	if got.hides(t, hidden...); why.Policy == nil || *why.Policy != first || len(why.Trace) != 1 ||
		why.Trace[0].Host != "host 1" {
		t.Errorf("explained as %+v", why)
	}
	got = a.ask(t, "anna", http.MethodPost, "/v1/instances?wait=running", wanted("name", "web", "policy", "crush:any"))
	got.want(t, http.StatusOK, "")
	got.hides(t, hidden...)
	var made api.Instance
	if got.into(t, &made); made.Policy != "crush:"+first.Name || made.PolicyGeneration != first.Generation {
		t.Errorf("the record has policy %s of generation %d", made.Policy, made.PolicyGeneration)
	}

	id := string(made.ID)
	var standing schedule.Standing
	a.ask(t, "operator", http.MethodGet, "/v1/instances/"+id+"/standing", nil).into(t, &standing)
	if !standing.Stands || standing.Host != "host1" || standing.Used != first {
		t.Errorf("got %+v", standing)
	}
	var m api.CrushMap
	a.ask(t, "operator", http.MethodGet, "/v1/crush", nil).into(t, &m)
	if !strings.Contains(m.Text, "rule any {") || !strings.Contains(m.Text, "device 0 host1") || len(m.Out) > 0 {
		t.Errorf("the map is %+v", m)
	}

	a.ask(t, "anna", http.MethodDelete, "/v1/policies/any", nil).want(t, http.StatusForbidden, api.ForbiddenVerb)
	a.askWith(t, "operator", http.MethodDelete, "/v1/policies/any", nil, "If-Match", `"1"`).
		want(t, http.StatusPreconditionFailed, api.GenerationMismatch)
	a.ask(t, "operator", http.MethodDelete, "/v1/policies/any", nil).want(t, http.StatusNoContent, "")
	a.ask(t, "operator", http.MethodDelete, "/v1/policies/any", nil).want(t, http.StatusNotFound, api.NotFound)
	a.ask(t, "anna", http.MethodGet, "/v1/instances/web", nil).want(t, http.StatusOK, "")
	entries := []string{"olga setPolicy policy/any  done", "olga removePolicy policy/any  done"}
	patient.Until(t, "the action log has all of it", func() bool {
		all := words(a.actions(t, "operator", "object=policy/any", len(entries)))
		return !slices.ContainsFunc(entries, func(want string) bool { return !strings.Contains(all, want) })
	})
}

// TestAWrongNameOfAPolicyIsNotLogged: refused requests may contain anything.
func TestAWrongNameOfAPolicyIsNotLogged(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	a.ask(t, "operator", http.MethodPut, "/v1/policies/A_b", map[string]any{"text": "take 1"})
	a.ask(t, "operator", http.MethodDelete, "/v1/policies/A_b", nil)
	for _, e := range a.actions(t, "operator", "", 2) {
		if e.Object.Kind != actions.Policy || e.Object.Name != "" {
			t.Errorf("%s has the object %s", e.Operation, e.Object)
		}
	}
}
