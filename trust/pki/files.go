package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"croft"
	"croft/internal/durable"
)

// Files store a certificate of one authority with its key, and the trusted certificates of that authority. Each
// file is replaced atomically.
type Files struct {
	Dir       string
	Authority Authority
}

// Pair is the file of the certificate, the intermediate certificates and the key: one file, so that certificate
// and key always match. Programs that need two files accept it for both.
func (f Files) Pair() string { return filepath.Join(f.Dir, string(f.Authority)+".pem") }

// CA is the file of the trusted certificates.
func (f Files) CA() string { return filepath.Join(f.Dir, string(f.Authority)+"-ca.pem") }

// Load reads the certificate and its key. fs.ErrNotExist: none exists. Invalid: the files are damaged, or the key is
// readable by others.
func (f Files) Load() (*tls.Certificate, error) {
	certs, key, err := readPEM(f.Pair())
	if err != nil {
		return nil, err
	}
	if key == nil || len(certs) == 0 || !key.PublicKey.Equal(certs[0].PublicKey) {
		return nil, damaged(f.Pair(), errors.New("it is not a certificate and its key"))
	}
	pair := &tls.Certificate{PrivateKey: key, Leaf: certs[0]}
	for _, c := range certs {
		pair.Certificate = append(pair.Certificate, c.Raw)
	}
	return pair, nil
}

// Identity returns the identity in the certificate.
func (f Files) Identity() (Identity, error) {
	pair, err := f.Load()
	if err != nil {
		return Identity{}, err
	}
	return IdentityOf(pair.Leaf)
}

// Roots reads the trusted certificates as a pool.
func (f Files) Roots() (*x509.CertPool, error) {
	text, err := os.ReadFile(f.CA())
	if err != nil {
		return nil, fmt.Errorf("read the trusted authorities: %w", err)
	}
	return pool(f.CA(), text)
}

// Authorities reads the trusted certificates.
func (f Files) Authorities() ([]*x509.Certificate, error) {
	text, err := os.ReadFile(f.CA())
	if err != nil {
		return nil, fmt.Errorf("read the trusted authorities: %w", err)
	}
	certs, _, err := parsePEM(text)
	return certs, err
}

func pool(name string, text []byte) (*x509.CertPool, error) {
	certs, _, err := parsePEM(text)
	if err == nil && len(certs) == 0 {
		err = errors.New("it holds no certificate in PEM")
	}
	if err != nil {
		return nil, damaged(name, err)
	}
	roots := x509.NewCertPool()
	for _, c := range certs {
		roots.AddCert(c)
	}
	return roots, nil
}

// Request creates a key, and a certificate request for it. Nothing is stored yet.
func Request() (*ecdsa.PrivateKey, []byte, error) {
	key, err := newKey()
	if err != nil {
		return nil, nil, fmt.Errorf("make a key: %w", err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		return nil, nil, fmt.Errorf("make the request for a certificate: %w", err)
	}
	return key, csr, nil
}

// Keep stores the issued certificates for a key. Invalid: the certificate is for another key, or incomplete; nothing
// has changed then.
func (f Files) Keep(key *ecdsa.PrivateKey, issued Issued) error {
	certs, _, err := parsePEM(issued.Chain)
	if err != nil || len(certs) == 0 || !key.PublicKey.Equal(certs[0].PublicKey) {
		return croft.Errorf(croft.Invalid, "what was issued is not a certificate for the requested key")
	}
	if _, err := pool("what was issued", issued.Trusted); err != nil {
		return err
	}
	text, err := encodeKey(key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(f.Dir, 0o700); err != nil {
		return fmt.Errorf("make the directory of certificates: %w", err)
	}
	// Trusted certificates first: a chain that a peer shows in answer to ours may need them.
	if err := f.Trust(issued.Trusted); err != nil {
		return err
	}
	return durable.Write(f.Pair(), slices.Concat(text, issued.Chain), 0o600)
}

// Trust stores the trusted certificates if they differ from the stored ones.
func (f Files) Trust(trusted []byte) error {
	if have, err := os.ReadFile(f.CA()); err == nil && bytes.Equal(have, trusted) {
		return nil
	}
	if _, err := pool("the trusted authorities", trusted); err != nil {
		return err
	}
	return durable.Write(f.CA(), trusted, 0o600)
}

// FirstPin returns the pin of the signing authority: the first of the trusted certificates in PEM.
func FirstPin(trusted []byte) (string, error) {
	certs, _, err := parsePEM(trusted)
	if err != nil || len(certs) == 0 {
		return "", croft.Errorf(croft.Invalid, "the trusted authorities cannot be read: %w", err)
	}
	return Pin(certs[0]), nil
}

// readPEM reads certificates and a private key from a file, which must not be readable by others.
func readPEM(file string) ([]*x509.Certificate, *ecdsa.PrivateKey, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, nil, fmt.Errorf("read a private key: %w", err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, nil,
			croft.Errorf(croft.Invalid,
				"others may read the private key in %s: chmod go= %s, and if they may have, have it made anew", file,
				file)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("read a private key: %w", err)
	}
	certs, key, err := parsePEM(text)
	if err != nil {
		return nil, nil, damaged(file, err)
	}
	return certs, key, nil
}

// errDamaged: the file was not written by croft, or is incomplete.
var errDamaged = errors.New("is damaged")

func damaged(file string, err error) error {
	return croft.Errorf(croft.Invalid, "%s %w (%w): put back the file that was there", file, errDamaged, err)
}

// parsePEM reads certificates and a private key, and nothing else.
func parsePEM(text []byte) (certs []*x509.Certificate, key *ecdsa.PrivateKey, err error) {
	for len(bytes.TrimSpace(text)) > 0 {
		block, rest := pem.Decode(text)
		if block == nil {
			return nil, nil, errors.New("its end is no PEM")
		}
		text = rest
		switch block.Type {
		case "CERTIFICATE":
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, nil, err
			}
			certs = append(certs, c)
		case "PRIVATE KEY":
			any, err := x509.ParsePKCS8PrivateKey(block.Bytes)
			if err != nil {
				return nil, nil, errors.New("its private key cannot be read") // the cause may quote the key
			}
			ec, ok := any.(*ecdsa.PrivateKey)
			if !ok || key != nil {
				return nil, nil, errors.New("it does not have one key of ECDSA")
			}
			key = ec
		default:
			return nil, nil, fmt.Errorf("it holds a %s", block.Type)
		}
	}
	return certs, key, nil
}

// encode writes certificates as PEM and skips nil ones.
func encode(certs ...*x509.Certificate) []byte {
	var text []byte
	for _, c := range certs {
		if c != nil {
			text = append(text, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
		}
	}
	return text
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode a private key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// Exists reports whether there is a certificate, valid or not.
func (f Files) Exists() bool {
	_, err := os.Stat(f.Pair())
	return !errors.Is(err, fs.ErrNotExist)
}
