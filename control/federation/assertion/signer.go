package assertion

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"croft"
	"croft/control/federation"
	"croft/internal/durable"
)

// Keys are the private keys of one server of the API for signing assertions, each in a file of a directory that only
// its owner can read. They never leave the machine: only the public keys are stored in the cloud and in its cards.
type Keys struct {
	Dir string

	mu   sync.Mutex
	all  []key
	read time.Time // modification time of the directory when the keys were read
}

type key struct {
	private ed25519.PrivateKey
	id      string
	since   time.Time
	use     time.Time
}

// Key is a public key, and the time from which its private key signs.
type Key struct {
	Public     federation.PublicKey
	Since, Use time.Time
}

// keyFile returns the file name of a key that signs from use on.
func keyFile(use time.Time, public federation.PublicKey) string {
	return fmt.Sprintf("%d-%s.pem", use.Unix(), public.ID())
}

// Make creates a key that signs from use on. It stores the key before it returns it.
func (k *Keys) Make(use time.Time) (Key, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return Key{}, fmt.Errorf("make a key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return Key{}, fmt.Errorf("encode a key: %w", err)
	}
	if err := os.MkdirAll(k.Dir, 0o700); err != nil {
		return Key{}, fmt.Errorf("make the directory of the keys for peers: %w", err)
	}
	made := Key{Public: federation.PublicKeyOf(public), Since: time.Now().UTC().Truncate(time.Second),
		Use: use.UTC().Truncate(time.Second)}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	return made, durable.Write(filepath.Join(k.Dir, keyFile(use, made.Public)), text, 0o600)
}

// Open returns the public keys, the latest to sign last. It creates a key if none exists. Invalid: a file is damaged,
// or others can read it.
func (k *Keys) Open() ([]Key, error) {
	all, err := k.load()
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(all) == 0 {
		if _, err := k.Make(time.Unix(0, 0)); err != nil {
			return nil, err
		}
		all, err = k.load()
	}
	var public []Key
	for _, one := range all {
		public = append(public, Key{Public: federation.PublicKeyOf(one.private.Public().(ed25519.PublicKey)),
			Since: one.since, Use: one.use})
	}
	return public, err
}

// load reads the keys if the directory has changed, the earliest to sign first.
func (k *Keys) load() ([]key, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	dir, err := os.Stat(k.Dir)
	if err != nil {
		return nil, fmt.Errorf("read the keys for peers: %w", err)
	}
	if k.all != nil && dir.ModTime().Equal(k.read) {
		return k.all, nil
	}
	entries, err := os.ReadDir(k.Dir)
	if err != nil {
		return nil, fmt.Errorf("read the keys for peers: %w", err)
	}
	var all []key
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".pem") {
			continue
		}
		one, err := readKey(filepath.Join(k.Dir, e.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b key) int { return a.use.Compare(b.use) })
	k.all, k.read = all, dir.ModTime()
	return all, nil
}

// readKey reads a key file, which only its owner may be able to read. Invalid.
func readKey(file string) (key, error) {
	info, err := os.Stat(file)
	if err != nil {
		return key{}, fmt.Errorf("read a key for peers: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return key{}, croft.Errorf(croft.Invalid,
			"others may read the private key in %s: chmod go= %s, and if they may "+
				"have, have another made (croft partition key rotate)", file, file)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return key{}, fmt.Errorf("read a key for peers: %w", err)
	}
	damaged := croft.Errorf(croft.Invalid,
		"%s is damaged: put back the file that was there, or remove it and give peers a "+
			"new card", file)
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" || len(rest) > 0 {
		return key{}, damaged
	}
	any, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	private, ok := any.(ed25519.PrivateKey)
	if err != nil || !ok {
		return key{}, damaged // the cause may quote the key
	}
	public := federation.PublicKeyOf(private.Public().(ed25519.PublicKey))
	var use int64
	if _, err := fmt.Sscanf(filepath.Base(file), "%d-", &use); err != nil ||
		filepath.Base(file) != keyFile(time.Unix(use, 0), public) {
		return key{}, damaged
	}
	return key{private, public.ID(), info.ModTime().UTC().Truncate(time.Second), time.Unix(use, 0).UTC()}, nil
}

// Sign adds times and a nonce to an assertion, and signs it with the newest key in use.
func (k *Keys) Sign(a Assertion) (Signed, error) {
	all, err := k.load()
	if err != nil {
		return Signed{}, err
	}
	now := time.Now()
	a.Issued, a.Expires, a.Nonce = now.Unix(), now.Add(Life).Unix(), newNonce()
	for _, one := range slices.Backward(all) {
		if !one.use.After(now) {
			return signBoth(a, one.private, one.id)
		}
	}
	return Signed{}, croft.Errorf(croft.Unavailable, "there is no key in %s to sign with", k.Dir)
}

// signBoth signs an assertion, and the statement about its project.
func signBoth(a Assertion, private ed25519.PrivateKey, id string) (s Signed, err error) {
	if s.Assertion, err = sign(a, jwsType, private, id); err != nil || a.ProjectID == "" {
		return s, err
	}
	s.Identity, err = sign(identity{digestOf(s.Assertion), a.ProjectID}, identityType, private, id)
	return s, err
}

// sign signs a statement of a type.
func sign(statement any, typ jose.ContentType, private ed25519.PrivateKey, id string) (string, error) {
	with := jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: private, KeyID: id}}
	signer, err := jose.NewSigner(with, (&jose.SignerOptions{}).WithType(typ))
	if err != nil {
		return "", fmt.Errorf("sign an assertion: %w", err)
	}
	text, err := json.Marshal(statement)
	if err != nil {
		return "", fmt.Errorf("sign an assertion: %w", err)
	}
	signed, err := signer.Sign(text)
	if err != nil {
		return "", fmt.Errorf("sign an assertion: %w", err)
	}
	return signed.CompactSerialize()
}
