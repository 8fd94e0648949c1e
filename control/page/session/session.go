// Package session keeps the sessions of browsers that are logged in to the page. A session holds the caller's own
// credentials, sealed with a key that only the browser's cookie has, so a session has exactly the rights of these
// credentials and ends with them, and the store has nothing that opens anything. Credentials of an OpenID Connect
// issuer are renewed if the issuer permits it, by one server at a time.
package session

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"croft"
	"croft/internal/wording"
)

// Limits on sessions and one-time links.
const (
	Life     = 12 * time.Hour   // of a session, unless its credentials expire before
	LinkLife = 60 * time.Second // of a one-time link
	Most     = 16               // sessions of one token or user; another one ends the oldest
)

// Record is the stored part of a session or of a one-time link.
type Record struct {
	Sealed  []byte    `json:"sealed"`  // the credentials
	Created time.Time `json:"created"` // when the browser logged in
	Expires time.Time `json:"expires"` // when the session expires

	// Until when a server has the right to renew the credentials; zero: no server is renewing them.
	Renewing time.Time `json:"renewing,omitzero"`
}

// Store stores sessions and one-time links until they expire.
type Store interface {
	// Put stores a session of a holder. If the holder has most sessions or more, the oldest ones end.
	Put(ctx context.Context, holder, id string, r Record, most int) error
	// Get returns a session. NotFound.
	Get(ctx context.Context, holder, id string) (Record, error)
	// Replace stores the record of a session in place of another one, and leaves alone when the session expires.
	// Conflict: the stored record is not the former one, or the session has ended.
	Replace(ctx context.Context, holder, id string, former, r Record) error
	// Remove ends a session everywhere. Ending an unknown one is no error.
	Remove(ctx context.Context, holder, id string) error
	// PutLink stores a one-time link.
	PutLink(ctx context.Context, id string, r Record) error
	// TakeLink removes a one-time link and returns it, to one caller only. NotFound.
	TakeLink(ctx context.Context, id string) (Record, error)
}

// Secret is what the browser has of a session, or what a one-time link says: 256 random bits.
type Secret struct {
	holder string
	key    [32]byte
}

// New returns a random secret. A session's holder is the user with these credentials; a link has none.
func New(holder string) Secret {
	s := Secret{holder: holder}
	rand.Read(s.key[:]) // never fails
	return s
}

// Holder returns the holder for a user with credentials, as a caller of the API has them.
func Holder(user, via string) string {
	sum := sha256.Sum256([]byte(via + "\x00" + user))
	return hex.EncodeToString(sum[:8])
}

// Parse reads the text of a secret. Denied.
func Parse(text string) (Secret, error) {
	holder, key, ok := strings.Cut(text, ".")
	if !ok {
		holder, key = "", text
	}
	s := Secret{holder: holder}
	if raw, err := hex.DecodeString(holder); err != nil || len(raw) != 8 && holder != "" {
		return Secret{}, errEnded
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(key)
	if err != nil || len(raw) != len(s.key) {
		return Secret{}, errEnded
	}
	copy(s.key[:], raw)
	return s, nil
}

var errEnded = croft.Errorf(croft.Denied, "the session has ended: log in again")

// Text returns the secret for the browser.
func (s Secret) Text() string {
	key := base64.RawURLEncoding.EncodeToString(s.key[:])
	if s.holder == "" {
		return key
	}
	return s.holder + "." + key
}

// String returns the secret without its secret part.
func (s Secret) String() string { return s.holder + "..." }

// GoString returns the same as String.
func (s Secret) GoString() string { return s.String() }

// derive returns a key for a purpose.
func (s Secret) derive(purpose string) []byte {
	key, err := hkdf.Key(sha256.New, s.key[:], nil, "croft page "+purpose, 32)
	if err != nil {
		panic(fmt.Sprintf("session: %v", err)) // the length is constant, and allowed
	}
	return key
}

// id is the name under which the record is stored, from which the secret cannot be computed.
func (s Secret) id() string { return hex.EncodeToString(s.derive("id")) }

// Forms returns the token that the forms of the session carry.
func (s Secret) Forms() string { return base64.RawURLEncoding.EncodeToString(s.derive("forms")) }

// Owns reports whether a form carries the token of the session.
func (s Secret) Owns(form string) bool { return hmac.Equal([]byte(form), []byte(s.Forms())) }

// seal encrypts credentials.
func (s Secret) seal(credentials string) []byte {
	return s.aead().Seal(nil, nil, []byte(credentials), nil)
}

// open decrypts credentials. Denied: they were not sealed with this secret.
func (s Secret) open(sealed []byte) (string, error) {
	text, err := s.aead().Open(nil, nil, sealed, nil)
	if err != nil {
		return "", errEnded
	}
	return string(text), nil
}

// aead encrypts with a random nonce, which precedes the text.
func (s Secret) aead() cipher.AEAD {
	block, err := aes.NewCipher(s.derive("seal"))
	if err != nil {
		panic(fmt.Sprintf("session: %v", err)) // the key has a length of AES
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		panic(fmt.Sprintf("session: %v", err)) // AES has the block size that GCM needs
	}
	return aead
}

// Sessions opens and ends sessions.
type Sessions struct{ Store Store }

// Begin stores a session of a caller with credentials, which end at a time; zero: they do not say when.
func (s Sessions) Begin(ctx context.Context, user, via string, c Credentials, end time.Time) (Secret, Record, error) {
	secret := New(Holder(user, via))
	r := secret.record(c.text(), Life, end)
	return secret, r, s.Store.Put(ctx, secret.holder, secret.id(), r, Most)
}

// record returns the record of credentials for a time.
func (s Secret) record(credentials string, life time.Duration, end time.Time) Record {
	now := time.Now().UTC()
	r := Record{Sealed: s.seal(credentials), Created: now, Expires: now.Add(life)}
	if !end.IsZero() && end.Before(r.Expires) {
		r.Expires = end.UTC()
	}
	return r
}

// credentials opens a record that was read with an error or without.
func (s Secret) credentials(r Record, err error) (string, error) {
	switch {
	case croft.KindOf(err) == croft.NotFound:
		return "", errEnded
	case err != nil:
		return "", err
	case !time.Now().Before(r.Expires):
		return "", errEnded
	}
	return s.open(r.Sealed)
}

// End ends a session everywhere.
func (s Sessions) End(ctx context.Context, secret Secret) error {
	return s.Store.Remove(ctx, secret.holder, secret.id())
}

// Link stores a one-time link that logs in with credentials.
func (s Sessions) Link(ctx context.Context, credentials string) (Secret, Record, error) {
	secret := New("")
	r := secret.record(credentials, LinkLife, time.Time{})
	return secret, r, s.Store.PutLink(ctx, secret.id(), r)
}

// Follow returns the credentials of a one-time link, and removes it. Denied: it was used, or it has expired.
func (s Sessions) Follow(ctx context.Context, link Secret) (string, error) {
	r, err := s.Store.TakeLink(ctx, link.id())
	text, err := link.credentials(r, err)
	if croft.KindOf(err) == croft.Denied {
		return "", croft.Errorf(croft.Denied, "the link was used already, or it is older than %s: `croft page` makes another",
			wording.Duration(LinkLife))
	}
	return text, err
}
