package oidc_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/tenant/access/oidc"
	"croft/tenant/access/oidc/oidctest"
)

const back = "http://127.0.0.1:1/ui/login/oidc"

// browse logs a browser in at the issuer, and returns the code.
func browse(t *testing.T, i *oidc.Issuer, a oidc.Handshake, transport http.RoundTripper) string {
	t.Helper()
	at, err := i.AuthorizationURL(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = answer.Body.Close()
	to, err := answer.Location()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(to.String(), back+"?") || to.Query().Get("state") != a.State {
		t.Fatalf("it leads to %s", to)
	}
	return to.Query().Get("code")
}

func TestABrowserLogsIn(t *testing.T) {
	issuer := oidctest.Start(t)
	transport := &http.Transport{DisableKeepAlives: true}
	i, err := oidc.New(oidc.Config{Issuer: issuer.URL, Audience: issuer.Client, Groups: groups, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	issuer.LogIn(&oidctest.User{Name: "ann", Groups: []string{"lab-users"}}, false)
	a := oidc.Handshake{Redirect: back, State: "state", Nonce: "nonce", Verifier: strings.Repeat("v", 43)}
	refused := func(what string, err error, kind croft.Kind, says string) {
		t.Helper()
		if croft.KindOf(err) != kind || !strings.Contains(err.Error(), says) ||
			strings.Contains(err.Error(), "secret-") {
			t.Errorf("%s: %v", what, err)
		}
	}
	code := browse(t, i, a, transport)
	got, err := i.Exchange(t.Context(), a, code)
	if err != nil {
		t.Fatal(err)
	}
	if got.Subject != "id-ann" || got.Refresh == "" || time.Until(got.Expires) < time.Minute {
		t.Errorf("got %+v", got)
	}
	if caller, ok, err := i.Authenticate(t.Context(), request(t, got.ID)); !ok || caller.User != "ann" {
		t.Errorf("the token is worth %+v, %v", caller, err)
	}
	_, err = i.Exchange(t.Context(), a, code)
	refused("a code that was used", err, croft.Denied, "its code was used already")
	for what, change := range map[string]func(*oidc.Handshake){
		"another verifier": func(a *oidc.Handshake) { a.Verifier = strings.Repeat("w", 43) },
		"another address":  func(a *oidc.Handshake) { a.Redirect += "2" },
		"another nonce":    func(a *oidc.Handshake) { a.Nonce = "other" },
	} {
		code, other := browse(t, i, a, transport), a
		change(&other)
		_, err = i.Exchange(t.Context(), other, code)
		refused(what, err, croft.Denied, "log in again")
	}
	renewed, err := i.Renew(t.Context(), got.Refresh, got.Subject)
	if err != nil || renewed.Subject != got.Subject || renewed.Refresh == "" || renewed.Refresh == got.Refresh {
		t.Errorf("renewed: %+v, %v", renewed, err)
	}
	_, err = i.Renew(t.Context(), got.Refresh, got.Subject)
	refused("a refresh token that was used", err, croft.Denied, "the login has ended there")
	_, err = i.Renew(t.Context(), renewed.Refresh, "id-eve")
	refused("another user", err, croft.Denied, "another user")
	issuer.Spoil(func(claims map[string]any) { claims["aud"] = "other" })
	_, err = i.Exchange(t.Context(), a, browse(t, i, a, transport))
	refused("a token for another client", err, croft.Denied, "does not count")
	issuer.Spoil(func(claims map[string]any) { claims["groups"] = strings.Repeat("x", 70<<10) })
	_, err = i.Exchange(t.Context(), a, browse(t, i, a, transport))
	refused("a huge token", err, croft.Denied, "64 KiB")
	for _, code := range []string{"access_denied", "server_error", "\x1b[2J<script>"} {
		refused(code, i.Refused(code), croft.Denied, "did not log you in: ")
	}
}

// stuck answers no request to give a token.
type stuck struct{ *issuer }

func (s stuck) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Path == "/token" {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	return s.issuer.RoundTrip(r)
}

func TestALoginAtAnIssuerThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := newKeys(t)
		keys.url = "https://id.example.org"
		i, err := oidc.New(oidc.Config{Issuer: keys.url, Audience: audience, Groups: groups, Transport: stuck{keys}})
		if err != nil {
			t.Fatal(err)
		}
		keys.away.Store(true)
		a := oidc.Handshake{Redirect: back, State: "state", Nonce: "nonce", Verifier: "verifier"}
		if _, err := i.AuthorizationURL(t.Context(), a); croft.KindOf(err) != croft.Unavailable {
			t.Errorf("without its configuration: %v", err)
		}
		keys.away.Store(false)
		time.Sleep(11 * time.Second)
		at, err := i.AuthorizationURL(t.Context(), a)
		if u, failed := url.Parse(at); err != nil || failed != nil ||
			u.Query().Get("code_challenge_method") != "S256" || u.Query().Get("nonce") != "nonce" ||
			strings.Contains(at, "verifier") {
			t.Errorf("the browser is led to %s, %v", at, err)
		}
		began := time.Now()
		for what, ask := range map[string]func() error{
			"a code":    func() error { _, err := i.Exchange(t.Context(), a, "code"); return err },
			"a renewal": func() error { _, err := i.Renew(t.Context(), "refresh", "id"); return err },
		} {
			if err := ask(); croft.KindOf(err) != croft.Unavailable {
				t.Errorf("%s: %v", what, err)
			}
		}
		if took := time.Since(began); took > 25*time.Second {
			t.Errorf("two requests took %s", took)
		}
	})
}
