package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"croft"
	"croft/internal/lazyregexp"
	"croft/internal/wording"
)

// TokenID identifies a token. It is not secret: 12 hexadecimal digits.
type TokenID string

var tokenIDForm = lazyregexp.New(`^[0-9a-f]{12}$`)

// Check validates the form of an ID. Invalid; if the ID is a complete token, the error contains nothing secret of it.
func (id TokenID) Check() error {
	if !tokenIDForm.MatchString(string(id)) {
		return croft.Errorf(croft.Invalid, "%.16q is not the ID of a token, which has 12 hexadecimal digits: "+
			"`croft token list --for api` shows them", string(id))
	}
	return nil
}

// Secret is the secret of a token. It does not print itself; use Text to give it to its holder.
type Secret struct {
	ID  TokenID
	key [32]byte
}

const secretPrefix = "croft_"

// secretText is the encoding of a key. It is strict, so that each key has one text.
var secretText = base64.RawURLEncoding.Strict()

// NewSecret returns a random secret with a random ID.
func NewSecret() Secret {
	var s Secret
	var id [6]byte
	rand.Read(id[:]) // never fails
	rand.Read(s.key[:])
	s.ID = TokenID(hex.EncodeToString(id[:]))
	return s
}

// ParseSecret parses the text of a secret, exactly as Text returns it. Invalid; the error does not contain the text.
func ParseSecret(text string) (Secret, error) {
	malformed := croft.Errorf(
		croft.Invalid,
		"this is no token of croft: one is croft_, 12 hexadecimal digits, _ and 43 "+
			"characters more; was it cut off?",
	)
	rest, ok := strings.CutPrefix(text, secretPrefix)
	id, key, _ := strings.Cut(rest, "_")
	s := Secret{ID: TokenID(id)}
	if !ok || s.ID.Check() != nil || len(key) != secretText.EncodedLen(len(s.key)) {
		return Secret{}, malformed
	}
	if n, err := secretText.Decode(s.key[:], []byte(key)); err != nil || n != len(s.key) { // Decode skips line breaks
		return Secret{}, malformed
	}
	return s, nil
}

// Text returns the token as its holder sends it.
func (s Secret) Text() string {
	return secretPrefix + string(s.ID) + "_" + secretText.EncodeToString(s.key[:])
}

// String returns the token without its secret part.
func (s Secret) String() string { return secretPrefix + string(s.ID) + "_..." }

// GoString returns the same as String.
func (s Secret) GoString() string { return s.String() }

// Hash returns the stored part of the secret: its SHA-256. The key is random, so the hash needs no salt, and a slow
// hash would protect nothing.
func (s Secret) Hash() []byte {
	sum := sha256.Sum256(s.key[:])
	return sum[:]
}

// Token is the stored record of an access token: the user that it stands for, and the hash of its secret. It never
// changes.
type Token struct {
	ID        TokenID       `json:"id"`
	Hash      []byte        `json:"hash"`              // SHA-256 of the secret
	User      string        `json:"user"`              // user name for people and for the action log
	Project   croft.Project `json:"project,omitempty"` // empty only for operators
	Roles     []Role        `json:"roles"`
	Note      string        `json:"note,omitempty"`
	Created   time.Time     `json:"created"`
	CreatedBy string        `json:"created_by"`
	Expires   time.Time     `json:"expires"`

	// Delegated: an admin of a project created the token in the name of another user. It has its role, but no access to
	// the user's personal objects.
	Delegated bool `json:"delegated,omitempty"`
	// Parent is the token with which this one was created; this one becomes invalid with it. Empty: it was created by
	// an operator, or by a caller without a token.
	Parent TokenID `json:"parent,omitempty"`
	// ProjectID is the identity that Project had when the token was created; empty: the name had no record, or the
	// creating program does not support identities.
	ProjectID croft.ProjectID `json:"project_id,omitempty"`
}

// NewToken adds an ID and the hash of a new secret to a token with the other fields set. Only the caller gets the
// secret. Invalid.
func NewToken(t Token) (Token, Secret, error) {
	s := NewSecret()
	t.ID, t.Hash = s.ID, s.Hash()
	return t, s, t.Check()
}

// Limits on tokens.
const (
	ShortestTokenLife = time.Minute
	LongestTokenLife  = 366 * 24 * time.Hour
	longestNote       = 200 // bytes
)

// userForm matches user names: safe in logs and on terminals, and sufficient for e-mail addresses.
var userForm = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._@+-]{0,126}$`)

// CheckUser validates the name of a user. Invalid.
func CheckUser(name string) error {
	if !userForm.MatchString(name) {
		return croft.Errorf(croft.Invalid, "%.80q is not a user's name: use 1 to 127 letters, digits and . _ @ + - , "+
			"beginning with a letter or digit", name)
	}
	return nil
}

// Check validates a new token. Invalid.
func (t Token) Check() error {
	if err := t.ID.Check(); err != nil {
		return err
	}
	if err := CheckUser(t.User); err != nil {
		return err
	}
	for _, r := range t.Roles {
		if err := r.Check(); err != nil {
			return err
		}
	}
	if t.Project != "" {
		if err := t.Project.Check(); err != nil {
			return err
		}
	}
	switch life := t.Expires.Sub(t.Created); {
	case len(t.Hash) != sha256.Size:
		return croft.Errorf(croft.Invalid, "a token's hash has %d bytes, not %d", sha256.Size, len(t.Hash))
	case len(t.Roles) == 0:
		return croft.Errorf(croft.Invalid, "a token needs a role: one of %s",
			strings.Join(Words(TokenRoles), ", "))
	case slices.Contains(t.Roles, Agent):
		return croft.Errorf(croft.Invalid, "the role %s is only for hosts, which have certificates", Agent)
	case t.Project == "" && !slices.Contains(t.Roles, PartitionAdmin):
		return croft.Errorf(croft.Invalid, "a token of the role %s is for a project: name it", t.Roles[0])
	case life < ShortestTokenLife || life > LongestTokenLife:
		return croft.Errorf(croft.Invalid, "a token counts between %s and %s, not %s",
			wording.Duration(ShortestTokenLife), wording.Duration(LongestTokenLife), wording.Duration(life))
	case len(t.Note) > longestNote || !printable(t.Note):
		return croft.Errorf(croft.Invalid, "a note has at most %d bytes of printable text", longestNote)
	}
	return nil
}

func printable(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// errUnknownToken is returned both for an unknown token and for a wrong secret, so that it confirms no ID.
var errUnknownToken = croft.Errorf(croft.Denied,
	"this token is not known: it was revoked or expired long ago, or it is of another cloud")

// admit checks that the secret belongs to this token and the token is valid. Denied.
func (t Token) admit(s Secret, now time.Time) error {
	if subtle.ConstantTimeCompare(t.Hash, s.Hash()) != 1 {
		return errUnknownToken
	}
	if !now.Before(t.Expires) {
		return croft.Errorf(croft.Denied, "this token (%s) expired on %s: ask for another", t.ID,
			t.Expires.UTC().Format(time.DateTime+" MST"))
	}
	return nil
}
