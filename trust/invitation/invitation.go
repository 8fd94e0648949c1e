// Package invitation makes and reads the tokens with which a host joins a cloud. A token contains addresses, of
// the cloud's join servers or of its etcd, and a secret. The grant for the host is stored in etcd, sealed with
// a key derived from the secret, under a name derived from it too. So read access to etcd alone reveals
// nothing, and a token is worthless once etcd has dropped the grant.
package invitation

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"croft"
)

// prefix identifies tokens, and the version of their format.
const prefix = "croft1."

const secretBytes = 16

// LongestLife is the longest life of a join token; the shortest is a second. The limit is short because the secret is
// sent between people.
const LongestLife = 7 * 24 * time.Hour

// JoinToken contains the data that a host needs to join. Its text is one line.
type JoinToken struct {
	Endpoints []string `json:"e,omitempty"` // of etcd, as the new host reaches it
	CA        string   `json:"c,omitempty"`
	// In a cloud with its own authority, instead of the two above: the servers that sign for the new host, as
	// HOST:PORT, and the pin of the authority.
	Servers []string `json:"a,omitempty"`
	Pin     string   `json:"h,omitempty"`

	Partition croft.PartitionID `json:"p"`
	Secret    []byte            `json:"s"`
}

// Grant is the data that the host receives for its token.
type Grant struct {
	Placement string `json:"placement"` // endpoint
	Token     string `json:"token"`     // for Placement

	Endpoints []string `json:"endpoints,omitempty"` // of etcd, unless the token contains them
}

// New returns t with a new secret.
func New(t JoinToken) JoinToken {
	t.Secret = make([]byte, secretBytes)
	rand.Read(t.Secret) // never fails
	return t
}

// Sign proves to a holder of the Verifier that a message is from a holder of the token, and reveals nothing
// about the token.
func (t JoinToken) Sign(message []byte) []byte { return ed25519.Sign(t.signer(), t.bound(message)) }

// Verifier returns the key that verifies signatures of the token and cannot sign.
func (t JoinToken) Verifier() []byte { return t.signer().Public().(ed25519.PublicKey) }

// Verify reports whether a message of a partition was signed with the token of a verifier.
func Verify(verifier []byte, p croft.PartitionID, message, signature []byte) bool {
	return len(verifier) == ed25519.PublicKeySize && ed25519.Verify(verifier, JoinToken{Partition: p}.bound(message),
		signature)
}

func (t JoinToken) signer() ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(t.derive("signature", ed25519.SeedSize))
}

// bound binds a message to this partition and purpose.
func (t JoinToken) bound(message []byte) []byte {
	return append([]byte("croft join "+string(t.Partition)+"\n"), message...)
}

// String returns the token as text. It is a secret.
func (t JoinToken) String() string {
	text, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("invitation: encode a token: %v", err)) // a plain struct: cannot happen
	}
	return prefix + base64.RawURLEncoding.EncodeToString(text)
}

// Parse reads a token. Invalid: the text is not a complete token.
func Parse(text string) (JoinToken, error) {
	var t JoinToken
	body, ours := strings.CutPrefix(strings.TrimSpace(text), prefix)
	if !ours {
		return t,
			croft.Errorf(croft.Invalid,
				"this is not a join token: a join token begins with %s and comes from `croft token create`", prefix)
	}
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err == nil {
		err = json.Unmarshal(raw, &t)
	}
	if err != nil || len(t.Secret) != secretBytes || !t.leadsSomewhere() || t.Partition == "" {
		return JoinToken{},
			croft.Errorf(croft.Invalid,
				"this token to join with is not whole: copy all of the line that `croft token create` printed")
	}
	return t, nil
}

func (t JoinToken) leadsSomewhere() bool {
	return len(t.Endpoints) > 0 || len(t.Servers) > 0 && t.Pin != ""
}

// Name returns the name under which the sealed grant is stored.
func (t JoinToken) Name() string { return hex.EncodeToString(t.derive("name", 16)) }

// Seal encrypts a grant for this token.
func (t JoinToken) Seal(g Grant) []byte {
	text, err := json.Marshal(g)
	if err != nil {
		panic(fmt.Sprintf("invitation: encode a grant: %v", err)) // a plain struct: cannot happen
	}
	// Each key seals only one grant, so no nonce is used twice.
	return t.cipher().Seal(nil, make([]byte, 12), text, []byte(t.Partition))
}

// Open decrypts a grant.
func (t JoinToken) Open(sealed []byte) (Grant, error) {
	var g Grant
	text, err := t.cipher().Open(nil, make([]byte, 12), sealed, []byte(t.Partition))
	if err == nil {
		err = json.Unmarshal(text, &g)
	}
	if err != nil {
		return Grant{},
			croft.Errorf(croft.Invalid,
				"what etcd holds for this token was not sealed with it: make another with `croft token create`")
	}
	return g, nil
}

func (t JoinToken) cipher() cipher.AEAD {
	block, err := aes.NewCipher(t.derive("key", 32))
	if err != nil {
		panic(err) // the key has the right length
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err) // the block has the right size
	}
	return aead
}

// derive derives a value from the secret that reveals nothing about it.
func (t JoinToken) derive(what string, size int) []byte {
	out, err := hkdf.Key(sha256.New, t.Secret, nil, "croft invitation "+what, size)
	if err != nil {
		panic(err) // sizes far below the limit
	}
	return out
}
