package oidc_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/tenant/access/oidc"
)

// issuer is an OpenID Connect issuer with one key. It is its own transport, unless it is served over HTTP.
type issuer struct {
	url   string
	key   *ecdsa.PrivateKey
	kid   string
	asked atomic.Int64 // number of requests for documents
	away  atomic.Bool
}

func newKeys(t *testing.T) *issuer {
	t.Helper()
	i := &issuer{}
	i.rotate(t)
	return i
}

// rotate replaces the key.
func (i *issuer) rotate(t *testing.T) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	i.key, i.kid = key, encode(key.X.Bytes())[:8]
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func (i *issuer) document(path string) any {
	switch path {
	case "/.well-known/openid-configuration":
		return map[string]any{"issuer": i.url, "jwks_uri": i.url + "/keys",
			"authorization_endpoint": i.url + "/auth", "token_endpoint": i.url + "/token",
			"id_token_signing_alg_values_supported": []string{"ES256"}}
	case "/keys":
		pad := func(b []byte) string { return encode(append(make([]byte, 32-len(b)), b...)) }
		return map[string]any{"keys": []any{map[string]any{"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256",
			"kid": i.kid, "x": pad(i.key.X.Bytes()), "y": pad(i.key.Y.Bytes())}}}
	}
	return nil
}

// RoundTrip implements http.RoundTripper.
func (i *issuer) RoundTrip(r *http.Request) (*http.Response, error) {
	i.asked.Add(1)
	if i.away.Load() {
		return nil, errors.New("connection refused")
	}
	body, err := json.Marshal(i.document(r.URL.Path))
	return &http.Response{StatusCode: http.StatusOK, Status: "200 OK", Body: io.NopCloser(bytes.NewReader(body)),
		Header: http.Header{"Content-Type": {"application/json"}}, Request: r}, err
}

// ServeHTTP implements http.Handler.
func (i *issuer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	document := i.document(r.URL.Path)
	if document == nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(document)
}

// parts encodes header and claims.
func parts(t *testing.T, header, claims any) string {
	t.Helper()
	h, err := json.Marshal(header)
	c, failed := json.Marshal(claims)
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	return encode(h) + "." + encode(c)
}

// sign makes a JWT.
func (i *issuer) sign(t *testing.T, claims any) string {
	t.Helper()
	text := parts(t, map[string]string{"alg": "ES256", "kid": i.kid}, claims)
	sum := sha256.Sum256([]byte(text))
	r, s, err := ecdsa.Sign(rand.Reader, i.key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	signature := make([]byte, 64)
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return text + "." + encode(signature)
}

// unsigned returns a JWT with the algorithm none.
func unsigned(t *testing.T, claims any) string {
	return parts(t, map[string]string{"alg": "none"}, claims) + "."
}

// confused returns a JWT signed with the public key as a shared secret.
func (i *issuer) confused(t *testing.T, claims any) string {
	text := parts(t, map[string]string{"alg": "HS256", "kid": i.kid}, claims)
	mac := hmac.New(sha256.New, i.key.X.Bytes())
	mac.Write([]byte(text))
	return text + "." + encode(mac.Sum(nil))
}

// swapped returns the first token with the claims of the second.
func swapped(first, second string) string {
	a, b := strings.Split(first, "."), strings.Split(second, ".")
	return a[0] + "." + b[1] + "." + a[2]
}

func TestAnIssuerOverHTTP(t *testing.T) {
	i := newKeys(t)
	server := httptest.NewServer(i)
	defer server.Close()
	i.url = server.URL
	a, err := oidc.New(oidc.Config{Issuer: i.url, Audience: audience, Groups: groups,
		Transport: server.Client().Transport})
	if err != nil {
		t.Fatal(err)
	}
	if _, ok, err := a.Authenticate(t.Context(), request(t, i.sign(t, i.claims()))); !ok || err != nil {
		t.Errorf("got %v, %v", ok, err)
	}
	if i.asked.Load() != 0 {
		t.Error("it was not asked over HTTP")
	}
}

func TestTheIssuerIsAskedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := newKeys(t)
		i.url = "https://id.example.org"
		a := newIssuer(t, i)
		ask := func(token string, want croft.Kind, asked int64) {
			t.Helper()
			_, _, err := a.Authenticate(t.Context(), request(t, token))
			if croft.KindOf(err) != want || i.asked.Load() != asked {
				t.Errorf("%v, asked %d times; want %q, %d", err, i.asked.Load(), want, asked)
			}
		}
		i.away.Store(true)
		ask(i.sign(t, i.claims()), croft.Unavailable, 1)
		ask(i.sign(t, i.claims()), croft.Unavailable, 1) // the issuer is not asked for each token
		i.away.Store(false)
		time.Sleep(11 * time.Second)
		ask(i.sign(t, i.claims()), "", 3) // for its configuration and its keys
		ask(i.sign(t, i.claims()), "", 3)
		old := i.sign(t, i.claims())
		i.rotate(t)
		ask(i.sign(t, i.claims()), croft.Denied, 3) // too soon to ask for the new key
		ask(old, "", 3)
		time.Sleep(11 * time.Second)
		ask(i.sign(t, i.claims()), "", 4)
		stranger := newKeys(t)
		for range 100 { // with unknown keys
			stranger.rotate(t)
			ask(stranger.sign(t, i.claims()), croft.Denied, 4)
		}
		time.Sleep(11 * time.Second)
		ask(stranger.sign(t, i.claims()), croft.Denied, 5)
		time.Sleep(11 * time.Second)
		i.away.Store(true)
		ask(i.sign(t, i.claims()), "", 5) // known keys need no issuer
		ask(stranger.sign(t, i.claims()), croft.Unavailable, 6)
	})
}
