package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"croft"
	"croft/internal/wording"
)

// TokenID names a token. It is no secret: 12 hexadecimal digits.
type TokenID string

var tokenIDForm = regexp.MustCompile(`^[0-9a-f]{12}$`)

// Check validates the form of an ID. Invalid; of a whole token, the error repeats nothing that is secret.
func (id TokenID) Check() error {
	if !tokenIDForm.MatchString(string(id)) {
		return croft.Errorf(croft.Invalid, "%.16q is not the ID of a token, which has 12 hexadecimal digits: "+
			"`croft access list` shows them", string(id))
	}
	return nil
}

// Secret is what the holder of a token has. It does not print itself; Text is for whoever is to have it.
type Secret struct {
	ID  TokenID
	key [32]byte
}

const secretPrefix = "croft_"

// secretText is the encoding of a key; strict, so that a key has one text.
var secretText = base64.RawURLEncoding.Strict()

// NewSecret makes a random secret with a random ID.
func NewSecret() Secret {
	var s Secret
	var id [6]byte
	rand.Read(id[:]) // never fails
	rand.Read(s.key[:])
	s.ID = TokenID(hex.EncodeToString(id[:]))
	return s
}

// ParseSecret reads the text of a secret, as Text gives it and in no other form. Invalid; the error does not
// contain the text.
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
	if n, err := secretText.Decode(s.key[:], []byte(key)); err != nil || n != len(s.key) { // it skips line breaks
		return Secret{}, malformed
	}
	return s, nil
}

// Text returns the token as its holder sends it.
func (s Secret) Text() string {
	return secretPrefix + string(s.ID) + "_" + secretText.EncodeToString(s.key[:])
}

// String returns the token without what is secret about it.
func (s Secret) String() string { return secretPrefix + string(s.ID) + "_..." }

// GoString is String.
func (s Secret) GoString() string { return s.String() }

// Hash returns what is stored of the secret: its SHA-256. The key is random, so the hash needs no salt, and a slow
// hash would protect nothing.
func (s Secret) Hash() []byte {
	sum := sha256.Sum256(s.key[:])
	return sum[:]
}

// Token is what the cloud keeps of an access token: whom it stands for, and the hash of its secret. It never changes.
type Token struct {
	ID        TokenID       `json:"id"`
	Hash      []byte        `json:"hash"`              // SHA-256 of the secret
	User      string        `json:"user"`              // name for people and for the action log
	Project   croft.Project `json:"project,omitempty"` // empty only for operators
	Roles     []Role        `json:"roles"`
	Note      string        `json:"note,omitempty"`
	Created   time.Time     `json:"created"`
	CreatedBy string        `json:"created_by"`
	Expires   time.Time     `json:"expires"`

	// Delegated: an admin of a project made the token in the name of somebody else. It has its role, and nothing that
	// belongs to the user in person.
	Delegated bool `json:"delegated,omitempty"`
	// Parent is the token with which this one was made; it ends with it. Empty: an operator, or somebody without a
	// token.
	Parent TokenID `json:"parent,omitempty"`
	// ProjectID is the identity that Project had when the token was created; empty: the name had no record, or a
	// program created it that does not know identities.
	ProjectID croft.ProjectID `json:"project_id,omitempty"`
}

// NewToken completes a token by an ID and a secret, which only the caller gets. The other fields are given. Invalid.
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

// userForm is the form of a user's name: safe in logs and on terminals, and wide enough for an address.
var userForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@+-]{0,126}$`)

// CheckUser validates the name of a user. Invalid.
func CheckUser(name string) error {
	if !userForm.MatchString(name) {
		return croft.Errorf(croft.Invalid, "%.80q is not a user's name: use 1 to 127 letters, digits and . _ @ + - , "+
			"beginning with a letter or digit", name)
	}
	return nil
}

// Check validates a token that is to be made. Invalid.
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

// errUnknownToken is the same for a token that never was and for a wrong secret, so that it confirms no ID.
var errUnknownToken = croft.Errorf(croft.Denied,
	"this token is not known: it was revoked or expired long ago, or it is of another cloud")

// admit decides whether the secret is this token's and the token still counts. Denied.
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
