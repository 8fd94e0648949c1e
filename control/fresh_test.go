package control_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"croft"
	"croft/control"
	"croft/control/api"
	"croft/control/controltest"
	"croft/tenant"
	"croft/tenant/access"
	"croft/tenant/access/accesstest"
	"croft/test/simcloud"
)

// TestWhatWasAnsweredWith201IsFoundAtOnce: once a write is answered, the next request sees it, at the server that did
// it and at every other server.
func TestWhatWasAnsweredWith201IsFoundAtOnce(t *testing.T) {
	t.Parallel()
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

// TestATokenThatAnotherServerMadeIsKnownAtOnce: a server reads the store before it refuses an unknown token.
func TestATokenThatAnotherServerMadeIsKnownAtOnce(t *testing.T) {
	t.Parallel()
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

// laggingRoles authenticates one user, whose current role in a project it reads only when it is refreshed.
type laggingRoles struct {
	mu            sync.Mutex
	known, stored access.Role
}

func (l *laggingRoles) Authenticate(_ context.Context, r *http.Request) (access.Caller, bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return access.Caller{User: "ann", Project: "anna", Roles: []access.Role{l.known}, Via: "an issuer"},
		r.Header.Get("Authorization") == "Bearer ann", nil
}

func (l *laggingRoles) Below(p croft.Project) []croft.Project { return []croft.Project{p} }

func (l *laggingRoles) ID(croft.Project) croft.ProjectID { return "" }

func (l *laggingRoles) Refresh(context.Context, croft.Project) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known = l.stored
	return nil
}

func (l *laggingRoles) store(r access.Role) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stored = r
}

// TestARoleThatAnotherServerGaveCountsAtOnce: a server that has an outdated role of a member reads the store before it
// refuses.
func TestARoleThatAnotherServerGaveCountsAtOnce(t *testing.T) {
	t.Parallel()
	roles := &laggingRoles{known: access.Reader, stored: access.Reader}
	url, _ := controltest.StartConfigured(t, func(_ *simcloud.Cloud, c *control.Config) {
		c.Callers = access.InTree(roles, access.First(roles, controltest.Known))
	})
	a := newAsker(t, url)
	a.ask(t, "operator", http.MethodPost, "/v1/projects", fields{"name": "anna"}).want(t, http.StatusCreated, "")
	token := fields{"user": "bob", "role": "reader", "life": "1h"}
	for _, c := range []struct {
		stored access.Role
		status int
		code   api.Code
	}{
		{access.Reader, http.StatusForbidden, api.ForbiddenVerb},
		{access.Member, http.StatusForbidden, api.ForbiddenVerb},
		{access.ProjectAdmin, http.StatusCreated, ""},
	} {
		roles.store(c.stored)
		a.ask(t, "ann", http.MethodPost, "/v1/tokens", token).want(t, c.status, c.code)
	}
}
