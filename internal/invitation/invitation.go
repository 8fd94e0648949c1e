// Package invitation makes and reads the tokens with which a host joins a cloud. A
// token names the cloud's etcd and carries a secret; what the host gets for it lies in
// etcd, sealed with a key made of the secret, under a name made of it too. So whoever
// reads etcd alone learns nothing from there, and a token is worth nothing once etcd
// has forgotten what was sealed.
package invitation

import (
	"crypto/aes"
	"crypto/cipher"
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
	Endpoints []string          `json:"e"` // of etcd, as the new host reaches it
	CA        string            `json:"c,omitempty"`
	Partition croft.PartitionID `json:"p"`
	Secret    []byte            `json:"s"`
}

// Grant is what the host gets for its token.
type Grant struct {
	Placement string `json:"placement"` // endpoint
	Token     string `json:"token"`     // for Placement
}

// New makes a token with a secret of its own.
func New(endpoints []string, ca string, partition croft.PartitionID) Token {
	t := Token{Endpoints: endpoints, CA: ca, Partition: partition, Secret: make([]byte, secretBytes)}
	rand.Read(t.Secret) // never fails
	return t
}

// String is the token as it is handed on. It is a secret.
func (t Token) String() string {
	text, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("invitation: encode a token: %v", err)) // a plain struct: cannot happen
	}
	return prefix + base64.RawURLEncoding.EncodeToString(text)
}

// Parse reads a token. Invalid: it is none, or not whole.
func Parse(text string) (Token, error) {
	var t Token
	body, ours := strings.CutPrefix(strings.TrimSpace(text), prefix)
	if !ours {
		return t, croft.Errorf(croft.Invalid, "this is no token to join with: it begins with %s and comes from `croft token create`", prefix)
	}
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err == nil {
		err = json.Unmarshal(raw, &t)
	}
	if err != nil || len(t.Secret) != secretBytes || len(t.Endpoints) == 0 || t.Partition == "" {
		return Token{}, croft.Errorf(croft.Invalid, "this token to join with is not whole: copy all of the line that `croft token create` printed")
	}
	return t, nil
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
		return Grant{}, croft.Errorf(croft.Invalid, "what etcd holds for this token was not sealed with it: make another with `croft token create`")
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
