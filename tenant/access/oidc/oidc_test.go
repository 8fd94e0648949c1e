package oidc_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/tenant/access"
	"croft/tenant/access/oidc"
)

const audience = "croft-cloud"

// groups is the configuration of groups in these tests.
var groups = map[string]oidc.Grant{
	"lab-users":  {Project: "lab", Role: access.Member},
	"lab-guests": {Project: "lab", Role: access.Member},
	"lab-admins": {Project: "lab", Role: access.ProjectAdmin},
	"shop-users": {Project: "shop", Role: access.Reader},
	"operators":  {Role: access.PartitionAdmin},
}

func newIssuer(t *testing.T, i *issuer) *oidc.Issuer {
	t.Helper()
	a, err := oidc.New(oidc.Config{Partition: "partition", Issuer: i.url, Audience: audience, Groups: groups,
		Transport: i})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func request(t *testing.T, token string, projects ...string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://croft.invalid/v1", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header[http.CanonicalHeaderKey(access.ProjectHeader)] = projects
	return r
}

// claims returns the claims of a valid token of ann, changed by pairs of name and value; nil removes a claim.
func (i *issuer) claims(changes ...any) map[string]any {
	c := map[string]any{"iss": i.url, "aud": audience, "sub": "1f3a", "preferred_username": "ann",
		"groups": []string{"lab-users", "cooks"}, "exp": time.Now().Add(time.Hour).Unix(),
		"iat": time.Now().Unix()}
	for n := 0; n < len(changes); n += 2 {
		if c[changes[n].(string)] = changes[n+1]; changes[n+1] == nil {
			delete(c, changes[n].(string))
		}
	}
	return c
}

func TestWhatAnIssuersTokensAreWorth(t *testing.T) {
	i, foreign := newKeys(t), newKeys(t)
	i.url, foreign.url = "https://id.example.org", "https://id.example.org"
	a := newIssuer(t, i)
	for _, c := range []struct {
		name     string
		token    string
		projects []string // in the header
		in       croft.Project
		roles    []access.Role
		says     string // part of the refusal
	}{
		{"a member", i.sign(t, i.claims()), nil, "lab", []access.Role{access.Member}, ""},
		{"a member of a list of audiences", i.sign(t, i.claims("aud", []string{"x", audience})), nil, "lab",
			[]access.Role{access.Member}, ""},
		{"who names the own project", i.sign(t, i.claims()), []string{"lab"}, "lab", []access.Role{access.Member}, ""},
		{"who names another project", i.sign(t, i.claims()), []string{"shop"}, "", nil,
			`ann has no role in the project "shop"`},
		{"who names two", i.sign(t, i.claims()), []string{"lab", "lab"}, "", nil, "2 headers X-Croft-Project"},
		{"two groups of one project", i.sign(t, i.claims("groups", []string{"lab-users", "lab-admins"})), nil, "lab",
			[]access.Role{access.Member, access.ProjectAdmin}, ""},
		{"two groups of one role", i.sign(t, i.claims("groups", []string{"lab-users", "lab-guests"})), nil, "lab",
			[]access.Role{access.Member}, ""},
		{"groups of two projects", i.sign(t, i.claims("groups", []string{"lab-users", "shop-users"})), nil, "", nil,
			"ann has roles in the projects [lab shop]: name one in the header X-Croft-Project"},
		{"who names one of two", i.sign(t, i.claims("groups", []string{"lab-users", "shop-users"})),
			[]string{"shop"}, "shop", []access.Role{access.Reader}, ""},
		{"an operator", i.sign(t, i.claims("groups", []string{"lab-users", "operators"})), nil, "",
			[]access.Role{access.PartitionAdmin}, ""},
		{"an operator who names a project", i.sign(t, i.claims("groups", []string{"operators"})), []string{"any"},
			"any", []access.Role{access.PartitionAdmin}, ""},
		{"an operator who names what is none", i.sign(t, i.claims("groups", []string{"operators"})),
			[]string{"a/b"}, "", nil, "is not a project name"},
		{"no known group", i.sign(t, i.claims("groups", []string{"cooks"})), nil, "", nil,
			"no group of ann has a role"},
		{"no groups", i.sign(t, i.claims("groups", nil)), nil, "", nil, "groups of this token is no list"},
		{"groups as a word", i.sign(t, i.claims("groups", "operators")), nil, "", nil,
			"groups of this token is no list"},
		{"no name", i.sign(t, i.claims("preferred_username", nil)), nil, "", nil, "no name of a user"},
		{"a name that steers terminals", i.sign(t, i.claims("preferred_username", "a\x1b[2J")), nil, "", nil,
			"no name of a user"},
		{"expired", i.sign(t, i.claims("exp", time.Now().Add(-time.Minute).Unix())), nil, "", nil, "expired on 20"},
		{"not yet", i.sign(t, i.claims("nbf", time.Now().Add(time.Hour).Unix())), nil, "", nil, "does not count"},
		{"for another program", i.sign(t, i.claims("aud", "wiki")), nil, "", nil, "does not count"},
		{"for nobody", i.sign(t, i.claims("aud", nil)), nil, "", nil, "does not count"},
		{"signed by somebody else", foreign.sign(t, i.claims()), nil, "", nil, "does not count"},
		{"changed after it was signed", swapped(i.sign(t, i.claims()), i.sign(t, i.claims("groups",
			[]string{"operators"}))), nil, "", nil, "does not count"},
		{"not signed", unsigned(t, i.claims()), nil, "", nil, "does not count"},
		{"signed with the public key as a secret", i.confused(t, i.claims()), nil, "", nil, "does not count"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok, err := a.Authenticate(t.Context(), request(t, c.token, c.projects...))
			if ok != (c.says == "") || (croft.KindOf(err) == croft.Denied) != (c.says != "") {
				t.Fatalf("got %+v, %v, %v", got, ok, err)
			}
			if err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("it says %q, want %q in it", err, c.says)
			}
			if got.Project != c.in || !slices.Equal(got.Roles, c.roles) || ok && got.User != "ann" {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestWhatIsNotOfThisIssuer(t *testing.T) {
	i := newKeys(t)
	i.url = "https://id.example.org"
	a := newIssuer(t, i)
	for name, token := range map[string]string{
		"another issuer":      i.sign(t, i.claims("iss", "https://other.example.org")),
		"no issuer":           i.sign(t, i.claims("iss", nil)),
		"a token of croft":    access.NewSecret().Text(),
		"words with dots":     "a.b.c",
		"claims that are one": "e30.MQ.e30",
		"nothing":             "",
	} {
		if _, ok, err := a.Authenticate(t.Context(), request(t, token)); ok || err != nil {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
	}
	if i.asked.Load() != 0 {
		t.Errorf("the issuer was asked %d times", i.asked.Load())
	}
}

func TestConfigurationsThatCannotBe(t *testing.T) {
	good := oidc.Config{Issuer: "https://id.example.org", Audience: audience, Groups: groups}
	for name, spoil := range map[string]func(*oidc.Config){
		"no issuer":            func(c *oidc.Config) { c.Issuer = "" },
		"plain text":           func(c *oidc.Config) { c.Issuer = "http://id.example.org" },
		"plain text elsewhere": func(c *oidc.Config) { c.Issuer = "http://192.0.2.1" },
		"another protocol":     func(c *oidc.Config) { c.Issuer = "ftp://127.0.0.1" },
		"no server":            func(c *oidc.Config) { c.Issuer = "https:///dex" },
		"no address":           func(c *oidc.Config) { c.Issuer = "https://id example.org:x" },
		"no audience":          func(c *oidc.Config) { c.Audience = "" },
		"a host's role":        func(c *oidc.Config) { c.Groups = map[string]oidc.Grant{"x": {"lab", access.Agent}} },
		"an unknown role":      func(c *oidc.Config) { c.Groups = map[string]oidc.Grant{"x": {"lab", "king"}} },
		"no project":           func(c *oidc.Config) { c.Groups = map[string]oidc.Grant{"x": {"", access.Reader}} },
		"a wild project":       func(c *oidc.Config) { c.Groups = map[string]oidc.Grant{"x": {"a/b", access.Reader}} },
		"operators of a part": func(c *oidc.Config) {
			c.Groups = map[string]oidc.Grant{"x": {"lab", access.PartitionAdmin}}
		},
	} {
		c := good
		spoil(&c)
		if _, err := oidc.New(c); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for _, issuer := range []string{good.Issuer, "http://127.0.0.1:5556", "http://[::1]/dex", "http://localhost:1"} {
		c := good
		c.Issuer = issuer
		if _, err := oidc.New(c); err != nil {
			t.Errorf("%s: %v", issuer, err)
		}
	}
}
