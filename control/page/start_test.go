package page_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"croft"
	"croft/client"
	"croft/control"
	"croft/control/api"
	"croft/control/controltest"
	"croft/control/page"
	"croft/control/page/session"
	"croft/tenant/access"
	"croft/tenant/access/oidc"
	"croft/tenant/access/oidc/oidctest"
	"croft/test/simcloud"
)

// served is the page of a simulated cloud.
type served struct {
	url   string
	api   string
	cloud *simcloud.Cloud
	links session.Sessions
	proxy http.Handler // the API
	done  *changesDone
	// Ends all connections, and serves with another server that knows nothing of the one before.
	restart func(*testing.T)
	posted  *posts
	issuer  *oidctest.Issuer // its groups anna and berta are members of these projects
	logins  *oidc.Issuer
}

// posts are the forms that were sent with success, by the pattern of their view.
type posts struct {
	mu  sync.Mutex
	all map[string]bool
}

// note notes a request that was answered.
func (p *posts) note(r *http.Request, status int) {
	if r.Method != http.MethodPost || status >= http.StatusBadRequest {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all[r.Pattern] = true
}

// before returns a handler that notes the requests that another one answers.
func (p *posts) before(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		noted := &statusSeen{w, http.StatusOK}
		h.ServeHTTP(noted, r)
		p.note(r, noted.status)
	})
}

// changesDone are the changes that the API has made for the page.
type changesDone struct {
	mu  sync.Mutex
	all []string // method, path and token
}

// behind counts the changes that a handler makes.
func (d *changesDone) behind(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			next.ServeHTTP(w, r)
			return
		}
		seen := &statusSeen{ResponseWriter: w}
		next.ServeHTTP(seen, r)
		if d.mu.Lock(); seen.status < 300 {
			d.all = append(d.all, strings.Join([]string{r.Method, r.URL.Path, r.Header.Get("Authorization")}, " "))
		}
		d.mu.Unlock()
	})
}

// of counts the changes for a caller, without questions that have a body.
func (d *changesDone) of(token string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, one := range d.all {
		if strings.HasSuffix(one, " Bearer "+token) && !strings.Contains(one, "/candidates") {
			n++
		}
	}
	return n
}

// statusSeen keeps the status of an answer.
type statusSeen struct {
	http.ResponseWriter
	status int
}

// WriteHeader implements http.ResponseWriter.
func (s *statusSeen) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (s *statusSeen) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// start serves the page of a simulated cloud until the test ends.
func start(t *testing.T) served {
	t.Helper()
	return startBehind(t, func(h http.Handler) http.Handler { return h })
}

// startBehind is start with a handler before the API.
func startBehind(t *testing.T, before func(http.Handler) http.Handler) served {
	t.Helper()
	issuer := oidctest.Start(t)
	logins, err := oidc.New(oidc.Config{Issuer: issuer.URL, Audience: issuer.Client, Groups: map[string]oidc.Grant{
		"anna": {Project: "anna", Role: access.Member}, "berta": {Project: "berta", Role: access.Reader}},
		Transport: &http.Transport{DisableKeepAlives: true}})
	if err != nil {
		t.Fatal(err)
	}
	at, c := controltest.StartConfigured(t, acceptTokens(t, logins))
	target, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) { // the browser is gone
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
	done := &changesDone{}
	config := page.Config{API: before(done.behind(proxy)), Sessions: c.Store.PageSessions,
		Log:    slog.New(slog.NewTextHandler(t.Output(), nil)),
		Issuer: logins}
	var now atomic.Pointer[http.Handler]
	renew := func(t *testing.T) {
		server, err := page.New(config)
		if err != nil {
			t.Fatal(err)
		}
		handler := server.Handler()
		now.Store(&handler)
	}
	renew(t)
	posted := &posts{all: map[string]bool{}}
	front := httptest.NewUnstartedServer(posted.before(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		(*now.Load()).ServeHTTP(w, r)
	})))
	counted := &connections{Listener: front.Listener}
	front.Listener = counted
	front.Start()
	t.Cleanup(func() { counted.cut(); front.Close() })
	return served{url: front.URL, api: at, cloud: c, links: session.Sessions{Store: c.Store.PageSessions}, proxy: proxy,
		restart: func(t *testing.T) { renew(t); counted.cut() }, posted: posted, done: done,
		issuer: issuer, logins: logins}
}

// brief accepts tokens that say when they expire, for a member of anna: until-2026-01-02T03:04:05Z.
type brief struct{}

// Authenticate implements access.Authenticator.
func (brief) Authenticate(_ context.Context, r *http.Request) (access.Caller, bool, error) {
	text, is := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer until-")
	end, err := time.Parse(time.RFC3339, text)
	if !is || err != nil {
		return access.Caller{}, false, nil
	}
	if time.Now().After(end) {
		return access.Caller{}, false, croft.Errorf(croft.Denied, "the token has expired")
	}
	return access.Caller{User: "brief", Project: "anna", Roles: []access.Role{access.Member}, Via: "token 11",
		Expires: end}, true, nil
}

// acceptTokens makes the API accept the tokens that it creates, and those of an issuer.
func acceptTokens(t *testing.T, issuer access.Authenticator) func(*simcloud.Cloud, *control.Config) {
	return func(c *simcloud.Cloud, config *control.Config) {
		tokens := access.NewBearer(c.Store.AccessTokens.NewFeed(), c.Store.Partition(), nil)
		c.Run(context.WithoutCancel(t.Context()), tokens.Run)
		config.Callers = access.First(tokens, brief{}, issuer, config.Callers)
	}
}

// connections is a listener that can end its connections, also those of WebSockets.
type connections struct {
	net.Listener
	mu  sync.Mutex
	all []net.Conn
}

// Accept implements net.Listener.
func (l *connections) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = append(l.all, c)
	}
	return c, err
}

// cut ends all connections, as the end of the server's process does.
func (l *connections) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.all {
		_ = c.Close() // may be closed already
	}
	l.all = nil
}

// client returns a client of the API for a caller of controltest.
func (s served) client(t *testing.T, token string) *client.Client {
	t.Helper()
	c, err := client.New(client.Settings{URL: s.api, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// create creates an instance that runs.
func (s served) create(t *testing.T, token, name string, change ...func(*api.NewInstance)) api.Instance {
	t.Helper()
	in := api.NewInstance{Waiting: api.Waiting{Wait: "running"}, InstanceRequest: api.InstanceRequest{Name: name,
		Query: "VCPU:1,MEMORY_MB:256,DISK_GB:1", Image: "debian-12"}}
	for _, one := range change {
		one(&in)
	}
	i, err := s.client(t, token).CreateInstance(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// visitor is a browser without scripts.
type visitor struct {
	served
	t    *testing.T
	http *http.Client
	form string // the token of the forms on the last page
	text string // the last page
	at   string // its address
	host string // by which the browser calls the server; empty: as in the address
}

// visitor returns a browser that is not logged in.
func (s served) visitor(t *testing.T) *visitor {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &visitor{served: s, t: t, http: &http.Client{Jar: jar}}
}

// login returns a browser that is logged in.
func (s served) login(t *testing.T, token string) *visitor {
	t.Helper()
	v := s.visitor(t)
	v.send(http.StatusOK, "/ui/login", url.Values{"token": {token}})
	return v
}

var formToken = regexp.MustCompile(`name="form" value="([^"]+)"`)

// do sends a request, and reads the page that answers it.
func (v *visitor) do(want int, r *http.Request) http.Header {
	v.t.Helper()
	answer, err := v.http.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	v.read(answer)
	if answer.StatusCode != want {
		v.t.Fatalf("%s %s: got %d, want %d:\n%s", r.Method, r.URL, answer.StatusCode, want, v.text)
	}
	return answer.Header
}

// read reads the page that answers a request.
func (v *visitor) read(answer *http.Response) {
	v.t.Helper()
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		v.t.Fatal(err)
	}
	v.text, v.at = string(text), answer.Request.URL.RequestURI()
	if found := formToken.FindStringSubmatch(v.text); found != nil {
		v.form = found[1]
	}
}

func (v *visitor) request(method, path, body string) *http.Request {
	v.t.Helper()
	r, err := http.NewRequestWithContext(v.t.Context(), method, v.url+path, strings.NewReader(body))
	if err != nil {
		v.t.Fatal(err)
	}
	if v.host != "" {
		r.Host = v.host
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	return r
}

// get opens a page.
func (v *visitor) get(want int, path string) http.Header {
	v.t.Helper()
	return v.do(want, v.request(http.MethodGet, path, ""))
}

// send sends a form, with the token of the last page.
func (v *visitor) send(want int, path string, f url.Values) http.Header {
	v.t.Helper()
	if f == nil {
		f = url.Values{}
	}
	if !f.Has("form") {
		f.Set("form", v.form)
	}
	return v.do(want, v.request(http.MethodPost, path, f.Encode()))
}

// says checks that the last page has a text.
func (v *visitor) says(text string) {
	v.t.Helper()
	if !strings.Contains(v.text, text) {
		v.t.Fatalf("%s does not say %q:\n%s", v.at, text, v.text)
	}
}

// hides checks that the last page does not have a text.
func (v *visitor) hides(text string) {
	v.t.Helper()
	if strings.Contains(v.text, text) {
		v.t.Errorf("%s says %q:\n%s", v.at, text, v.text)
	}
}

// event is a server-sent event.
type event struct{ kind, id, data string }

// follow returns the events of the list until the test or ctx ends.
func (v *visitor) follow(ctx context.Context, path, last string) (<-chan event, int) {
	v.t.Helper()
	r := v.request(http.MethodGet, path, "").WithContext(ctx)
	r.Header.Set("Last-Event-ID", last)
	if last == "" {
		r.Header.Del("Last-Event-ID")
	}
	answer, err := v.http.Do(r)
	if err != nil {
		v.t.Fatal(err)
	}
	all := make(chan event, 1000)
	go func() {
		defer close(all)
		defer answer.Body.Close()
		one := event{}
		for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
			name, value, _ := strings.Cut(lines.Text(), ": ")
			switch name {
			case "event":
				one.kind = value
			case "id":
				one.id = value
			case "data":
				one.data = value
			case "":
				if one.kind != "" {
					all <- one
				}
				one = event{}
			}
		}
	}()
	return all, answer.StatusCode
}
