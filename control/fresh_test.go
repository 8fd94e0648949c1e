package control_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/access/accesstest"
	"croft/control/controltest"
	"croft/tenant"
)

// TestWhatWasAnsweredWith201IsFoundAtOnce: a write that has been answered is seen by the very next request, at the
// server that took it and at every other one.
func TestWhatWasAnsweredWith201IsFoundAtOnce(t *testing.T) {
	site := controltest.StartSite(t)
	a := newAsker(t, site.URL)
	a.ask(t, "operator", http.MethodPost, "/v1/projects", fields{"name": "berta"}).want(t, http.StatusCreated, "")
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHsFUM4Cp3Zu2Cq4RCc9aiB3SI1bqKfd0/7qIaqv5qLS k"
	for n := range 12 {
		here, there := fmt.Sprint("here", n), fmt.Sprint("there", n)
		a.ask(t, "birgit", http.MethodPost, "/v1/projects", fields{"name": here, "parent": "berta"}).
			want(t, http.StatusCreated, "")
		a.ask(t, "birgit", http.MethodGet, "/v1/projects/"+here, nil).want(t, http.StatusOK, "")
		if all := a.ask(t, "birgit", http.MethodGet, "/v1/projects", nil); !strings.Contains(string(all.body),
			`"berta.`+here+`"`) {
			t.Errorf("the list lacks berta.%s: %s", here, all.body)
		}
		// Another server stores the next one.
		_, err := site.Cloud.Store.Projects.Create(t.Context(), tenant.Tenant{Name: croft.Project("berta." + there),
			Parent: "berta", Created: time.Now().UTC()})
		if err != nil {
			t.Fatal(err)
		}
		a.ask(t, "birgit", http.MethodPost, "/v1/keys?project="+there, fields{"name": "k", "line": key}).
			want(t, http.StatusCreated, "")
		a.ask(t, "birgit", http.MethodDelete, "/v1/keys/k?project=berta."+there, nil).want(t, http.StatusNoContent, "")
		a.ask(t, "birgit", http.MethodDelete, "/v1/projects/berta."+there, nil).want(t, http.StatusNoContent, "")
		a.ask(t, "birgit", http.MethodGet, "/v1/projects/berta."+there, nil).want(t, http.StatusNotFound, "not_found")
		// The name belongs to a new project now.
		a.ask(t, "birgit", http.MethodPost, "/v1/projects", fields{"name": there, "parent": "berta"}).
			want(t, http.StatusCreated, "")
		a.ask(t, "birgit", http.MethodGet, "/v1/projects/berta."+there, nil).want(t, http.StatusOK, "")
		for _, name := range []string{here, there} {
			a.ask(t, "birgit", http.MethodDelete, "/v1/projects/"+name, nil).want(t, http.StatusNoContent, "")
		}
	}
}

// TestATokenThatAnotherServerMadeIsKnownAtOnce: a server that has not heard of a token yet looks before it refuses it.
func TestATokenThatAnotherServerMadeIsKnownAtOnce(t *testing.T) {
	site := controltest.StartSite(t)
	a := newAsker(t, site.URL)
	a.ask(t, "operator", http.MethodPost, "/v1/projects", fields{"name": "lab"}).want(t, http.StatusCreated, "")
	for range 8 {
		token, secret := accesstest.NewToken(t, "lab", 0)
		if err := site.Cloud.Store.AccessTokens.Create(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		a.ask(t, secret.Text(), http.MethodGet, "/v1/whoami", nil).want(t, http.StatusOK, "")
	}
	_, unknown := accesstest.NewToken(t, "lab", 0)
	a.ask(t, unknown.Text(), http.MethodGet, "/v1/whoami", nil).want(t, http.StatusUnauthorized, "unauthenticated")
}
