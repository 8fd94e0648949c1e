// Package oidctest is a small OpenID Connect issuer for tests: it signs tokens, lets users log in with a browser
// (authorization code with PKCE) or on another device (RFC 8628), and refreshes tokens.
package oidctest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Issuer is a running issuer. Its fields may be set before the first request.
type Issuer struct {
	URL    string
	Client string        // the only client that may log users in
	Life   time.Duration // lifetime of its tokens; an hour by default
	Asked  func()        // called before a token is issued or refused; may be nil

	key *ecdsa.PrivateKey

	mu        sync.Mutex
	next      int
	browser   *User // user of browsers; nil: they are refused
	asks      bool  // browsers get a page with a link instead of a redirect
	spoil     func(claims map[string]any)
	codes     map[string]grant   // by authorization code; each can be used once
	devices   map[string]*device // by device code
	refreshes map[string]User    // by refresh token; each can be used once
}

// User is the content of a token.
type User struct {
	Name   string
	Groups []string // nil: the claim is left out
}

// grant is what an authorization code stands for.
type grant struct {
	user      User
	nonce     string
	redirect  string
	challenge string
}

// device is a login in progress.
type device struct {
	userCode string
	user     *User // nil: not approved yet
	denied   bool
}

// Start runs an issuer until the test ends.
func Start(t testing.TB) *Issuer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("make a key: %v", err)
	}
	i := &Issuer{Client: "croft", Life: time.Hour, key: key, devices: map[string]*device{},
		refreshes: map[string]User{}, codes: map[string]grant{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", i.describe)
	mux.HandleFunc("GET /keys", i.keys)
	mux.HandleFunc("GET /auth", i.authorize)
	mux.HandleFunc("POST /device", i.begin)
	mux.HandleFunc("POST /token", i.give)
	server := httptest.NewServer(mux)
	i.URL = server.URL
	t.Cleanup(server.Close)
	return i
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // ignored: the client may have gone
}

func refuse(w http.ResponseWriter, code string) {
	reply(w, http.StatusBadRequest, map[string]string{"error": code})
}

func (i *Issuer) describe(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys",
		"authorization_endpoint": i.URL + "/auth", "token_endpoint": i.URL + "/token",
		"device_authorization_endpoint":         i.URL + "/device",
		"scopes_supported":                      []string{"openid", "profile", "groups", "offline_access"},
		"id_token_signing_alg_values_supported": []string{"ES256"}})
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func (i *Issuer) keys(w http.ResponseWriter, _ *http.Request) {
	point, err := i.key.PublicKey.Bytes() // 4, x, y
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	reply(w, http.StatusOK, map[string]any{"keys": []any{map[string]any{"kty": "EC", "crv": "P-256", "use": "sig",
		"alg": "ES256", "kid": "1", "x": encode(point[1:33]), "y": encode(point[33:])}}})
}

// Token returns a signed token for the client, valid for Life.
func (i *Issuer) Token(t testing.TB, u User) string {
	t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	text, err := i.sign(u, "")
	if err != nil {
		t.Fatalf("sign a token: %v", err)
	}
	return text
}

// LogIn sets the user whom browsers are; nil: they are refused. If asks is set, browsers get a page with a link that
// leads back, else they are led back at once.
func (i *Issuer) LogIn(u *User, asks bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.browser, i.asks = u, asks
}

// Spoil changes the claims of all tokens that are issued from now on; nil: it leaves them as they are.
func (i *Issuer) Spoil(change func(claims map[string]any)) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.spoil = change
}

// authorize leads a browser back with a code, or with an error.
func (i *Issuer) authorize(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	q := r.URL.Query()
	back, err := url.Parse(q.Get("redirect_uri"))
	if err != nil || !back.IsAbs() || q.Get("client_id") != i.Client {
		http.Error(w, "unknown client or redirect_uri", http.StatusBadRequest)
		return
	}
	answer := url.Values{"state": {q.Get("state")}}
	switch {
	case q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" ||
		q.Get("code_challenge") == "" || !slices.Contains(strings.Fields(q.Get("scope")), "openid"):
		answer.Set("error", "invalid_request")
	case i.browser == nil:
		answer.Set("error", "access_denied")
	default:
		i.next++
		code := fmt.Sprintf("code-secret-%d", i.next)
		i.codes[code] = grant{*i.browser, q.Get("nonce"), q.Get("redirect_uri"), q.Get("code_challenge")}
		answer.Set("code", code)
	}
	back.RawQuery = answer.Encode()
	if !i.asks {
		http.Redirect(w, r, back.String(), http.StatusFound)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintf(w, `<!doctype html><title>Issuer</title><a id="allow" href="%s">Allow</a>`,
		html.EscapeString(back.String()))
}

// redeem returns the user and the nonce of an authorization code, which can be used once.
func (i *Issuer) redeem(r *http.Request) (u User, nonce string, ok bool) {
	code := r.FormValue("code")
	g, ok := i.codes[code]
	delete(i.codes, code)
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	return g.user, g.nonce, ok && g.redirect == r.FormValue("redirect_uri") && g.challenge == encode(sum[:]) &&
		r.FormValue("client_id") == i.Client
}

func (i *Issuer) sign(u User, nonce string) (string, error) {
	claims := map[string]any{"iss": i.URL, "aud": i.Client, "sub": "id-" + u.Name, "preferred_username": u.Name,
		"iat": time.Now().Unix(), "exp": time.Now().Add(i.Life).Unix()}
	if u.Groups != nil {
		claims["groups"] = u.Groups
	}
	if nonce != "" {
		claims["nonce"] = nonce
	}
	if i.spoil != nil {
		i.spoil(claims)
	}
	body, err := json.Marshal(claims)
	if err != nil {
		return "", err
	}
	text := encode([]byte(`{"alg":"ES256","kid":"1"}`)) + "." + encode(body)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, i.key, sum[:])
	if err != nil {
		return "", err
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + encode(signature), nil
}

// begin starts a login on another device.
func (i *Issuer) begin(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if r.FormValue("client_id") != i.Client {
		refuse(w, "invalid_client")
		return
	}
	i.next++
	code, userCode := fmt.Sprintf("device-secret-%d", i.next), fmt.Sprintf("USER-%04d", i.next)
	i.devices[code] = &device{userCode: userCode}
	reply(w, http.StatusOK, map[string]any{"device_code": code, "user_code": userCode, "expires_in": 60, "interval": 1,
		"verification_uri": i.URL + "/login", "verification_uri_complete": i.URL + "/login?code=" + userCode})
}

// Approve confirms a login, as a user does in the browser. False: no login with this code is waiting.
func (i *Issuer) Approve(userCode string, u User) bool {
	return i.answer(userCode, func(d *device) { d.user = &u })
}

// Deny refuses the login with a code.
func (i *Issuer) Deny(userCode string) bool {
	return i.answer(userCode, func(d *device) { d.denied = true })
}

func (i *Issuer) answer(userCode string, do func(*device)) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, d := range i.devices {
		if d.userCode == userCode {
			do(d)
			return true
		}
	}
	return false
}

// Codes lists the codes of the waiting logins.
func (i *Issuer) Codes() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	var all []string
	for _, d := range i.devices {
		all = append(all, d.userCode)
	}
	slices.Sort(all)
	return all
}

// give issues tokens for a device code or a refresh token.
func (i *Issuer) give(w http.ResponseWriter, r *http.Request) {
	if i.Asked != nil {
		i.Asked()
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	var user User
	nonce := ""
	switch r.FormValue("grant_type") {
	case "authorization_code":
		known := false
		if user, nonce, known = i.redeem(r); !known {
			refuse(w, "invalid_grant")
			return
		}
	case "urn:ietf:params:oauth:grant-type:device_code":
		code := r.FormValue("device_code")
		d := i.devices[code]
		switch {
		case d == nil:
			refuse(w, "expired_token")
			return
		case d.denied:
			delete(i.devices, code)
			refuse(w, "access_denied")
			return
		case d.user == nil:
			refuse(w, "authorization_pending")
			return
		}
		user = *d.user
		delete(i.devices, code)
	case "refresh_token":
		known := false
		if user, known = i.refreshes[r.FormValue("refresh_token")]; !known {
			refuse(w, "invalid_grant")
			return
		}
		delete(i.refreshes, r.FormValue("refresh_token"))
	default:
		refuse(w, "unsupported_grant_type")
		return
	}
	token, err := i.sign(user, nonce)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	i.next++
	refresh := fmt.Sprintf("refresh-secret-%d", i.next)
	i.refreshes[refresh] = user
	reply(w, http.StatusOK, map[string]any{"access_token": "access-secret", "token_type": "Bearer",
		"expires_in": int(i.Life.Seconds()), "refresh_token": refresh, "id_token": token})
}

// Forget invalidates all refresh tokens.
func (i *Issuer) Forget() {
	i.mu.Lock()
	defer i.mu.Unlock()
	clear(i.refreshes)
}
