package assertion

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"croft"
	"croft/control/federation"
	"croft/tenant/access"
)

const (
	here  croft.PartitionID = "11111111-1111-4111-8111-111111111111"
	there croft.PartitionID = "22222222-2222-4222-8222-222222222222"
	other croft.PartitionID = "33333333-3333-4333-8333-333333333333"
)

// memory implements Nonces.
type memory struct {
	mu   sync.Mutex
	used map[string]bool
}

func (m *memory) Use(_ context.Context, p croft.PartitionID, nonce string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.used[string(p)+nonce] {
		return croft.Errorf(croft.Conflict, "used")
	}
	m.used[string(p)+nonce] = true
	return nil
}

// sides are a signing partition, and the authenticator of another partition.
type sides struct {
	public  federation.PublicKey
	private ed25519.PrivateKey
	asked   *Authenticator
	now     time.Time
}

func newSides(t testing.TB) *sides {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := &sides{public: federation.PublicKeyOf(public), private: private, now: time.Now().Truncate(time.Second)}
	book := NewBook(nil)
	s.asked = &Authenticator{Partition: there, Book: book, Nonces: &memory{used: map[string]bool{}}, Most: 1 << 10,
		Now: func() time.Time { return s.now }}
	s.know(access.Member, access.Reader, access.Member)
	return s
}

// know makes the signing partition a peer of the other one, where its project web is mapped to shop.
func (s *sides) know(role access.Role, roles ...access.Role) {
	p := federation.Peer{Endpoint: "https://east.example", Keys: []federation.PublicKey{s.public}, Roles: roles}
	s.asked.Book.replace([]federation.Partition{{ID: here, Alias: "east", Peer: &p}},
		[]federation.Mapping{{Project: "shop", Peer: here, Theirs: "web", Role: role}})
}

const body = `{"name":"web1"}`

// request returns the request that the assertions are made for.
func request(t testing.TB) *http.Request {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/v1/instances?wait=running", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	return r
}

// good returns a valid assertion.
func (s *sides) good(t testing.TB) Assertion {
	t.Helper()
	r := request(t)
	return Assertion{Issuer: here, Audience: there, User: "anna", Project: "web", Roles: []access.Role{access.Member},
		Issued: s.now.Unix(), Expires: s.now.Add(Life).Unix(), Nonce: newNonce(),
		Request: RequestDigest(r.Method, r.URL, r.Header, []byte(body))}
}

func (s *sides) sign(t testing.TB, a Assertion) string {
	t.Helper()
	text, err := sign(a, jwsType, s.private, s.public.ID())
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// ask sends a request with an assertion.
func (s *sides) ask(r *http.Request, text string) (access.Caller, bool, error) {
	r.Header.Set("Authorization", Scheme+" "+text)
	return s.asked.Authenticate(context.Background(), r)
}

func TestAnAssertionCountsForItsRequest(t *testing.T) {
	s := newSides(t)
	r := request(t)
	caller, ok, err := s.ask(r, s.sign(t, s.good(t)))
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if caller.User != "anna@east" || caller.Project != "shop" || !slices.Equal(caller.Roles,
		[]access.Role{access.Reader, access.Member}) || caller.Partition != there || caller.Peer != here ||
		caller.Via != "peer east, project web" {
		t.Errorf("the caller is %+v", caller)
	}
	again, ok, err := s.asked.Authenticate(t.Context(), r)
	if err != nil || !ok || again.User != caller.User {
		t.Errorf("a request that goes on: %v, %v", again, err)
	}
	if text, err := io.ReadAll(r.Body); err != nil || string(text) != body {
		t.Errorf("the body is %q, %v", text, err)
	}
	s.know(access.Reader, access.Reader, access.Member)
	if again, _, err = s.asked.Authenticate(t.Context(), r); err != nil || slices.Equal(again.Roles, caller.Roles) {
		t.Errorf("a mapping that changed: %v, %v", again, err)
	}
	s.asked.Book.replace(nil, nil)
	if _, ok, err := s.asked.Authenticate(t.Context(), r); ok || croft.KindOf(err) != croft.Denied {
		t.Errorf("a peer that was removed goes on: %v", err)
	}
	if _, ok, err := s.asked.Authenticate(t.Context(), request(t)); ok || err != nil {
		t.Errorf("a request without an assertion: %v, %v", ok, err)
	}
}

func TestWhatNoAssertionIs(t *testing.T) {
	s := newSides(t)
	stranger, strangers, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signed := func(change func(*Assertion)) func() (*http.Request, string) {
		return func() (*http.Request, string) {
			a := s.good(t)
			change(&a)
			return request(t), s.sign(t, a)
		}
	}
	asked := func(change func(*http.Request)) func() (*http.Request, string) {
		return func() (*http.Request, string) {
			r := request(t)
			change(r)
			return r, s.sign(t, s.good(t))
		}
	}
	// with signs the good assertion with another key, algorithm, type or header.
	with := func(alg jose.SignatureAlgorithm, key any, typ string, more map[jose.HeaderKey]any) func() (*http.Request,
		string) {
		return func() (*http.Request, string) {
			o := (&jose.SignerOptions{}).WithType(jose.ContentType(typ))
			for k, v := range more {
				o = o.WithHeader(k, v)
			}
			signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key,
				KeyID: s.public.ID()}}, o)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := json.Marshal(s.good(t))
			jws, err := signer.Sign(text)
			if err != nil {
				t.Fatal(err)
			}
			compact, err := jws.CompactSerialize()
			if err != nil {
				t.Fatal(err)
			}
			return request(t), compact
		}
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	public := s.private.Public().(ed25519.PublicKey)
	segment := base64.RawURLEncoding.EncodeToString
	hour := func(sign int64) func(*Assertion) {
		return func(a *Assertion) { a.Issued, a.Expires = a.Issued+sign*3600, a.Expires+sign*3600 }
	}
	for _, c := range []struct {
		name string
		make func() (*http.Request, string)
		says string
	}{
		{"one whose user was altered", func() (*http.Request, string) {
			parts := strings.Split(s.sign(t, s.good(t)), ".")
			payload, _ := base64.RawURLEncoding.DecodeString(parts[1])
			parts[1] = segment(bytes.Replace(payload, []byte("anna"), []byte("olga"), 1))
			return request(t), strings.Join(parts, ".")
		}, "altered"},
		{"one whose signature was altered", func() (*http.Request, string) {
			text := s.sign(t, s.good(t))
			parts := strings.Split(text, ".")
			raw, _ := base64.RawURLEncoding.DecodeString(parts[2])
			raw[0] ^= 1
			return request(t), parts[0] + "." + parts[1] + "." + segment(raw)
		}, "altered"},
		{"one of a clock an hour ahead", signed(hour(1)), "1h ahead"},
		{"one of a clock an hour behind", signed(hour(-1)), "1h old"},
		{"one that expired", signed(func(a *Assertion) { a.Issued, a.Expires = a.Issued-100, a.Issued-70 }),
			"1m40s old"},
		{"one that counts for long", signed(func(a *Assertion) { a.Expires += 3600 }), "its life"},
		{"one that ends before it begins", signed(func(a *Assertion) { a.Expires = a.Issued - 1 }), "its life"},
		{"one for another partition", signed(func(a *Assertion) { a.Audience = other }), "is for partition " +
			string(other)},
		{"one of nobody that is known", signed(func(a *Assertion) { a.Issuer = other }), "is no peer"},
		{"one of home itself", signed(func(a *Assertion) { a.Issuer = there }), "is no peer"},
		{"one of no partition", signed(func(a *Assertion) { a.Issuer = "east" }), "no partitions"},
		{"one of a user that cannot be", signed(func(a *Assertion) { a.User = "an\nna" }), "no user"},
		{"one of a project that cannot be", signed(func(a *Assertion) { a.Project = "../x" }),
			"no user, or no project"},
		{"one of a project without a mapping", signed(func(a *Assertion) { a.Project = "lab" }), "has no project here"},
		{"one without a nonce", signed(func(a *Assertion) { a.Nonce = "" }), "nonce"},
		{"one whose nonce leads elsewhere", signed(func(a *Assertion) { a.Nonce = "../../" + a.Nonce }), "nonce"},
		{"one of an operator", signed(func(a *Assertion) { a.Roles = []access.Role{access.PartitionAdmin} }),
			"give none"},
		{"one of an agent", signed(func(a *Assertion) { a.Roles = []access.Role{access.Agent} }), "give none"},
		{"one without roles", signed(func(a *Assertion) { a.Roles = nil }), "give none"},
		{"one for another body", asked(func(r *http.Request) { r.Body = io.NopCloser(strings.NewReader("{}")) }),
			"another request"},
		{"one for another method", asked(func(r *http.Request) { r.Method = http.MethodDelete }), "another request"},
		{"one for another path", asked(func(r *http.Request) { r.URL.Path = "/v1/keys" }), "another request"},
		{"one for another query", asked(func(r *http.Request) { r.URL.RawQuery = "wait=gone" }), "another request"},
		{"one for another generation", asked(func(r *http.Request) { r.Header.Set("If-Match", "7") }),
			"another request"},
		{"one that somebody else signed", with(jose.EdDSA, strangers, jwsType, nil), "altered"},
		{"one of a key that nobody told", func() (*http.Request, string) {
			text, _ := sign(s.good(t), jwsType, strangers, federation.PublicKeyOf(stranger).ID())
			return request(t), text
		}, "give those of this cloud a new card"},
		{"one that is not signed", func() (*http.Request, string) {
			text, _ := json.Marshal(s.good(t))
			return request(t), segment([]byte(fmt.Sprintf(`{"alg":"none","typ":%q,"kid":%q}`, jwsType,
				s.public.ID()))) + "." +
				segment(text) + "."
		}, "Ed25519"},
		{"one with the public key as a secret", with(jose.HS256, []byte(public), jwsType, nil), "Ed25519"},
		{"one that is signed with RSA", with(jose.RS256, rsaKey, jwsType, nil), "Ed25519"},
		{"a token of another type", with(jose.EdDSA, s.private, "JWT", nil), "of type"},
		{"one with more in its header", with(jose.EdDSA, s.private, jwsType, map[jose.HeaderKey]any{"x": "y"}),
			"header"},
		{"one with fields that nobody knows", func() (*http.Request, string) {
			text, _ := json.Marshal(map[string]any{"iss": here, "admin": true})
			signer, _ := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: s.private},
				(&jose.SignerOptions{}).WithType(jwsType))
			jws, _ := signer.Sign(text)
			compact, _ := jws.CompactSerialize()
			return request(t), compact
		}, "another form"},
		{"nothing", func() (*http.Request, string) { return request(t), "" }, "cannot be read"},
		{"dots", func() (*http.Request, string) { return request(t), ".." }, "cannot be read"},
		{"a megabyte", func() (*http.Request, string) { return request(t), strings.Repeat("x", 1<<20) }, "too long"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, text := c.make()
			caller, ok, err := s.ask(r, text)
			if ok || croft.KindOf(err) != croft.Denied || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%+v, %v, %v, want %q", caller, ok, err, c.says)
			}
		})
	}
	r := request(t)
	r.Body = io.NopCloser(strings.NewReader(strings.Repeat("x", 2<<10)))
	if _, ok, err := s.ask(r, s.sign(t, s.good(t))); ok || croft.KindOf(err) != croft.Invalid {
		t.Errorf("a body that is too long: %v", err)
	}
}

func TestClocksMayBeAMinuteApart(t *testing.T) {
	for name, apart := range map[string]time.Duration{"behind": -Skew - Life + 2*time.Second,
		"ahead": Skew - time.Second} {
		s := newSides(t)
		text := s.sign(t, s.good(t))
		s.now = s.now.Add(-apart)
		if _, ok, err := s.ask(request(t), text); !ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestClocksMayNotBeFurtherApart(t *testing.T) {
	for name, apart := range map[string]time.Duration{"behind": -Skew - Life - 2*time.Second,
		"ahead": Skew + 2*time.Second} {
		s := newSides(t)
		text := s.sign(t, s.good(t))
		s.now = s.now.Add(-apart)
		if _, ok, err := s.ask(request(t), text); ok || croft.KindOf(err) != croft.Denied ||
			!strings.Contains(err.Error(), "clock") {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
	}
}

// unsure is a Nonces that is unavailable.
type unsure struct{}

func (unsure) Use(context.Context, croft.PartitionID, string) error {
	return croft.Errorf(croft.Unavailable, "etcd does not answer")
}

func TestAnAssertionOfWhichNobodyKnowsWhetherItWasUsedIsRefused(t *testing.T) {
	s := newSides(t)
	s.asked.Nonces = unsure{}
	if _, ok, err := s.ask(request(t), s.sign(t, s.good(t))); ok || croft.KindOf(err) != croft.Unavailable {
		t.Errorf("%v, %v", ok, err)
	}
}

func TestAnAssertionCountsOnce(t *testing.T) {
	s := newSides(t)
	text := s.sign(t, s.good(t))
	if _, ok, err := s.ask(request(t), text); !ok {
		t.Fatal(err)
	}
	if _, ok, err := s.ask(request(t), text); ok || !strings.Contains(err.Error(), "used before") {
		t.Errorf("the second time: %v, %v", ok, err)
	}
}

func TestRolesOfUsersOfPeers(t *testing.T) {
	r, m, a := access.Reader, access.Member, access.ProjectAdmin
	for _, c := range []struct {
		name    string
		mapping access.Role
		peer    []access.Role
		theirs  []access.Role
		want    []access.Role
	}{
		{"a member there is one here", m, []access.Role{r, m}, []access.Role{m}, []access.Role{r, m}},
		{"an admin there is what the mapping says", m, []access.Role{r, m, a}, []access.Role{a}, []access.Role{r, m}},
		{"a reader there is no more here", a, []access.Role{r, m, a}, []access.Role{r}, []access.Role{r}},
		{"the peer's roles bound all", a, []access.Role{r}, []access.Role{a}, []access.Role{r}},
		{"a reader is nothing where only members come", m, []access.Role{m}, []access.Role{r}, []access.Role{}},
	} {
		got := federation.Mapping{Role: c.mapping}.Allows(federation.Peer{Roles: c.peer}, c.theirs)
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestKeysStayInFilesOfTheirOwner(t *testing.T) {
	k := &Keys{Dir: filepath.Join(t.TempDir(), "peers")}
	first, err := k.Open()
	if err != nil || len(first) != 1 {
		t.Fatal(first, err)
	}
	again, err := (&Keys{Dir: k.Dir}).Open()
	if err != nil || len(again) != 1 || again[0].Public != first[0].Public {
		t.Fatalf("opened again: %v, %v", again, err)
	}
	signedBy := func() string {
		signed, err := k.Sign(Assertion{Issuer: here, Audience: there, User: "anna", Project: "web"})
		if err != nil {
			t.Fatal(err)
		}
		s, err := parse(signed.Assertion)
		if err != nil {
			t.Fatal(err)
		}
		return s.key
	}
	if got := signedBy(); got != first[0].Public.ID() {
		t.Errorf("signed by %s", got)
	}
	if _, err := k.Make(time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if got := signedBy(); got != first[0].Public.ID() {
		t.Errorf("a key signs before its time: %s", got)
	}
	second, err := k.Make(time.Now().Add(-time.Second))
	if err != nil {
		t.Fatal(err)
	}
	if got := signedBy(); got != second.Public.ID() {
		t.Errorf("signed by %s after another key was made, want %s", got, second.Public.ID())
	}
	files, err := filepath.Glob(filepath.Join(k.Dir, "*"))
	if err != nil || len(files) != 3 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f, info.Mode(), err)
		}
	}
	if err := os.Chmod(files[0], 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := (&Keys{Dir: k.Dir}).Open(); croft.KindOf(err) != croft.Invalid ||
		!strings.Contains(err.Error(), "others may read") {
		t.Errorf("a key that others may read: %v", err)
	}
	if err := os.WriteFile(files[0], []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(files[0], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := (&Keys{Dir: k.Dir}).Open(); croft.KindOf(err) != croft.Invalid {
		t.Errorf("a damaged key: %v", err)
	}
}

func FuzzAssertion(f *testing.F) {
	s := newSides(f)
	text := s.sign(f, s.good(f))
	f.Add(text)
	f.Add(strings.Replace(text, ".", "..", 1))
	f.Add("eyJhbGciOiJub25lIn0.e30.")
	f.Fuzz(func(t *testing.T, given string) {
		caller, ok, err := s.ask(request(t), given)
		if ok == (err != nil) {
			t.Errorf("%v, %v", ok, err)
		}
		if ok && given != text {
			t.Errorf("%q makes %+v", given, caller)
		}
	})
}

// laggingPeers is a feed that reports a peer only in CatchUp.
type laggingPeers struct {
	book *Book
	with func()
}

func (laggingPeers) WatchPeers(ctx context.Context, _ func([]federation.Partition, []federation.Mapping)) error {
	<-ctx.Done()
	return ctx.Err()
}

func (f laggingPeers) CatchUp(context.Context) error {
	f.with()
	return nil
}

func newKey(t *testing.T) ed25519.PublicKey {
	t.Helper()
	public, _, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return public
}

// TestAPeerThatWasJustAddedIsKnown checks that an unknown peer makes the book catch up with the stored records.
func TestAPeerThatWasJustAddedIsKnown(t *testing.T) {
	s := newSides(t)
	s.asked.Book.replace(nil, nil)
	s.asked.Book.feed = laggingPeers{s.asked.Book, func() { s.know(access.Member, access.Reader, access.Member) }}
	if _, ok, err := s.ask(request(t), s.sign(t, s.good(t))); !ok || err != nil {
		t.Errorf("a user of the peer: %t, %v", ok, err)
	}
	s.asked.Book.replace(nil, nil)
	if p, err := s.asked.Book.Find(t.Context(), "east"); err != nil || p.ID != here {
		t.Errorf("the peer: %+v, %v", p, err)
	}
	if _, err := s.asked.Book.Find(t.Context(), "west"); croft.KindOf(err) != croft.NotFound {
		t.Errorf("a stranger: %v", err)
	}
}

// TestWhatJustChangedOfAPeerCounts checks that a new key of a peer, and a mapping with a higher role, are valid at
// servers whose books are older.
func TestWhatJustChangedOfAPeerCounts(t *testing.T) {
	s := newSides(t)
	s.asked.Book.feed = laggingPeers{s.asked.Book, func() { s.know(access.Member, access.Reader, access.Member) }}
	former := s.public
	s.public = federation.PublicKeyOf(newKey(t))
	s.know(access.Member, access.Reader, access.Member)
	s.public = former
	if _, ok, err := s.ask(request(t), s.sign(t, s.good(t))); !ok || err != nil {
		t.Errorf("a user of the peer, which has a new key: %t, %v", ok, err)
	}
	for _, less := range []func(){
		func() { s.know(access.Reader) },
		func() { s.know(access.Member) },
		func() {
			s.asked.Book.replace([]federation.Partition{{ID: here, Alias: "east", Peer: &federation.Peer{}}}, nil)
		},
	} {
		if less(); s.asked.Book.peers[here].Peer == nil {
			t.Fatal("the peer is unknown")
		}
		if c, ok, err := s.ask(request(t), s.sign(t, s.good(t))); !ok || err != nil || !c.Has(access.Member) {
			t.Errorf("a user of the peer, whose roles count for more now: %+v, %t, %v", c, ok, err)
		}
	}
}
