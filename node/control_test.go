package node_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"croft"
	"croft/control/actions"
	"croft/etcdstore/etcdserver"
	"croft/internal/testing/freeport"
	"croft/internal/testing/patient"
	"croft/node"
	"croft/node/settings"
	"croft/placementclient/keystone/keystonetest"
	"croft/tenant"
	"croft/tenant/access"
	"croft/tenant/access/accesstest"
	"croft/tenant/access/oidc/oidctest"
	"croft/test/simcloud"
)

// served is the API of a simulated cloud that accepts tokens of an issuer and a Keystone.
type served struct {
	*simcloud.Cloud
	url  string
	stop func() // stops the API in order; the cleanup does so too
}

func serve(t *testing.T, change func(*settings.Settings)) served {
	t.Helper()
	c, err := simcloud.New(t.Context(), t.TempDir(), etcdserver.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	s := settings.Defaults()
	s.StateDir, s.Etcd.Endpoints = t.TempDir(), []string{c.Etcd.Endpoint()}
	s.Placement.Endpoint, s.Placement.Token = c.Placement.URL, "admin"
	if s.CloudAPI.Listen, err = freeport.Address("127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	s.CloudAPI.Socket = filepath.Join(t.TempDir(), "api.sock")
	change(&s)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- node.RunControl(ctx, s, s.Reach(nil), slog.New(slog.DiscardHandler), func() { close(ready) })
	}()
	select {
	case err := <-ended:
		cancel()
		t.Fatal(err)
	case <-ready:
	}
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the API does not end in order: %v", err)
		}
	})
	t.Cleanup(stop)
	return served{c, "http://" + s.CloudAPI.Listen, stop}
}

// ask sends a request with headers, as pairs of names and values, and returns the status and, of whoami, project and
// roles.
func (s served) ask(t *testing.T, path string, headers ...string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	got, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Body.Close()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		t.Fatal(err)
	}
	var caller access.Caller
	if path != "/v1/whoami" || got.StatusCode != http.StatusOK {
		return fmt.Sprint(got.StatusCode)
	}
	if err := json.Unmarshal(text, &caller); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(caller.User, " ", caller.Project, " ", caller.Roles)
}

// become waits until whoami returns an answer.
func (s served) become(t *testing.T, want string, headers ...string) {
	t.Helper()
	got := ""
	patient.Until(t, "whoami says "+want, func() bool {
		got = s.ask(t, "/v1/whoami", headers...)
		return got == want
	})
}

// set creates or changes a project.
func (s served) set(t *testing.T, name, parent string, members map[string]access.Role) {
	t.Helper()
	all, err := s.Store.Projects.List(t.Context(), access.Everything())
	if err != nil {
		t.Fatal(err)
	}
	p := tenant.Tenant{Name: "none"}
	for _, one := range all {
		if string(one.Name) == name {
			p = one
		}
	}
	if p.Generation == 0 {
		p = tenant.Tenant{Name: croft.Project(name), Parent: croft.Project(parent)}
		if p, err = s.Store.Projects.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	p.Members = members
	if _, err := s.Store.Projects.Change(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// leadsToTheIssuer checks that the page sends browsers to an issuer, and says that they have to come back to the public
// address.
func (s served) leadsToTheIssuer(t *testing.T, issuer string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for path, want := range map[string]string{"/ui/login": `href="https://cloud.example/ui/login/start?`,
		"/ui/login/start": issuer + "/auth?"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = "cloud.example"
		got, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(got.Body)
		_ = got.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		all := got.Header.Get("Location") + string(text)
		if !strings.Contains(all, want) || path == "/ui/login/start" &&
			!strings.Contains(all, "redirect_uri=https%3A%2F%2Fcloud.example%2Fui%2Flogin%2Foidc&") {
			t.Errorf("%s: %s, %s", path, got.Status, all)
		}
	}
}

func TestMembersKnownByAnIssuer(t *testing.T) {
	issuer := oidctest.Start(t)
	s := serve(t, func(s *settings.Settings) {
		s.CloudAPI.OIDC.Issuer, s.CloudAPI.OIDC.Audience = issuer.URL, issuer.Client
		s.CloudAPI.OIDC.Groups = []string{"shop-users=shop:reader", "wheel=partition-admin"}
		s.CloudAPI.Address = "https://cloud.example"
	})
	s.leadsToTheIssuer(t, issuer.URL)
	as := func(name string, groups ...string) []string {
		return []string{"Authorization", "Bearer " + issuer.Token(t, oidctest.User{Name: name, Groups: groups})}
	}
	in := func(project string, headers []string) []string { return append(headers, access.ProjectHeader, project) }
	s.become(t, "olga  [partition-admin]", as("olga", "wheel")...)
	s.become(t, "401", as("ann")...) // the issuer knows ann, but no project has her as a member
	s.set(t, "lab", "", map[string]access.Role{"ann": access.Member, "ada": access.ProjectAdmin})
	s.set(t, "lab-a", "lab", nil)
	s.set(t, "shop", "", map[string]access.Role{"ann": access.Reader})
	s.become(t, "401", as("ann")...) // has to name the project
	s.become(t, "ann lab [member]", in("lab", as("ann"))...)
	s.become(t, "ann shop [reader]", in("shop", as("ann"))...)
	s.become(t, "ada lab [project-admin]", as("ada")...)
	s.become(t, "ada lab-a [project-admin]", in("lab-a", as("ada"))...)
	s.become(t, "joe shop [reader]", as("joe", "shop-users", "cooks")...)
	for _, c := range []struct {
		path, want string
		headers    []string
	}{
		{"/v1/instances", "200", in("lab", as("ann"))},
		{"/v1/instances?project=shop", "404", in("lab", as("ann"))},
		{"/v1/tokens", "403", in("lab", as("ann"))},
		{"/v1/tokens?project=lab-a", "200", as("ada")},
		{"/v1/instances?project=lab", "404", as("joe", "shop-users")},
		{"/v1/instances", "401", in("lab-a", as("ann"))},
		{"/v1/instances", "401", in("lab", as("eve"))},
	} {
		if got := s.ask(t, c.path, c.headers...); got != c.want {
			t.Errorf("%s: %s, want %s", c.path, got, c.want)
		}
	}
	// Revoked rights are refused, with the same token.
	ann := as("ann")
	s.set(t, "shop", "", nil)
	s.become(t, "ann lab [member]", ann...)
	s.set(t, "lab", "", map[string]access.Role{"ann": access.Reader})
	s.become(t, "ann lab [reader]", ann...)
	s.set(t, "lab", "", nil)
	s.become(t, "401", ann...)
}

// TestAnOrderlyStopLosesNoAction stops the API immediately after the answers.
func TestAnOrderlyStopLosesNoAction(t *testing.T) {
	s := serve(t, func(*settings.Settings) {})
	token, secret := accesstest.NewToken(t, "", 0)
	if err := s.Store.AccessTokens.Create(t.Context(), token); err != nil {
		t.Fatal(err)
	}
	s.become(t, "ann  [partition-admin]", "Authorization", "Bearer "+secret.Text())
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			key := fmt.Sprint(s.url, "/v1/keys/k", i)
			r, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, key, nil)
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Authorization", "Bearer "+secret.Text())
			got, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
			if err != nil || got.StatusCode != http.StatusNotFound || got.Body.Close() != nil {
				t.Errorf("remove key %d: %v", i, err)
			}
		})
	}
	all.Wait()
	s.stop()
	page, err := s.Store.Actions.List(t.Context(), access.Everything(), actions.Filter{User: "ann"})
	if err != nil || len(page.Entries) != 40 {
		t.Errorf("%d of 40 actions are in the log, %v", len(page.Entries), err)
	}
}

func TestMembersKnownByKeystone(t *testing.T) {
	k := keystonetest.Start(t)
	for _, u := range []keystonetest.User{
		{Name: "croft", Password: "secret", Project: "service", Roles: []string{"service"}},
		{Name: "ann", Password: "x", Project: "theirs", Roles: []string{"member"}},
		{Name: "joe", Password: "x", Project: "unknown", Roles: []string{"member"}},
		{Name: "kim", Password: "x", Roles: []string{"admin"}},
	} {
		k.Add(u)
	}
	file := filepath.Join(t.TempDir(), "clouds.yaml")
	text := fmt.Sprintf("clouds: {own: {auth: {auth_url: '%s', username: croft, password: secret, "+
		"project_name: service}}}", k.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OS_CLIENT_CONFIG_FILE", file)
	s := serve(t, func(s *settings.Settings) {
		s.CloudAPI.Keystone = settings.Tenants{Cloud: "own", Projects: []string{"theirs=lab"},
			Roles: []string{"member=reader"}, Operators: []string{"admin"}}
	})
	as := func(name string) []string { return []string{"X-Auth-Token", k.Token(t, name)} }
	in := func(project string, headers []string) []string { return append(headers, access.ProjectHeader, project) }
	s.become(t, "kim-id  [partition-admin]", as("kim")...)
	s.become(t, "ann-id lab [reader]", as("ann")...)
	s.become(t, "401", as("joe")...)
	s.set(t, "lab", "", map[string]access.Role{"ann-id": access.ProjectAdmin, "ann": access.Member})
	s.set(t, "shop", "", map[string]access.Role{"joe-id": access.Member, "ann-id": access.Member})
	s.become(t, "ann-id lab [reader project-admin]", as("ann")...)
	s.become(t, "ann-id shop [member]", in("shop", as("ann"))...)
	joe := as("joe")
	s.become(t, "joe-id shop [member]", joe...)
	if got := s.ask(t, "/v1/instances?project=lab", joe...); got != "404" {
		t.Errorf("joe in lab: %s", got)
	}
	s.set(t, "shop", "", nil)
	s.become(t, "401", joe...)
	s.become(t, "ann-id lab [reader project-admin]", as("ann")...)
	k.Revoke()
	if got := s.ask(t, "/v1/whoami", "X-Auth-Token", "wrong"); got != "401" {
		t.Errorf("a wrong token: %s", got)
	}
}
