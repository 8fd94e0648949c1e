package page

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"croft"
	"croft/control/page/session"
	"croft/internal/endpoint"
	"croft/tenant/access"
)

// securedHost returns the host of a public address with TLS; empty: it has no TLS.
func securedHost(public string) string {
	u, err := url.Parse(public)
	if err != nil || u.Scheme != "https" {
		return ""
	}
	return strings.TrimSuffix(u.Host, ":443")
}

// secure reports whether a browser reaches the server over TLS: directly, or at the public address, where a proxy ends
// it. No other header of a request shows that, because every client can send it.
func (s *Server) secure(r *http.Request) bool {
	return r.TLS != nil || s.secured != "" && strings.EqualFold(strings.TrimSuffix(r.Host, ":443"), s.secured)
}

// cookieName is the name of the session's cookie. It has the port, because cookies do not: clouds behind two ports of
// one host would end each other's sessions. Browsers accept the one with the prefix only over TLS and for the whole
// host, so that no other site of the domain can set it.
func (s *Server) cookieName(r *http.Request) string {
	name := "croft-session"
	if _, port, err := net.SplitHostPort(r.Host); err == nil {
		name += "-" + port
	}
	if s.secure(r) {
		return "__Host-" + name
	}
	return name
}

// setCookie sets the cookie of a session until it ends.
func (s *Server) setCookie(w http.ResponseWriter, r *http.Request, value string, age int) {
	s.setSecret(w, r, &http.Cookie{Name: s.cookieName(r), Value: value, MaxAge: age,
		SameSite: http.SameSiteStrictMode})
}

// setSecret sets a cookie that scripts do not see, and that is sent as safely as the request was.
func (s *Server) setSecret(w http.ResponseWriter, r *http.Request, c *http.Cookie) {
	c.Path, c.HttpOnly, c.Secure = "/", true, s.secure(r)
	http.SetCookie(w, c)
}

// forget removes the cookie of a session that has ended.
func (s *Server) forget(w http.ResponseWriter, r *http.Request) {
	if _, err := r.Cookie(s.cookieName(r)); err == nil {
		s.setCookie(w, r, "", -1)
	}
}

// alone returns the address of the login under a private name, for a browser that uses a loopback name: pages at other
// ports share such a name and would get the session's cookie. Empty: the request has another name.
func (s *Server) alone(r *http.Request, next string) string {
	host, port, err := net.SplitHostPort(r.Host)
	if err != nil || s.secure(r) || !endpoint.IsLoopback(r.Host) {
		return ""
	}
	if ip, err := netip.ParseAddr(host); err == nil && ip.Is6() {
		return "" // the name is looked up as 127.0.0.1 first, where another server may listen
	}
	u := url.URL{Scheme: "http", Host: net.JoinHostPort(endpoint.OwnName(), port), Path: Root + "/login",
		RawQuery: url.Values{"next": {next}}.Encode()}
	return u.String()
}

// loginForm is what the page of the login shows.
type loginForm struct {
	Next string
	Says string // why the last attempt failed
	// The browser came from another site, so it did not send the cookie of a session that it may have.
	Elsewhere bool
	Issuer    *issuerLink // nil: the cloud has none
	Kept      *kept       // the form whose session has ended; nil: no form was sent
	Alone     string      // address of the login under a name that no other page has
}

func (s *Server) showLogin(w http.ResponseWriter, r *http.Request) {
	s.answerLogin(w, r, http.StatusOK, local(r.URL.Query().Get("next")), nil)
}

// answerLogin answers with the page of the login, and says why the last attempt failed.
func (s *Server) answerLogin(w http.ResponseWriter, r *http.Request, status int, next string, err error) {
	s.askLogin(w, r, status, next, nil, err)
}

// askLogin is answerLogin that keeps a form.
func (s *Server) askLogin(w http.ResponseWriter, r *http.Request, status int, next string, k *kept, err error) {
	d := loginForm{Next: next, Issuer: s.loginLink(next), Kept: k,
		Elsewhere: err == nil && r.Header.Get("Sec-Fetch-Site") == "cross-site" &&
			!strings.Contains(r.Host, ".localhost")} // to which s.alone leads
	if err != nil {
		d.Says = err.Error()
	}
	if k == nil {
		d.Alone = s.alone(r, next)
	}
	f := frame{Title: "Log in", Theme: theme(r), Help: helpFor(r.Pattern), Data: d}
	if err := s.render(w, status, "login", f); err != nil {
		s.fail(w, r, err)
	}
}

// mostLogin bounds the body of the login, which may have a form that is kept.
const mostLogin = mostForm + 64<<10

// login starts a session with the token in the form.
func (s *Server) login(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(from(r), answerTime)
	defer cancel()
	if err := readForm(w, r, mostLogin); err != nil {
		s.answerLogin(w, r, http.StatusBadRequest, Root, err)
		return
	}
	token := strings.TrimSpace(r.PostForm.Get("token"))
	err := croft.Errorf(croft.Invalid, "paste a token: `croft token create --for api` makes one")
	var secret session.Secret
	if token != "" {
		secret, err = s.begin(ctx, w, r, session.Credentials{Token: token})
	}
	next, k := local(r.PostForm.Get("next")), keptAgain(r)
	if ended(err) && !strings.HasPrefix(token, "croft_") && !strings.HasPrefix(token, "ey") { // nor a JWT
		err = croft.Errorf(croft.Denied, "this is no token of the cloud: its tokens begin with croft_")
		s.askLogin(w, r, http.StatusUnauthorized, next, k, err)
		return
	}
	if err != nil {
		s.askLogin(w, r, failureOf(r, err).Status, next, k, err)
		return
	}
	s.goOn(w, r, next, k, secret)
}

// begin starts a session with credentials that the API accepts. The browser's former session ends.
func (s *Server) begin(ctx context.Context, w http.ResponseWriter, r *http.Request,
	credentials session.Credentials) (secret session.Secret, err error) {
	caller, err := s.whoami(ctx, credentials)
	if projects := projectsIn(err); len(projects) > 0 { // the next page asks for one
		of := credentials
		of.Project = projects[0]
		caller, err = s.whoami(ctx, of)
	}
	if err != nil {
		return secret, err
	}
	end := caller.Expires
	if credentials.Refresh == "" && !credentials.Expires.IsZero() {
		end = credentials.Expires
	}
	if cookie, err := r.Cookie(s.cookieName(r)); err == nil {
		if former, err := session.Parse(cookie.Value); err == nil {
			if err := s.sessions.End(ctx, former); err != nil {
				return secret, err
			}
		}
	}
	secret, record, err := s.sessions.Begin(ctx, caller.User, caller.Via, credentials, end)
	if err != nil {
		return secret, err
	}
	s.setCookie(w, r, secret.Text(), max(1, int(time.Until(record.Expires)/time.Second)))
	return secret, nil
}

// whoami returns the user with credentials, if the API accepts them.
func (s *Server) whoami(ctx context.Context, credentials session.Credentials) (access.Caller, error) {
	c, err := s.client(credentials)
	if err != nil {
		return access.Caller{}, croft.Errorf(croft.Denied, "the token has white space in it: paste it as a whole, and "+
			"nothing else")
	}
	return c.Whoami(ctx)
}

// follow starts a session with a one-time link. A page of another site cannot lead a browser to it, because its user
// would then work with the credentials of another person.
func (s *Server) follow(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(from(r), answerTime)
	defer cancel()
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "none" {
		s.fail(w, r, croft.Errorf(croft.Denied, "a link that logs in works only in the address bar: copy it there"))
		return
	}
	if r.Method == http.MethodHead || r.Header.Get("Sec-Purpose") != "" { // a preview must not use it up
		w.WriteHeader(http.StatusNoContent)
		return
	}
	link, err := session.Parse(r.PathValue("link"))
	if err != nil {
		s.fail(w, r, croft.Errorf(croft.Denied, "this is no link that logs in: was it cut off? "+
			"`croft page` makes another"))
		return
	}
	credentials, err := s.sessions.Follow(ctx, link)
	if err == nil {
		_, err = s.begin(ctx, w, r, session.Credentials{Token: credentials})
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	http.Redirect(w, r, Root, http.StatusSeeOther)
}

// logout ends the session everywhere.
func (v *visit) logout() error {
	if err := v.sessions.End(v.ctx, v.secret); err != nil {
		return err
	}
	v.forget(v.w, v.r)
	http.Redirect(v.w, v.r, Root+"/login", http.StatusSeeOther)
	return nil
}

// Link returns the address of a page that logs in once with credentials, and when it expires.
func (s *Server) Link(ctx context.Context, credentials string) (address string, expires time.Time, err error) {
	link, record, err := s.sessions.Link(ctx, credentials)
	return s.address + Root + "/link/" + link.Text(), record.Expires, err
}
