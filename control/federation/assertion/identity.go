package assertion

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/uuid"

	"croft"
)

// IdentityHeader contains the statement about the identity of the assertion's project. It is a separate JWS, signed
// with the key of the assertion and bound to its text, because clouds of croft 1.7 reject assertions with unknown
// fields, but ignore unknown headers.
const IdentityHeader = "X-Croft-Project-Identity"

const identityType = "croft-peer-project+jwt"

// identity is the content of the statement.
type identity struct {
	Of      string          `json:"of"`         // digest of the assertion's text
	Project croft.ProjectID `json:"project_id"` // identity of the issuer's project
}

func digestOf(assertion string) string {
	sum := sha256.Sum256([]byte(assertion))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Signed is an assertion and the statement about its project, as sent with a request.
type Signed struct {
	Assertion string
	Identity  string // empty: the project has no record
}

// SetHeaders adds both to the headers of a request.
func (s Signed) SetHeaders(h http.Header) {
	h.Set("Authorization", Scheme+" "+s.Assertion)
	if s.Identity != "" {
		h.Set(IdentityHeader, s.Identity)
	}
}

// parseIdentity parses and verifies the statement about the project of an assertion; empty: the request has none.
// Denied: it is damaged, belongs to another assertion, or is signed with another key.
func parseIdentity(h http.Header, assertion, keyID string, key ed25519.PublicKey) (croft.ProjectID, error) {
	values := h.Values(IdentityHeader)
	if len(values) == 0 {
		return "", nil
	}
	refused := croft.Errorf(croft.Denied, "the header %s is not a statement about the project of this assertion: "+
		"send the one that was signed with it", IdentityHeader)
	if len(values) > 1 || len(values[0]) > maxText {
		return "", refused
	}
	jws, err := jose.ParseSignedCompact(values[0], []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil || len(jws.Signatures) != 1 {
		return "", refused
	}
	head := jws.Signatures[0].Protected
	if typ, _ := head.ExtraHeaders[jose.HeaderType].(string); typ != identityType || len(head.ExtraHeaders) != 1 ||
		head.JSONWebKey != nil || head.KeyID != keyID {
		return "", refused
	}
	text, err := jws.Verify(key)
	if err != nil {
		return "", refused
	}
	var said identity
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&said); err != nil || d.More() || said.Of != digestOf(assertion) {
		return "", refused
	}
	if id, err := uuid.Parse(string(said.Project)); err != nil || id.String() != string(said.Project) {
		return "", refused
	}
	return said.Project, nil
}
