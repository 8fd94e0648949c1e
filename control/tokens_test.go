package control_test

import (
	"net/http"
	"testing"

	"croft/control/api"
	"croft/control/controltest"
)

func TestAdminsMakeTokensOfTheirProjects(t *testing.T) {
	t.Parallel()
	url, _ := controltest.Start(t)
	a := newAsker(t, url)
	token := map[string]string{"user": "ute", "role": "member", "life": "24h"}
	a.ask(t, "admin", http.MethodPost, "/v1/tokens", token).want(t, http.StatusNotFound, api.NotFound)
	a.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: "anna"}).
		want(t, http.StatusCreated, "")
	a.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: "berta"}).
		want(t, http.StatusCreated, "")
	wanted := func(role string) map[string]string {
		return map[string]string{"user": "ute", "role": role, "life": "24h"}
	}
	for _, c := range []struct {
		token, query, role string
		status             int
		code               api.Code
	}{
		{"admin", "", "member", http.StatusCreated, ""},
		{"admin", "", "project-admin", http.StatusCreated, ""},
		{"admin", "", "partition-admin", http.StatusForbidden, api.ForbiddenVerb},
		{"admin", "", "agent", http.StatusBadRequest, api.SchemaViolation},
		{"admin", "?project=berta", "member", http.StatusNotFound, api.NotFound},
		{"anna", "", "reader", http.StatusForbidden, api.ForbiddenVerb},
		{"operator", "", "partition-admin", http.StatusCreated, ""},
		{"operator", "", "member", http.StatusBadRequest, api.BadRequest},
		{"operator", "?project=berta", "member", http.StatusCreated, ""},
		{"operator", "?project=brta", "member", http.StatusNotFound, api.NotFound},
	} {
		got := a.ask(t, c.token, http.MethodPost, "/v1/tokens"+c.query, wanted(c.role))
		if got.want(t, c.status, c.code); t.Failed() {
			t.Fatalf("%s makes a %s of %q", c.token, c.role, c.query)
		}
	}
	var list, all api.TokenList
	a.ask(t, "admin", http.MethodGet, "/v1/tokens", nil).into(t, &list)
	a.ask(t, "operator", http.MethodGet, "/v1/tokens", nil).into(t, &all)
	if len(list.Tokens) != 2 || len(all.Tokens) != 4 {
		t.Fatalf("the admin sees %+v, the operator %d", list.Tokens, len(all.Tokens))
	}
	for _, one := range all.Tokens {
		if one.Secret != "" {
			t.Errorf("the list has the secret of %s", one.ID)
		}
		want := http.StatusNotFound
		if one.Project == "anna" {
			want = http.StatusOK
		}
		got := a.ask(t, "admin", http.MethodDelete, "/v1/tokens/"+string(one.ID), nil)
		if got.status != want {
			t.Errorf("the admin revokes a token of %q: %d", one.Project, got.status)
		}
		var ended api.AccessToken
		if got.status == http.StatusOK {
			if got.into(t, &ended); ended.CreatedBy != "ada" {
				t.Errorf("it was made by %q", ended.CreatedBy)
			}
		}
	}
	bad := map[string]string{"user": "ute", "role": "member", "life": "long"}
	a.ask(t, "admin", http.MethodPost, "/v1/tokens", bad).want(t, http.StatusBadRequest, api.BadRequest)
}
