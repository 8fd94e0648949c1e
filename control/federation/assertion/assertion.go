// Package assertion authenticates the users of one partition at another. Home signs an assertion for each request that
// it forwards: the user, project and roles, the target partition, the expiry, and a digest of the request. The target
// accepts it if one of its peers signed it, it matches the request, and it was not used before. The mapping of the
// project then determines what the user may do.
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
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/uuid"

	"croft"
	"croft/internal/httpapi"
	"croft/internal/lazyregexp"
	"croft/internal/wording"
	"croft/tenant/access"
)

// The lifetime of an assertion, and the tolerated difference of clocks.
const (
	Life = 30 * time.Second
	Skew = 60 * time.Second
	// longest bounds the lifetime of received assertions.
	longest = 60 * time.Second
	// Kept is the minimum time for which the nonce of a used assertion is kept. It is the sum of the longest lifetime,
	// Skew for an issuer's clock that is ahead, Skew of tolerance after its end, and Skew for differences between the
	// clocks of our own servers.
	Kept = longest + 3*Skew
)

// Header names the partition that a request is for, by its UUID or by its alias at the sender.
const Header = "X-Croft-Partition"

// Scheme is the scheme of the Authorization header of a forwarded request.
const Scheme = "Croft-Peer"

// Assertion says who makes a request to another partition. It is encoded as a JWS of type jwsType, signed with Ed25519.
type Assertion struct {
	Issuer   croft.PartitionID `json:"iss"`
	Audience croft.PartitionID `json:"aud"`
	User     string            `json:"sub"`
	Project  croft.Project     `json:"project"` // at the issuer
	Roles    []access.Role     `json:"roles"`   // at the issuer
	Issued   int64             `json:"iat"`     // seconds since 1970
	Expires  int64             `json:"exp"`
	Nonce    string            `json:"jti"` // 32 hexadecimal digits
	Request  string            `json:"req"` // RequestDigest

	// ProjectID is the identity of Project; empty: the project has no record, or the issuer runs croft 1.7 or older. It
	// is not part of the assertion's text: see IdentityHeader.
	ProjectID croft.ProjectID `json:"-"`
}

const jwsType = "croft-peer+jwt"

var nonceForm = lazyregexp.New(`^[0-9a-f]{32}$`)

func newNonce() string {
	var n [16]byte
	rand.Read(n[:]) // never fails
	return hex.EncodeToString(n[:])
}

// boundHeaders are the headers of a forwarded request that have a meaning for the target.
var boundHeaders = []string{"Accept", "Content-Type", "If-Match", "Last-Event-Id", "Upgrade"}

// BoundHeaders lists the headers that are forwarded with a request, and that its assertion covers.
func BoundHeaders() []string { return slices.Clone(boundHeaders) }

// RequestDigest returns the digest of a request for its assertion. It covers method, path and query, forwarded headers,
// and body.
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

// maxText bounds an assertion, in bytes: a user name, a project, three roles.
const maxText = 2 << 10

// sealed is a parsed assertion that is not verified yet.
type sealed struct {
	jws *jose.JSONWebSignature
	key string // the ID of the key that the assertion names
	Assertion
}

// parse parses an assertion. It verifies only the form. Invalid.
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

// inTime rejects an assertion that is not valid now. Denied; the message says how far the clocks differ.
func (a Assertion) inTime(now time.Time) error {
	issued, expires := time.Unix(a.Issued, 0), time.Unix(a.Expires, 0)
	switch {
	case issued.After(now.Add(Skew)):
		return croft.Errorf(croft.Denied,
			"the assertion is of a time %s ahead of the clock here: clocks may be apart by %s",
			wording.Duration(issued.Sub(now).Round(time.Second)), wording.Duration(Skew))
	case !expires.After(now.Add(-Skew)):
		return croft.Errorf(croft.Denied,
			"the assertion is %s old and counted for %s: the clock of its partition is behind "+
				"that here, by more than the %s that are allowed, or it came late",
			wording.Duration(now.Sub(issued).Round(time.Second)),
			wording.Duration(expires.Sub(issued)), wording.Duration(Skew))
	}
	return nil
}

// fits rejects an assertion for another request. Denied. It reads the body, up to most bytes, and puts it back.
// Invalid: the body is longer.
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
