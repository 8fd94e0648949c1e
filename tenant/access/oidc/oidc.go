// Package oidc authenticates callers by tokens of an OpenID Connect issuer: JWTs that the issuer signed for an
// audience, and whose groups are mapped to roles in projects. Groups that are not configured grant nothing. It also
// gets such tokens for browsers, by the authorization code flow.
package oidc

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"croft"
	"croft/internal/egress"
	"croft/tenant/access"
)

// Config configures the accepted issuer, and maps its groups to roles.
type Config struct {
	Partition croft.PartitionID

	Issuer   string // URL, as in the tokens; https, except on loopback
	Audience string // the client that tokens must be issued for

	UserClaim   string // the claim with the user's name; "preferred_username" by default
	GroupsClaim string // the claim with the list of groups; "groups" by default

	Groups  map[string]Grant // by group name
	Members access.Members   // nil: membership in projects grants nothing

	// Transport sends requests to the issuer; by default through the proxy of the environment.
	Transport http.RoundTripper
}

// Grant is a role in a project. A partition-admin has no project.
type Grant struct {
	Project croft.Project
	Role    access.Role
}

// Issuer authenticates tokens of one issuer, sent as "Authorization: Bearer". It fetches the issuer's keys for the
// first token, and again for a token with an unknown key, at most every 10 s.
type Issuer struct {
	c         Config
	transport *transport

	mu       sync.Mutex
	verifier *oidc.IDTokenVerifier // nil: the issuer has not answered yet
	provider *oidc.Provider        // set before verifier, and never changed
}

var _ access.Authenticator = (*Issuer)(nil)

// New checks the configuration. It sends nothing. Invalid.
func New(c Config) (*Issuer, error) {
	u, err := url.Parse(c.Issuer)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !isLoopback(u.Hostname())) {
		return nil, croft.Errorf(croft.Invalid, "the issuer %q has to be an https:// address", c.Issuer)
	}
	if c.Audience == "" {
		return nil, croft.Errorf(croft.Invalid, "the issuer %s needs an audience: otherwise tokens that it made for other "+
			"programs would count here", c.Issuer)
	}
	for name, g := range c.Groups {
		if err := g.check(); err != nil {
			return nil, croft.Errorf(croft.Invalid, "the group %q: %w", name, err)
		}
	}
	if c.UserClaim == "" {
		c.UserClaim = "preferred_username"
	}
	if c.GroupsClaim == "" {
		c.GroupsClaim = "groups"
	}
	if c.Transport == nil {
		c.Transport = egress.Outward(egress.Environment)
	}
	c.Groups = maps.Clone(c.Groups)
	return &Issuer{c: c, transport: &transport{base: c.Transport, answers: map[string]answer{}}}, nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (g Grant) check() error {
	if err := g.Role.Check(); err != nil {
		return err
	}
	switch {
	case g.Role == access.Agent:
		return croft.Errorf(croft.Invalid, "the role %s is only for hosts, which have certificates", g.Role)
	case g.Role == access.PartitionAdmin && g.Project != "":
		return croft.Errorf(croft.Invalid, "the role %s is about the whole cloud: name no project", g.Role)
	case g.Role == access.PartitionAdmin:
		return nil
	}
	return g.Project.Check()
}

// Authenticate implements access.Authenticator. It ignores tokens of other issuers, and tokens that are not JWTs.
func (i *Issuer) Authenticate(ctx context.Context, r *http.Request) (access.Caller, bool, error) {
	text, ok, err := access.BearerToken(r)
	if !ok || issuerOf(text) != i.c.Issuer {
		return access.Caller{}, false, err
	}
	verifier, err := i.ready(ctx)
	if err != nil {
		return access.Caller{}, false, err
	}
	token, err := verifier.Verify(ctx, text)
	if err != nil {
		return access.Caller{}, false, i.refusal(err)
	}
	caller, err := i.caller(token, r)
	return caller, err == nil, err
}

// issuerOf returns the issuer that a JWT names, before verification; empty: the text is not a JWT.
func issuerOf(text string) string {
	parts := strings.Split(text, ".")
	if len(parts) != 3 {
		return ""
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return ""
	}
	var claims struct {
		Issuer string `json:"iss"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return ""
	}
	return claims.Issuer
}

// ready returns the verifier of tokens, once the issuer has answered. Unavailable.
func (i *Issuer) ready(ctx context.Context) (*oidc.IDTokenVerifier, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.verifier != nil {
		return i.verifier, nil
	}
	ctx = oidc.ClientContext(context.WithoutCancel(ctx), &http.Client{Transport: i.transport, Timeout: patience})
	provider, err := oidc.NewProvider(ctx, i.c.Issuer)
	if err != nil {
		return nil, croft.Errorf(croft.Unavailable, "tokens of %s cannot be checked now: %s", i.c.Issuer, err.Error())
	}
	i.provider = provider
	i.verifier = provider.Verifier(&oidc.Config{ClientID: i.c.Audience})
	return i.verifier, nil
}

// refusal distinguishes an invalid token from an issuer whose keys cannot be fetched.
func (i *Issuer) refusal(err error) error {
	if expired, ok := errors.AsType[*oidc.TokenExpiredError](err); ok {
		return croft.Errorf(croft.Denied, "this token of %s expired on %s: log in again", i.c.Issuer,
			expired.Expiry.UTC().Format(time.DateTime+" MST"))
	}
	if failed := i.transport.failure(); failed != nil {
		return croft.Errorf(croft.Unavailable, "tokens of %s cannot be checked now: %s", i.c.Issuer, failed.Error())
	}
	return croft.Errorf(croft.Denied, "this token of %s does not count: %s", i.c.Issuer, err.Error())
}

// caller maps the claims of a verified token. Denied.
func (i *Issuer) caller(token *oidc.IDToken, r *http.Request) (access.Caller, error) {
	none := access.Caller{}
	var claims map[string]json.RawMessage
	if err := token.Claims(&claims); err != nil {
		return none, croft.Errorf(croft.Denied, "the claims of this token cannot be read: %s", err.Error())
	}
	var name string
	if json.Unmarshal(claims[i.c.UserClaim], &name) != nil || access.CheckUser(name) != nil {
		return none, croft.Errorf(croft.Denied, "the claim %s of this token is no name of a user that can be used here",
			i.c.UserClaim)
	}
	var groups []string
	if text, ok := claims[i.c.GroupsClaim]; (ok || i.c.Members == nil) && json.Unmarshal(text, &groups) != nil {
		return none, croft.Errorf(croft.Denied, "the claim %s of this token is no list of groups", i.c.GroupsClaim)
	}
	c := access.Caller{Partition: i.c.Partition, User: name, Via: "oidc " + i.c.Issuer}
	granted := access.Granted{Roles: map[croft.Project][]access.Role{}, None: croft.Errorf(croft.Denied,
		"no group of %s has a role in this cloud, and no project has that member", name)}
	for _, group := range groups {
		if g, ok := i.c.Groups[group]; ok {
			granted.Roles[g.Project] = append(granted.Roles[g.Project], g.Role)
		}
	}
	return access.Choose(c, granted, i.c.Members, r)
}
