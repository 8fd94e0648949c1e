package control_test

import (
	"net/http"
	"testing"

	"croft/control/api"
	"croft/control/controltest"
)

// TestIfMatchIsReadAlikeForEveryNoun: as RFC 9110 defines it, for records that exist and that do not.
func TestIfMatchIsReadAlikeForEveryNoun(t *testing.T) {
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	type fields = map[string]any
	for _, c := range []struct {
		path, method string
		create       func() answer
		change       any
	}{
		{"/v1/policies/p", http.MethodPut, func() answer {
			return a.ask(t, "operator", http.MethodPut, "/v1/policies/p", fields{"text": "take 1"})
		}, fields{"text": "take 1"}},
		{"/v1/sites/s", http.MethodPatch, func() answer {
			return a.ask(t, "operator", http.MethodPost, "/v1/sites", fields{"name": "s", "type": "sim"})
		}, fields{"priority": 7}},
		{"/v1/aggregates/g", http.MethodPatch, func() answer {
			return a.ask(t, "operator", http.MethodPost, "/v1/aggregates", fields{"name": "g"})
		}, fields{"public": true}},
		{"/v1/projects/p", http.MethodPatch, func() answer {
			return a.ask(t, "operator", http.MethodPost, "/v1/projects", fields{"name": "p"})
		}, fields{"note": "x"}},
		{"/v1/definitions/host", http.MethodPut, func() answer {
			return a.askWith(t, "operator", http.MethodPut, "/v1/definitions/host", fields{}, "If-Match", `"0"`)
		}, fields{"unknown": "allow"}},
	} {
		t.Run(c.path, func(t *testing.T) {
			change := func(match string) answer {
				return a.askWith(t, "operator", c.method, c.path, c.change, "If-Match", match)
			}
			if got := change("*"); got.status < 400 {
				t.Errorf("* accepts an object that does not exist: %d", got.status)
			}
			c.create()
			tag := a.ask(t, "operator", http.MethodGet, c.path, nil).generation()
			for _, match := range []string{`"0"`, `"1"`, "W/" + tag, `"other"`, `"1", W/` + tag} {
				change(match).want(t, http.StatusPreconditionFailed, api.GenerationMismatch)
			}
			for _, match := range []string{"other", `"1", *`, `"`, tag + " " + tag} {
				change(match).want(t, http.StatusBadRequest, api.BadRequest)
			}
			change(`"1", `+tag).want(t, http.StatusOK, "")
			change("*").want(t, http.StatusOK, "")
		})
	}
}
