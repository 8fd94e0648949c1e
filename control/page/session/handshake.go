package session

import (
	"crypto/hmac"
	"encoding/base64"
	"encoding/binary"
	"strings"
	"time"

	"croft"
)

// HandshakeLife is how long a login at an issuer may take.
const HandshakeLife = 10 * time.Minute

// Handshake is a login at an issuer that a browser has started. The browser keeps it in a cookie, so that servers store
// nothing for visitors who are not logged in. What the issuer gets is derived from its secret, and its state also from
// its other fields.
type Handshake struct {
	secret Secret
	began  time.Time
	Next   string // where the user wants to go
}

// NewHandshake returns a login that begins now.
func NewHandshake(next string) Handshake {
	return Handshake{secret: New(""), began: time.Now().Truncate(time.Second), Next: next}
}

// Text returns the handshake for the browser.
func (a Handshake) Text() string {
	rest := append(binary.BigEndian.AppendUint64(nil, uint64(a.began.Unix())), a.Next...)
	return a.secret.Text() + "." + base64.RawURLEncoding.EncodeToString(rest)
}

// ParseHandshake reads the text of a handshake. Denied.
func ParseHandshake(text string) (Handshake, error) {
	key, rest, _ := strings.Cut(text, ".")
	secret, err := Parse(key)
	if err != nil {
		return Handshake{}, errNoHandshake
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(rest)
	if err != nil || len(raw) < 8 {
		return Handshake{}, errNoHandshake
	}
	began := time.Unix(int64(binary.BigEndian.Uint64(raw)), 0)
	return Handshake{secret: secret, began: began, Next: string(raw[8:])}, nil
}

var errNoHandshake = croft.Errorf(croft.Denied, "this browser has begun no login at the issuer, or it has ended: log in "+
	"again")

// State returns the text that has to come back from the issuer.
func (a Handshake) State() string { return a.derive("state " + a.Text()) }

// Nonce returns the text that has to be in the token.
func (a Handshake) Nonce() string { return a.derive("nonce") }

// Verifier returns the secret of PKCE.
func (a Handshake) Verifier() string { return a.derive("verifier") }

func (a Handshake) derive(purpose string) string {
	return base64.RawURLEncoding.EncodeToString(a.secret.derive("login " + purpose))
}

// Check checks the state that came back. Denied: it belongs to another handshake, or this one has expired.
func (a Handshake) Check(state string) error {
	if !hmac.Equal([]byte(state), []byte(a.State())) {
		return croft.Errorf(croft.Denied, "the issuer's answer belongs to another login than the last one of this browser: "+
			"log in again")
	}
	if age := time.Since(a.began); age < -HandshakeLife || age >= HandshakeLife {
		return croft.Errorf(croft.Denied, "the login at the issuer took longer than ten minutes: log in again")
	}
	return nil
}
