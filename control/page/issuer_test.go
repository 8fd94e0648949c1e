package page_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"croft"
	"croft/control/page"
	"croft/internal/testing/browser"
	"croft/tenant/access/oidc"
	"croft/tenant/access/oidc/oidctest"
)

// atIssuer logs a user in at the issuer, for a path of the page; nil: the issuer refuses.
func (v *visitor) atIssuer(want int, u *oidctest.User, next string) {
	v.t.Helper()
	v.issuer.LogIn(u, false)
	v.get(want, "/ui/login/start?"+url.Values{"next": {next}}.Encode())
}

// attempt begins a login, and returns the address of the issuer's answer, which the browser has not opened yet.
func (v *visitor) attempt(u *oidctest.User) (back *url.URL, cookie *http.Cookie) {
	v.t.Helper()
	v.issuer.LogIn(u, false)
	stay := *v.http
	stay.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	at := v.url + "/ui/login/start"
	for range 2 {
		r := v.request(http.MethodGet, "", "")
		to, err := url.Parse(at)
		if err != nil {
			v.t.Fatal(err)
		}
		r.URL = to
		answer, err := stay.Do(r)
		if err != nil {
			v.t.Fatal(err)
		}
		_ = answer.Body.Close()
		if cookie == nil {
			cookie = answer.Cookies()[0]
		}
		if back, err = answer.Location(); err != nil {
			v.t.Fatal(err)
		}
		at = back.String()
	}
	return back, cookie
}

// logsInAtTheIssuer is one test, because the issuer has one user at a time.
func logsInAtTheIssuer(t *testing.T, s served, at string) {
	ann := &oidctest.User{Name: "ann", Groups: []string{"anna"}}
	both := &oidctest.User{Name: "zoe", Groups: []string{"anna", "berta"}}
	v := s.visitor(t)
	v.get(http.StatusOK, "/ui/instances?name=web")
	host := strings.TrimPrefix(s.issuer.URL, "http://")
	v.says(`<a class="button main" href="/ui/login/start?next=%2Fui%2Finstances%3Fname%3Dweb" data-issuer>Log in with <bdi>` + host)
	v.atIssuer(http.StatusOK, ann, "/ui/instances?name=web&state=")
	v.says(`<meta http-equiv="refresh" content="0;url=/ui/instances?name=web&amp;state=">`)
	v.says(`<a class="button main" href="/ui/instances?name=web&amp;state=">Continue`)
	v.get(http.StatusOK, "/ui/instances?name=web")
	v.says(">web<")
	v.says("<bdi>ann</bdi>")
	v.hides("Other project")

	for _, next := range []string{"//elsewhere.example/ui", "https://elsewhere.example/ui", "/ui/../elsewhere", "/uix",
		"/ui/" + strings.Repeat("x", 2000), `\\elsewhere.example`} {
		v := s.visitor(t)
		v.atIssuer(http.StatusOK, ann, next)
		v.hides("elsewhere.example")
		v.hides(strings.Repeat("x", 2000))
	}
	refusesBadAnswers(t, s, ann)
	withoutARole(t, s)
	choosesAProject(t, s, both, at)
	renewsTheSession(t, s, ann)
}

func refusesBadAnswers(t *testing.T, s served, ann *oidctest.User) {
	v := s.visitor(t)
	refused := func(status int, path, says string) {
		t.Helper()
		v.get(status, path)
		v.says(`role="alert"`)
		v.says(says)
		v.says(`name="token"`)
	}
	refused(http.StatusForbidden, "/ui/login/oidc?code=x&state=y", "has begun no login")
	v.atIssuer(http.StatusForbidden, nil, "/ui/hosts")
	v.says("it refuses, or you did")
	v.says("next=%2Fui%2Fhosts")

	back, cookie := v.attempt(ann)
	if !cookie.HttpOnly || cookie.SameSite != http.SameSiteLaxMode || cookie.MaxAge != 600 || cookie.Domain != "" {
		t.Errorf("the cookie of a login is %v", cookie)
	}
	code, state := back.Query().Get("code"), back.Query().Get("state")
	refused(http.StatusForbidden, "/ui/login/oidc?error=%3Cb%3Eyour+account&state=x", "belongs to another login")
	v.hides("your account")
	refused(http.StatusForbidden, back.RequestURI(), "has begun no login") // the attempt is over

	back, _ = v.attempt(ann)
	refused(http.StatusForbidden, "/ui/login/oidc?code="+code+"&state="+back.Query().Get("state"), "log in again")
	back, _ = v.attempt(ann)
	refused(http.StatusForbidden, "/ui/login/oidc?error=%3Cscript%3E&state="+back.Query().Get("state"), "it says")
	v.hides("<script>")
	back, _ = v.attempt(ann)
	refused(http.StatusForbidden, "/ui/login/oidc?state="+back.Query().Get("state"), "no code")

	back, cookie = v.attempt(ann)
	v.get(http.StatusOK, back.RequestURI())
	v.says("Continue")
	other := s.visitor(t) // has the cookie and the address of the answer
	r := other.request(http.MethodGet, back.RequestURI(), "")
	r.AddCookie(&http.Cookie{Name: cookie.Name, Value: cookie.Value})
	other.do(http.StatusForbidden, r)
	other.says("its code was used already")
	r = other.request(http.MethodGet, "/ui/login/oidc?code=x&state="+state, "")
	r.AddCookie(&http.Cookie{Name: cookie.Name, Value: cookie.Value})
	other.do(http.StatusForbidden, r)
	other.says("belongs to another login")

	s.issuer.Spoil(func(claims map[string]any) { claims["nonce"] = "other" })
	v.atIssuer(http.StatusForbidden, ann, "/ui")
	v.says("the token of another login")
	s.issuer.Spoil(nil)

	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	dead, err := oidc.New(oidc.Config{Issuer: gone.URL, Audience: "croft"})
	if err != nil {
		t.Fatal(err)
	}
	server, err := page.New(page.Config{API: s.proxy, Sessions: s.links.Store, Issuer: dead})
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewTLSServer(server.Handler())
	defer front.Close()
	v = s.visitor(t)
	v.url, v.http = front.URL, front.Client()
	refused(http.StatusServiceUnavailable, "/ui/login/start", "cannot be")
}

func withoutARole(t *testing.T, s served) {
	v := s.visitor(t)
	v.atIssuer(http.StatusUnauthorized, &oidctest.User{Name: "eve", Groups: []string{"cooks"}}, "/ui")
	v.says("no group of eve has a role in this cloud")
	v.get(http.StatusOK, "/ui/instances")
	v.says(`name="token"`)
}

func choosesAProject(t *testing.T, s served, both *oidctest.User, at string) {
	v := s.visitor(t)
	v.atIssuer(http.StatusOK, both, at)
	v.get(http.StatusOK, at)
	v.says("Choose a project")
	v.says(`name="next" value="` + at + `"`)
	v.says(`<button name="project" value="berta">`)
	v.send(http.StatusForbidden, "/ui/choose", url.Values{"project": {"anna"}, "form": {"x"}})
	v.says("not of your session")
	v.get(http.StatusOK, at)
	v.send(http.StatusUnauthorized, "/ui/choose", url.Values{"project": {"org"}, "next": {at}})
	v.says("no role in the project")
	v.get(http.StatusOK, at)
	v.send(http.StatusOK, "/ui/choose", url.Values{"project": {"anna"}, "next": {at}})
	v.says("running")
	v.says("<bdi>zoe</bdi>")
	v.send(http.StatusOK, "/ui/choose", url.Values{"project": {""}})
	v.says("Choose a project")
	v.send(http.StatusOK, "/ui/choose", url.Values{"project": {"berta"}, "next": {"//elsewhere.example"}})
	v.says("There are no instances yet")
	v.get(http.StatusNotFound, at)
	v.send(http.StatusOK, "/ui/logout", nil)
	v.send(http.StatusUnauthorized, "/ui/choose", url.Values{"project": {"anna"}})
	v.says("the session has ended")
}

func renewsTheSession(t *testing.T, s served, ann *oidctest.User) {
	short := func(claims map[string]any) { claims["exp"] = time.Now().Add(20 * time.Second).Unix() }
	s.issuer.Spoil(short) // each request renews
	defer s.issuer.Spoil(nil)
	v := s.visitor(t)
	v.atIssuer(http.StatusOK, ann, "/ui/instances")
	for range 3 {
		v.get(http.StatusOK, "/ui/instances")
		v.says(">web<")
	}
	s.issuer.Spoil(func(claims map[string]any) { short(claims); claims["sub"] = "eve" })
	v.get(http.StatusOK, "/ui/instances?name=web")
	v.says(`name="token"`)
	v.says("next=%2Fui%2Finstances%3Fname%3Dweb")
	s.issuer.Spoil(short)
	v.atIssuer(http.StatusOK, ann, "/ui/instances")
	v.get(http.StatusOK, "/ui/instances")
	v.says(">web<")
	s.issuer.Forget()
	v.get(http.StatusOK, "/ui/instances")
	v.says(`name="token"`)
	if _, err := s.logins.Renew(t.Context(), "refresh", "id-ann"); croft.KindOf(err) != croft.Denied {
		t.Errorf("a renewal without a login: %v", err)
	}
}

// comesBackFromTheIssuer logs in at an issuer on another site, where the user follows a link, so that the browser does
// not send the cookie of the session with the request that the issuer leads to.
func comesBackFromTheIssuer(s served, b *browser.Browser, check func(string)) {
	s.issuer.LogIn(&oidctest.User{Name: "ann", Groups: []string{"anna", "berta"}}, true)
	b.Go(strings.Replace(s.url, "127.0.0.1", "localhost", 1) + "/ui/instances?name=web")
	b.Until(`document.querySelector("#token") !== null`)
	b.Do(chromedp.Click(`a[href^="/ui/login/start"]`))
	b.Until(`location.hostname === "127.0.0.1" && document.querySelector("#allow") !== null`)
	b.Do(chromedp.Click("#allow"))
	b.Until(`location.hostname === "localhost" && document.querySelector('button[value="anna"]') !== null`)
	check("choose-ann")
	b.Do(chromedp.Click(`button[value="anna"]`))
	b.Until(`location.search === "?name=web" && document.querySelector("#live.on") !== null`)
	check("instances-ann")

	b.Go(strings.Replace(s.url, "127.0.0.1", "localhost", 1) + "/ui/volumes/new?project=anna")
	b.Do(chromedp.SendKeys("#f-name", "typed-before"))
	browser.Eval[bool](b, `(fetch("/ui/logout", {method: "POST", redirect: "manual",
		body: new URLSearchParams({form: document.querySelector("[name=form]").value})}).then(() => { window.out = 1; }),
		true)`)
	b.Until("window.out === 1")
	b.Do(chromedp.Submit(`form[action^="/ui/volumes/new"]`))
	b.Until(`document.querySelector("[name=kept-at]") !== null`)
	check("login-kept")
	b.Do(chromedp.Click(`a[href^="/ui/login/start"]`))
	b.Until(`location.hostname === "127.0.0.1" && document.querySelector("#allow") !== null`)
	b.Do(chromedp.Click("#allow"))
	b.Until(`location.hostname === "localhost" && document.querySelector('button[value="anna"]') !== null`)
	b.Do(chromedp.Click(`button[value="anna"]`))
	b.Until(`document.querySelector("#f-name") !== null && document.querySelector("#f-name").value === "typed-before"`)
	check("form-kept")
}
