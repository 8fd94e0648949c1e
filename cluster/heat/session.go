package heat

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"

	"croft"
	"croft/cluster"
)

// session is a login with one credential at one site. Its token is renewed when it expires, and is kept only in memory.
type session struct {
	site     cluster.Site
	provider *gophercloud.ProviderClient
	project  string // at the site
	secret   string
	timeout  time.Duration // of each request

	doubtful atomic.Bool // the next use has to log in again

	mu   sync.Mutex
	room *limits // cached limits
}

// mostSessions bounds the number of cached logins.
const mostSessions = 500

// refusal is how long a refused password is not tried again, so that the clusters of one user do not lock the account.
const refusal = 2 * time.Second

// sessions caches logins by site and credential.
type sessions struct {
	timeout time.Duration
	mu      sync.Mutex
	all     map[whose]*login
}

type whose struct {
	site       string
	credential cluster.CredentialID
}

// login is the cached session of a site and credential. Only the goroutine that holds turn logs in.
type login struct {
	turn    chan struct{}
	mark    [sha256.Size]byte // hash of everything that the session depends on
	session *session
	denied  error
	until   time.Time // time until which denied is returned without a new login
	used    time.Time
}

// of returns the login of a site and credential, which may be new.
func (s *sessions) of(p whose) *login {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[whose]*login{}
	}
	l := s.all[p]
	if l == nil {
		s.makeRoom()
		l = &login{turn: make(chan struct{}, 1)}
		s.all[p] = l
	}
	l.used = time.Now()
	return l
}

// makeRoom drops the least recently used login if the cache is full. Callers hold mu.
func (s *sessions) makeRoom() {
	var oldest whose
	for p, l := range s.all {
		if first := s.all[oldest]; first == nil || l.used.Before(first.used) {
			oldest = p
		}
	}
	if len(s.all) >= mostSessions {
		delete(s.all, oldest)
	}
}

func (s *sessions) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.all {
		l.turn <- struct{}{}
		if l.session != nil {
			l.session.provider.HTTPClient.CloseIdleConnections()
		}
		<-l.turn
	}
	s.all = nil
}

// session returns a session for an access, cached if possible. Denied. Unavailable.
func (s *sessions) session(ctx context.Context, at cluster.SiteAccess) (*session, error) {
	return s.get(ctx, at, false)
}

// renewed logs in again, so that the result is Keystone's current answer. Denied. Unavailable.
func (s *sessions) renewed(ctx context.Context, at cluster.SiteAccess) (*session, error) {
	return s.get(ctx, at, true)
}

func (s *sessions) get(ctx context.Context, at cluster.SiteAccess, anew bool) (*session, error) {
	l := s.of(whose{at.Site.Name, at.Credential.ID})
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, croft.Errorf(croft.Unavailable, "site %s: log in: %w", at.Site.Name, ctx.Err())
	}
	mark := markOf(at)
	if l.mark == mark && l.session != nil && !l.session.doubtful.Load() && !anew {
		return l.session, nil
	}
	if l.mark == mark && l.denied != nil && time.Now().Before(l.until) {
		return nil, l.denied
	}
	if l.session != nil {
		l.session.provider.HTTPClient.CloseIdleConnections()
	}
	l.mark, l.session, l.denied = mark, nil, nil
	one, err := s.logIn(ctx, at)
	switch {
	case croft.KindOf(err) == croft.Denied:
		l.denied, l.until = err, time.Now().Add(refusal)
	case err == nil:
		l.session = one
	}
	return one, err
}

// markOf returns a hash of everything that a login depends on.
func markOf(at cluster.SiteAccess) [sha256.Size]byte {
	c := at.Credential
	text, _ := json.Marshal([]string{at.Site.AuthURL, at.Site.Region, at.Site.Interface, at.Site.CACert, c.Username,
		c.UserDomain, c.ProjectName, c.ProjectID, c.ProjectDomain, at.Secret.Reveal()}) // strings: cannot fail
	return sha256.Sum256(text)
}

// logIn asks Keystone for a token.
func (all *sessions) logIn(ctx context.Context, at cluster.SiteAccess) (*session, error) {
	client, err := caller(at.Site)
	if err != nil {
		return nil, err
	}
	base, err := base(at.Site)
	if err != nil {
		return nil, err
	}
	s := &session{site: at.Site, secret: at.Secret.Reveal(), timeout: all.timeout,
		provider: &gophercloud.ProviderClient{IdentityBase: base,
			IdentityEndpoint: base + "v3/", HTTPClient: *client}}
	s.provider.UserAgent.Prepend("croft")
	s.provider.UseTokenLock()
	ctx, cancel := s.brief(ctx)
	defer cancel()
	if err := openstack.AuthenticateV3(ctx, s.provider, options(at, s.secret), gophercloud.EndpointOpts{}); err != nil {
		client.CloseIdleConnections()
		return nil, s.explainLogin(err)
	}
	s.boundRenewal()
	if result, ok := s.provider.GetAuthResult().(tokens.CreateResult); ok {
		if p, err := result.ExtractProject(); err == nil && p != nil {
			s.project = p.ID
		}
	}
	if s.project == "" {
		return nil, croft.Errorf(croft.Denied, "site %s: the credential is for no project", at.Site.Name)
	}
	return s, nil
}

// boundRenewal gives the renewal of the token a timeout that is independent of the request that caused it.
func (s *session) boundRenewal() {
	renew := s.provider.ReauthFunc
	if renew == nil {
		return
	}
	s.provider.ReauthFunc = func(ctx context.Context) error {
		ctx, cancel := s.brief(ctx)
		defer cancel()
		if err := renew(ctx); err != nil {
			return s.explainLogin(err)
		}
		return nil
	}
}

// options returns the login options for Keystone.
func options(at cluster.SiteAccess, secret string) *tokens.AuthOptions {
	c := at.Credential
	o := &tokens.AuthOptions{Username: c.Username, Password: secret, AllowReauth: true,
		Scope: tokens.Scope{ProjectID: c.ProjectID}}
	o.DomainName = orDefault(c.UserDomain)
	if c.ProjectID == "" {
		o.Scope = tokens.Scope{ProjectName: c.ProjectName, DomainName: orDefault(c.ProjectDomain)}
	}
	return o
}

// orDefault returns a domain name, "Default" if it is empty.
func orDefault(domain string) string {
	if domain == "" {
		return "Default"
	}
	return domain
}

// base returns the URL of Keystone without its version, with a trailing slash.
func base(site cluster.Site) (string, error) {
	u, err := url.Parse(site.AuthURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return "", croft.Errorf(croft.Invalid, "site %s: its auth_url is not the URL of a Keystone", site.Name)
	}
	path := strings.TrimRight(u.Path, "/")
	path = strings.TrimSuffix(strings.TrimSuffix(path, "/v3"), "/v2.0")
	return u.Scheme + "://" + u.Host + path + "/", nil
}

// service returns a client for a service in the catalogue, or nil if the catalogue does not have it.
func (s *session) service(kind string) *gophercloud.ServiceClient {
	o := gophercloud.EndpointOpts{Region: s.site.Region, Availability: gophercloud.Availability(s.site.Interface)}
	o.ApplyDefaults(kind)
	endpoint, err := s.provider.EndpointLocator(o)
	if err != nil {
		return nil
	}
	return &gophercloud.ServiceClient{ProviderClient: s.provider, Endpoint: endpoint, Type: kind}
}

// brief limits the time of one request.
func (s *session) brief(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.timeout)
}

// host returns the server in a URL, for messages.
func host(address string) string {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		return u.Host
	}
	return "the server"
}
