// Package assertion lets the users of one partition call another. Home signs an assertion for each request that it
// forwards: who asks, in which project and which roles, for which partition, until when, and for exactly which request.
// The other side believes it if it is signed by one of its peers, fits the request, and was not used before; what its
// sender may do there, the mapping of the project says.
package assertion

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/uuid"

	"croft"
	"croft/access"
	"croft/internal/httpapi"
)

// How long an assertion counts, and how far clocks may be apart.
const (
	Life = 30 * time.Second
	Skew = 60 * time.Second
	// longest bounds the life of the assertions of others.
	longest = 60 * time.Second
	// Kept is how long the nonce of a used assertion is remembered at least: its clock may be ahead by Skew, its life
	// the longest, and its end is tolerated for Skew; the clocks of our own servers may be apart by as much again.
	Kept = longest + 3*Skew
)

// Header names the partition that a request is for, by its UUID or its alias where the request is sent.
const Header = "X-Croft-Partition"

// Scheme is the scheme of the header Authorization of a forwarded request.
const Scheme = "Croft-Peer"

// Assertion says who makes a request of another partition. Its form is a JWS of type jwsType, signed with Ed25519
// alone.
type Assertion struct {
	Issuer   croft.PartitionID `json:"iss"`
	Audience croft.PartitionID `json:"aud"`
	User     string            `json:"sub"`
	Project  croft.Project     `json:"project"` // of the issuer
	Roles    []access.Role     `json:"roles"`   // there
	Issued   int64             `json:"iat"`     // seconds since 1970
	Expires  int64             `json:"exp"`
	Nonce    string            `json:"jti"` // 32 hexadecimal digits
	Request  string            `json:"req"` // RequestDigest

	// ProjectID is the identity of Project; empty: it has no record, or the issuer is croft 1.7 or older. It is not
	// part of the assertion's text: see IdentityHeader.
	ProjectID croft.ProjectID `json:"-"`
}

const jwsType = "croft-peer+jwt"

var nonceForm = regexp.MustCompile(`^[0-9a-f]{32}$`)

func newNonce() string {
	var n [16]byte
	rand.Read(n[:]) // never fails
	return hex.EncodeToString(n[:])
}

// boundHeaders are the headers of a forwarded request that mean something to the other side.
var boundHeaders = []string{"Accept", "Content-Type", "If-Match", "Last-Event-Id", "Upgrade"}

// BoundHeaders lists the headers that are forwarded with a request, and that its assertion is bound to.
func BoundHeaders() []string { return slices.Clone(boundHeaders) }

// RequestDigest is what an assertion is bound to: method, path and query, headers that are forwarded, and body.
func RequestDigest(method string, u *url.URL, h http.Header, body []byte) string {
	parts := []string{"croft-peer-request 1", method, u.RequestURI()}
	for _, name := range boundHeaders {
		parts = append(parts, h.Get(name))
	}
	sum := sha256.Sum256(body)
	text, _ := json.Marshal(append(parts, hex.EncodeToString(sum[:]))) // strings: cannot fail
	sum = sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// maxText bounds an assertion: a user's name, a project, three roles.
const maxText = 2 << 10

// sealed is an assertion that was read, but is not verified.
type sealed struct {
	jws *jose.JSONWebSignature
	key string // the ID of the key that it names
	Assertion
}

// parse reads an assertion and verifies nothing but its form. Invalid.
func parse(text string) (sealed, error) {
	malformed := func(why string) (sealed, error) {
		return sealed{}, croft.Errorf(croft.Invalid, "the assertion cannot be read: %s", why)
	}
	if len(text) > maxText {
		return malformed("it is too long")
	}
	jws, err := jose.ParseSignedCompact(text, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil || len(jws.Signatures) != 1 {
		return malformed("it is no JWS that is signed with Ed25519")
	}
	h := jws.Signatures[0].Protected
	if typ, _ := h.ExtraHeaders[jose.HeaderType].(string); typ != jwsType || len(h.ExtraHeaders) != 1 ||
		h.JSONWebKey != nil || h.Algorithm != string(jose.EdDSA) {
		return malformed("its header is not that of type " + jwsType)
	}
	s := sealed{jws: jws, key: h.KeyID}
	d := json.NewDecoder(bytes.NewReader(jws.UnsafePayloadWithoutVerification()))
	d.DisallowUnknownFields()
	if err := d.Decode(&s.Assertion); err != nil || d.More() {
		return malformed("what it says is of another form")
	}
	for _, p := range []croft.PartitionID{s.Issuer, s.Audience} {
		if id, err := uuid.Parse(string(p)); err != nil || id.String() != string(p) {
			return malformed("it names no partitions")
		}
	}
	switch {
	case access.CheckUser(s.User) != nil, s.Project.Check() != nil:
		return malformed("it names no user, or no project")
	case !nonceForm.MatchString(s.Nonce):
		return malformed("its nonce is of another form")
	case s.Issued <= 0 || s.Expires <= s.Issued || time.Duration(s.Expires-s.Issued) > longest/time.Second:
		return malformed("its life is not between 1 and 60 seconds")
	}
	return s, nil
}

// inTime refuses an assertion of another time. Denied, and the sentence names how far the clocks are apart.
func (a Assertion) inTime(now time.Time) error {
	issued, expires := time.Unix(a.Issued, 0), time.Unix(a.Expires, 0)
	switch {
	case issued.After(now.Add(Skew)):
		return croft.Errorf(croft.Denied,
			"the assertion is of a time %s ahead of the clock here: clocks may be apart by %s",
			issued.Sub(now).Round(time.Second), Skew)
	case !expires.After(now.Add(-Skew)):
		return croft.Errorf(croft.Denied,
			"the assertion is %s old and counted for %s: the clock of its partition is behind "+
				"that here, by more than the %s that are allowed, or it came late", now.Sub(issued).Round(time.Second),
			expires.Sub(issued), Skew)
	}
	return nil
}

// fits refuses an assertion that was made for another request. Denied. It reads the body, at most `most` bytes of it,
// and puts it back. Invalid: it is longer.
func (a Assertion) fits(r *http.Request, most int64) ([]byte, error) {
	body, err := httpapi.ReadBody(nil, r, most, 0)
	if err != nil {
		return nil, err
	}
	if a.Request != RequestDigest(r.Method, r.URL, r.Header, body) {
		return nil, croft.Errorf(croft.Denied,
			"the assertion was made for another request: method, path, query, headers or "+
				"body are not those that were signed")
	}
	return body, nil
}
