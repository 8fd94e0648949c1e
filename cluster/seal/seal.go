// Package seal encrypts secrets of clusters before they are stored. Each value is encrypted with its own random data
// key, which a key from a file wraps: keys are changed by wrapping the data keys again. The record that a value belongs
// to is authenticated with it, so that a value that is moved to another record cannot be opened there.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"croft"
	"croft/cluster"
)

// Keys are the keys from files. The first one seals, all of them open. They are never printed. Keys implements
// cluster.Vault.
type Keys struct{ all []key }

var _ cluster.Vault = (*Keys)(nil)

// key wraps data keys.
type key struct {
	id   string
	aead cipher.AEAD
}

// keySize is the size of all keys, in bytes, as for AES-256.
const keySize = 32

func newKey(id string, raw []byte) (key, error) {
	aead, err := gcm(raw)
	return key{id, aead}, err
}

// gcm returns AES-256-GCM with a random nonce before each sealed value.
func gcm(raw []byte) (cipher.AEAD, error) {
	block, err := aes.NewCipher(raw)
	if err != nil {
		return nil, fmt.Errorf("make a cipher: %w", err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// sealed is the form of a cluster.Sealed.
type sealed struct {
	Key   string `json:"key"`   // the ID of the key that wraps the data key
	Data  []byte `json:"data"`  // the data key, wrapped
	Value []byte `json:"value"` // sealed by the data key
}

// Seal implements cluster.Vault.
func (k *Keys) Seal(s cluster.Secret, about string) (cluster.Sealed, error) {
	if k == nil || len(k.all) == 0 {
		return nil, noKey()
	}
	data := make([]byte, keySize)
	_, _ = rand.Read(data) // never fails
	aead, err := gcm(data)
	if err != nil {
		return nil, err
	}
	first := k.all[0]
	return encode(sealed{Key: first.id, Data: first.aead.Seal(nil, nil, data, []byte("key\x00"+about)),
		Value: aead.Seal(nil, nil, []byte(s.Reveal()), []byte("value\x00"+about))})
}

func noKey() error {
	return cluster.Away("this process has no key to seal secrets of clusters with: ask a server of the " +
		"cloud's API that builds clusters (CROFT_URL), or run the command as root on its machine; a server uses the files " +
		"in clusters.credential_key_file, which `croft cluster credential key` makes, or cluster.key in its state directory")
}

func encode(v sealed) (cluster.Sealed, error) {
	text, err := json.Marshal(v)
	return cluster.Sealed(text), err
}

// Open implements cluster.Vault.
func (k *Keys) Open(v cluster.Sealed, about string) (cluster.Secret, error) {
	s, data, err := k.unwrap(v, about)
	if err != nil {
		return cluster.Secret{}, err
	}
	aead, err := gcm(data)
	if err != nil {
		return cluster.Secret{}, foreign()
	}
	plain, err := aead.Open(nil, nil, s.Value, []byte("value\x00"+about))
	if err != nil {
		return cluster.Secret{}, foreign()
	}
	return cluster.NewSecret(string(plain)), nil
}

func foreign() error {
	return croft.Errorf(croft.Invalid, "a sealed secret cannot be opened: it was changed, or moved from another record: "+
		"set it again")
}

// unwrap parses a sealed value and decrypts its data key.
func (k *Keys) unwrap(v cluster.Sealed, about string) (s sealed, data []byte, err error) {
	if err := json.Unmarshal(v, &s); err != nil || s.Key == "" {
		return s, nil, croft.Errorf(croft.Invalid, "a sealed secret is damaged: set it again")
	}
	if k == nil || len(k.all) == 0 {
		return s, nil, noKey()
	}
	for _, one := range k.all {
		if one.id != s.Key {
			continue
		}
		if data, err = one.aead.Open(nil, nil, s.Data, []byte("key\x00"+about)); err != nil {
			return s, nil, foreign()
		}
		return s, data, nil
	}
	return s, nil, cluster.Away("a secret was sealed with key %.40q, which this server has not (it has "+
		"%s): name its file in credential_key_file too, or set the secret again", s.Key, k.ids())
}

func (k *Keys) ids() string {
	var all []string
	for _, one := range k.all {
		all = append(all, one.id)
	}
	return strings.Join(all, ", ")
}

// Rewrap wraps the data key of a value again with the first key, so that the previous key is not needed any more.
// False: the first key wraps it already, and the value stays unchanged. It returns the errors of Open.
func (k *Keys) Rewrap(v cluster.Sealed, about string) (cluster.Sealed, bool, error) {
	s, data, err := k.unwrap(v, about)
	if err != nil || s.Key == k.all[0].id {
		return v, false, err
	}
	s.Key, s.Data = k.all[0].id, k.all[0].aead.Seal(nil, nil, data, []byte("key\x00"+about))
	next, err := encode(s)
	return next, err == nil, err
}

// Format implements fmt.Formatter: it prints no key.
func (Keys) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "[keys]") }

// MarshalJSON implements json.Marshaler: it encodes no key.
func (Keys) MarshalJSON() ([]byte, error) { return []byte(`"[keys]"`), nil }

// LogValue implements slog.LogValuer: it logs no key.
func (Keys) LogValue() slog.Value { return slog.StringValue("[keys]") }
