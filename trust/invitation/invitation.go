// Package invitation makes and reads the tokens with which a host joins a cloud. A
// token names the cloud's control processes, or its etcd, and carries a secret; what the host gets for it lies in
// etcd, sealed with a key made of the secret, under a name made of it too. So whoever
// reads etcd alone learns nothing from there, and a token is worth nothing once etcd
// has forgotten what was sealed.
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

	"croft"
)

// prefix begins every token, so that one is recognized, and its form.
const prefix = "croft1."

const secretBytes = 16

// Token is what a host has to be given to join. Its text is one line.
type Token struct {
	Endpoints []string `json:"e,omitempty"` // of etcd, as the new host reaches it
	CA        string   `json:"c,omitempty"`
	// Where a cloud has an authority of its own, instead of the two above: the control
	// processes that sign for the new host, as HOST:PORT, and by what to know them.
	Servers []string `json:"a,omitempty"`
	Pin     string   `json:"h,omitempty"`

	Partition croft.PartitionID `json:"p"`
	Secret    []byte            `json:"s"`
}

// Grant is what the host gets for its token.
type Grant struct {
	Placement string `json:"placement"` // endpoint
	Token     string `json:"token"`     // for Placement

	Endpoints []string `json:"endpoints,omitempty"` // of etcd, where the token does not say them
}

// New makes a token of t with a secret of its own.
func New(t Token) Token {
	t.Secret = make([]byte, secretBytes)
	rand.Read(t.Secret) // never fails
	return t
}

// Sign proves to whoever has the Verifier that a message is from somebody who has the
// token, and tells nothing of it.
func (t Token) Sign(message []byte) []byte { return ed25519.Sign(t.signer(), t.bound(message)) }

// Verifier is what tells what was signed with the token, and cannot sign.
func (t Token) Verifier() []byte { return t.signer().Public().(ed25519.PublicKey) }

// Verify tells whether a message of a partition was signed with the token of a verifier.
func Verify(verifier []byte, p croft.PartitionID, message, signature []byte) bool {
	return len(verifier) == ed25519.PublicKeySize && ed25519.Verify(verifier, Token{Partition: p}.bound(message),
		signature)
}

func (t Token) signer() ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(t.derive("signature", ed25519.SeedSize))
}

// bound is a message of this partition, and of nothing else that is signed.
func (t Token) bound(message []byte) []byte {
	return append([]byte("croft join "+string(t.Partition)+"\n"), message...)
}

// String is the token as it is handed on. It is a secret.
func (t Token) String() string {
	text, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("invitation: encode a token: %v", err)) // a plain struct: cannot happen
	}
	return prefix + base64.RawURLEncoding.EncodeToString(text)
}

// Parse reads a token. Invalid: the text is not a whole token.
func Parse(text string) (Token, error) {
	var t Token
	body, ours := strings.CutPrefix(strings.TrimSpace(text), prefix)
	if !ours {
		return t,
			croft.Errorf(croft.Invalid,
				"this is no token to join with: it begins with %s and comes from `croft token create`", prefix)
	}
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err == nil {
		err = json.Unmarshal(raw, &t)
	}
	if err != nil || len(t.Secret) != secretBytes || !t.leadsSomewhere() || t.Partition == "" {
		return Token{},
			croft.Errorf(croft.Invalid,
				"this token to join with is not whole: copy all of the line that `croft token create` printed")
	}
	return t, nil
}

func (t Token) leadsSomewhere() bool {
	return len(t.Endpoints) > 0 || len(t.Servers) > 0 && t.Pin != ""
}

// Name is what the sealed grant is called.
func (t Token) Name() string { return hex.EncodeToString(t.derive("name", 16)) }

// Seal makes a grant readable with this token alone.
func (t Token) Seal(g Grant) []byte {
	text, err := json.Marshal(g)
	if err != nil {
		panic(fmt.Sprintf("invitation: encode a grant: %v", err)) // a plain struct: cannot happen
	}
	// Each key seals one grant, so that one nonce is never used for two.
	return t.cipher().Seal(nil, make([]byte, 12), text, []byte(t.Partition))
}

// Open reads what Seal sealed.
func (t Token) Open(sealed []byte) (Grant, error) {
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

func (t Token) cipher() cipher.AEAD {
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

// derive makes something of the secret that tells nothing of it.
func (t Token) derive(what string, size int) []byte {
	out, err := hkdf.Key(sha256.New, t.Secret, nil, "croft invitation "+what, size)
	if err != nil {
		panic(err) // sizes far below the limit
	}
	return out
}
