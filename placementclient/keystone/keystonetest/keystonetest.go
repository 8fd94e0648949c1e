// Package keystonetest is a small Keystone for tests. It keeps users, application credentials, tokens and a catalogue,
// and answers croft's requests as the real one does; tests that also run against a real Keystone check that it does.
package keystonetest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// User is a user who can log in.
type User struct {
	Name, Password string
	Project        string // name and ID; empty: the roles are for the system
	Roles          []string
	Credential     string // ID of an application credential, whose secret is the password
}

// Endpoint is an entry of the catalogue, for Placement unless Service is set.
type Endpoint struct{ Service, Region, Interface, URL string }

// Keystone is a running test server.
type Keystone struct {
	URL  string // including /v3
	Root string // without /v3

	web *httptest.Server

	mu       sync.Mutex
	users    []User
	catalog  []Endpoint
	tokens   map[string]token
	lifetime time.Duration
	down     bool
	logins   int
	checks   int
}

type token struct {
	user    User
	expires time.Time
}

// Start runs a Keystone until the test ends.
func Start(t testing.TB) *Keystone { return start(t, httptest.NewServer) }

// StartTLS is Start with a certificate that only CA verifies.
func StartTLS(t testing.TB) *Keystone { return start(t, httptest.NewTLSServer) }

func start(t testing.TB, serve func(http.Handler) *httptest.Server) *Keystone {
	t.Helper()
	k := &Keystone{tokens: map[string]token{}, lifetime: time.Hour}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", k.versions)
	mux.HandleFunc("POST /v3/auth/tokens", k.issue)
	mux.HandleFunc("GET /v3/auth/tokens", k.show)
	k.web = serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.down {
			refuse(w, http.StatusServiceUnavailable, "The database is away.")
			return
		}
		mux.ServeHTTP(w, r)
	}))
	k.Root, k.URL = k.web.URL, k.web.URL+"/v3"
	t.Cleanup(k.web.Close)
	return k
}

// Add adds a user who can log in.
func (k *Keystone) Add(u User) { k.change(func() { k.users = append(k.users, u) }) }

// Offer adds endpoints to the catalogue of future tokens.
func (k *Keystone) Offer(e ...Endpoint) { k.change(func() { k.catalog = append(k.catalog, e...) }) }

// Revoke invalidates all tokens.
func (k *Keystone) Revoke() { k.change(func() { clear(k.tokens) }) }

// SetDown(true) makes the server answer 503; SetDown(false) makes it answer normally again.
func (k *Keystone) SetDown(down bool) { k.change(func() { k.down = down }) }

// Forget removes all users; tokens stay valid.
func (k *Keystone) Forget() { k.change(func() { k.users = nil }) }

// Counts returns the numbers of logins and of token checks.
func (k *Keystone) Counts() (logins, checks int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.logins, k.checks
}

// Token logs a user in.
func (k *Keystone) Token(t testing.TB, user string) string {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, u := range k.users {
		if u.Name == user {
			return k.grant(u)
		}
	}
	t.Fatalf("there is no user %s", user)
	return ""
}

// CA writes the server's certificate to a file and returns its name.
func (k *Keystone) CA(t testing.TB) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pemOf(k.web.Certificate()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func (k *Keystone) change(do func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	do()
}

func (k *Keystone) grant(u User) string {
	k.logins++
	id := fmt.Sprintf("gAAAAA-%s-%d", u.Name, k.logins)
	k.tokens[id] = token{user: u, expires: time.Now().Add(k.lifetime)}
	return id
}

func (k *Keystone) versions(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusMultipleChoices, map[string]any{"versions": map[string]any{"values": []any{map[string]any{
		"id": "v3.14", "status": "stable", "links": []any{map[string]any{"rel": "self", "href": k.URL + "/"}}}}}})
}

// login is the request for a token.
type login struct {
	Auth struct {
		Identity struct {
			Methods  []string
			Password struct{ User named }
			App      struct {
				ID, Secret string
			} `json:"application_credential"`
		}
		Scope struct {
			Project *named
			System  *struct{ All bool }
		}
	}
}

type named struct {
	ID, Name, Password string
	Domain             struct{ ID, Name string }
}

func (n named) inDefault() bool { return n.Domain.ID == "default" || n.Domain.Name == "Default" }

// matches reports whether the credentials are the user's. Like Keystone, it gives no reason.
func (l *login) matches(u User) bool {
	identity, scope := l.Auth.Identity, l.Auth.Scope
	switch strings.Join(identity.Methods, " ") {
	case "application_credential":
		return u.Credential != "" && identity.App.ID == u.Credential && identity.App.Secret == u.Password &&
			scope.Project == nil && scope.System == nil
	case "password":
		who := identity.Password.User
		scoped := scope.Project != nil && u.Project != "" &&
			(scope.Project.ID == u.Project || scope.Project.Name == u.Project && scope.Project.inDefault())
		if u.Project == "" {
			scoped = scope.System != nil && scope.System.All
		}
		return scoped && who.Name == u.Name && who.Password == u.Password && who.inDefault()
	}
	return false
}

func (k *Keystone) issue(w http.ResponseWriter, r *http.Request) {
	var l login
	if err := json.NewDecoder(r.Body).Decode(&l); err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	for _, u := range k.users {
		if l.matches(u) {
			id := k.grant(u)
			w.Header().Set("X-Subject-Token", id)
			reply(w, http.StatusCreated, k.describe(id, true))
			return
		}
	}
	refuse(w, http.StatusUnauthorized, "The request you have made requires authentication.")
}

func (k *Keystone) show(w http.ResponseWriter, r *http.Request) {
	asking, subject := r.Header.Get("X-Auth-Token"), r.Header.Get("X-Subject-Token")
	if !k.valid(asking) {
		refuse(w, http.StatusUnauthorized, "The request you have made requires authentication.")
		return
	}
	k.checks++
	roles := strings.Join(k.tokens[asking].user.Roles, " ")
	switch {
	case asking != subject && !strings.Contains(roles, "admin") && !strings.Contains(roles, "service"):
		refuse(w, http.StatusForbidden,
			"You are not authorized to perform the requested action: identity:validate_token.")
	case !k.valid(subject):
		refuse(w, http.StatusNotFound, "Could not recognize Fernet token")
	default:
		w.Header().Set("X-Subject-Token", subject)
		reply(w, http.StatusOK, k.describe(subject, !r.URL.Query().Has("nocatalog")))
	}
}

func (k *Keystone) valid(id string) bool {
	t, ok := k.tokens[id]
	return ok && time.Now().Before(t.expires)
}

func (k *Keystone) describe(id string, catalog bool) map[string]any {
	t := k.tokens[id]
	about := map[string]any{"expires_at": t.expires.UTC().Format("2006-01-02T15:04:05.000000Z"),
		"user": map[string]any{"id": t.user.Name + "-id", "name": t.user.Name}}
	var roles []any
	for _, role := range t.user.Roles {
		roles = append(roles, map[string]any{"id": role + "-id", "name": role})
	}
	about["roles"] = roles
	if t.user.Project == "" {
		about["system"] = map[string]any{"all": true}
	} else {
		about["project"] = map[string]any{"id": t.user.Project, "name": t.user.Project}
	}
	if catalog {
		about["catalog"] = k.entries()
	}
	return map[string]any{"token": about}
}

func (k *Keystone) entries() []any {
	all := []any{}
	for _, e := range k.catalog {
		service := cmp.Or(e.Service, "placement")
		all = append(all, map[string]any{"type": service, "name": service, "endpoints": []any{
			map[string]any{"interface": e.Interface, "region": e.Region, "region_id": e.Region, "url": e.URL}}})
	}
	return all
}
