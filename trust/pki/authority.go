package pki

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"croft"
	"croft/internal/durable"
)

// CA signs for both authorities. Its directory has one key file for each, which is read for every signature,
// since another process may change it.
type CA struct {
	Dir       string
	Partition croft.PartitionID
	Life      time.Duration // of the certificates that it signs; the constant Life if zero
}

// Issued is a certificate with its chain, both in PEM: the intermediate certificates, and the authority's own
// for peers that know only its pin; and all authorities that are trusted now.
type Issued struct {
	Chain   []byte `json:"chain"`
	Trusted []byte `json:"trusted"`
}

// signer is one authority with its key.
type signer struct {
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	// During a rotation: the former authority, which is still trusted, and our own certificate signed by it,
	// for peers that do not know us yet.
	old, cross *x509.Certificate
}

// OpenCA opens the authorities of a directory and creates missing ones. Conflict: they belong to another
// installation. Damaged files are never replaced.
func OpenCA(dir string, p croft.PartitionID) (*CA, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of the certificate authority: %w", err)
	}
	ca := &CA{Dir: dir, Partition: p}
	for _, a := range Authorities {
		_, err := ca.read(a)
		if errors.Is(err, fs.ErrNotExist) {
			err = ca.change(a, func(made *signer) (*signer, error) {
				if made != nil {
					return made, nil // by another process in the meantime
				}
				return newSigner(a, p, nil)
			})
		}
		if err != nil {
			return nil, err
		}
	}
	return ca, nil
}

// FindCA opens the authorities of a directory, of whichever installation they are. NotFound: there are none.
func FindCA(dir string) (*CA, error) {
	ca := &CA{Dir: dir}
	for _, a := range Authorities {
		s, err := ca.read(a)
		if err == nil {
			ca.Partition = croft.PartitionID(s.cert.URIs[0].Host)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil,
				croft.Errorf(croft.NotFound,
					"%s has no certificate authority: it is on the host where croft up began this cloud", dir)
		}
		if err != nil {
			return nil, err
		}
	}
	return ca, nil
}

func (ca *CA) file(a Authority) string { return filepath.Join(ca.Dir, string(a)+".pem") }

// LeafLife returns the lifetime of the certificates that it signs now.
func (ca *CA) LeafLife() time.Duration { return cmp.Or(ca.Life, Life) }

// Certificates returns the authority's own certificate, and its predecessor's if that is still trusted.
func (ca *CA) Certificates(a Authority) (current, old *x509.Certificate, err error) {
	s, err := ca.read(a)
	if err != nil {
		return nil, nil, err
	}
	return s.cert, s.old, nil
}

// Trusted returns the trusted certificates of an authority, in PEM, the signing one first.
func (ca *CA) Trusted(a Authority) ([]byte, error) {
	s, err := ca.read(a)
	if err != nil {
		return nil, err
	}
	return encode(s.cert, s.old), nil
}

// Sign issues a certificate for an identity and the key of a request. Everything else in the request is ignored: the
// caller determines identity, names and addresses. Invalid: the request is malformed, or its key has the wrong type.
func (ca *CA) Sign(a Authority, id Identity, names []string, csr []byte) (Issued, error) {
	if err := id.Validate(); err != nil {
		return Issued{}, err
	}
	if id.Partition != ca.Partition {
		return Issued{}, croft.Errorf(croft.Invalid, "sign for %s: this is the authority of %s", id, ca.Partition)
	}
	request, err := x509.ParseCertificateRequest(csr)
	if err == nil {
		err = request.CheckSignature()
	}
	if err != nil {
		return Issued{}, croft.Errorf(croft.Invalid, "this is not a request for a certificate: %w", err)
	}
	if key, ok := request.PublicKey.(*ecdsa.PublicKey); !ok || key.Curve != elliptic.P256() {
		return Issued{}, croft.Errorf(croft.Invalid, "a request for a certificate has to be for a key of ECDSA P-256")
	}
	s, err := ca.read(a)
	if err != nil {
		return Issued{}, err
	}
	return s.sign(id, names, usage(a, id.Kind), ca.LeafLife(), request.PublicKey)
}

// usage returns the extended key usage: hosts serve their API, but not etcd.
func usage(a Authority, k Kind) []x509.ExtKeyUsage {
	client, server := x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth
	if k == Member || a == Hosts && k == Host {
		return []x509.ExtKeyUsage{client, server}
	}
	return []x509.ExtKeyUsage{client}
}

func (s *signer) sign(id Identity, names []string, usage []x509.ExtKeyUsage, life time.Duration, key any) (Issued,
	error) {
	now := time.Now()
	switch {
	case now.Before(s.cert.NotBefore):
		return Issued{},
			croft.Errorf(croft.Unavailable, "%s counts from %s on, which is yet to come: set the clock of this machine",
				s.cert.Subject.CommonName, s.cert.NotBefore.Format(time.DateTime))
	case now.After(s.cert.NotAfter):
		return Issued{}, croft.Errorf(croft.Unavailable, "%s ran out on %s: make the next one with `croft ca rotate`",
			s.cert.Subject.CommonName, s.cert.NotAfter.Format(time.DateOnly))
	}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: string(id.Kind) + " " + id.ID},
		URIs:    []*url.URL{id.uri()},
		// In tests, slack could exceed a lifetime of seconds.
		NotBefore: now.Add(-min(slack, life/10)), NotAfter: earlier(now.Add(life), s.cert.NotAfter),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: usage,
		BasicConstraintsValid: true,
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	leaf, err := create(template, s.cert, key, s.key)
	if err != nil {
		return Issued{}, fmt.Errorf("sign the certificate of %s: %w", id, err)
	}
	return Issued{Chain: encode(leaf, s.cross, s.cert, s.old), Trusted: encode(s.cert, s.old)}, nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// Rotate replaces the signing authority by a new one. Both are trusted until Retire, and peers that know only
// the old one accept the new one's certificates too. Conflict: the previous rotation is not finished.
func (ca *CA) Rotate(a Authority) error {
	return ca.change(a, func(s *signer) (*signer, error) {
		if s.old != nil {
			return nil,
				croft.Errorf(croft.Conflict,
					"the authority %s follows another one, which is trusted still: end that first", a)
		}
		return newSigner(a, ca.Partition, s)
	})
}

// Retire ends the trust in the predecessor of the present authority. NotFound: none exists.
func (ca *CA) Retire(a Authority) error {
	return ca.change(a, func(s *signer) (*signer, error) {
		if s.old == nil {
			return nil, croft.Errorf(croft.NotFound, "the authority %s follows no other one that is trusted still", a)
		}
		s.old = nil // our cross-signed certificate stays, for servers that read the trusted authorities only at start
		return s, nil
	})
}

// newSigner creates an authority, as the successor of old unless that is nil.
func newSigner(a Authority, p croft.PartitionID, old *signer) (*signer, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		Subject: pkix.Name{Organization: []string{scheme},
			CommonName: "croft's authority " + string(a) + " of " + now.UTC().Format(time.DateOnly)},
		URIs:      []*url.URL{{Scheme: scheme, Host: string(p), Path: "/authority/" + string(a)}},
		NotBefore: now.Add(-slack), NotAfter: now.Add(authorityLife),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, BasicConstraintsValid: true, IsCA: true,
		MaxPathLen: 1, // its successor, which it signs too
	}
	s := &signer{key: key}
	if s.cert, err = create(template, template, &key.PublicKey, key); err != nil || old == nil {
		return s, err
	}
	s.old = old.cert
	template.MaxPathLen, template.MaxPathLenZero = 0, true
	template.NotAfter = earlier(template.NotAfter, old.cert.NotAfter)
	s.cross, err = create(template, old.cert, &key.PublicKey, old.key)
	return s, err
}

func create(template, parent *x509.Certificate, public any, private *ecdsa.PrivateKey) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, private)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

// read loads an authority and checks that it belongs to this installation.
func (ca *CA) read(a Authority) (*signer, error) {
	file := ca.file(a)
	certs, key, err := readPEM(file)
	if err != nil {
		return nil, err
	}
	if key == nil || len(certs) == 0 || !key.PublicKey.Equal(certs[0].PublicKey) || !certs[0].IsCA {
		return nil, damaged(file, errors.New("it is not an authority and its key"))
	}
	if u := certs[0].URIs; len(u) != 1 || ca.Partition != "" && u[0].Host != string(ca.Partition) ||
		u[0].Path != "/authority/"+string(a) {
		return nil,
			croft.Errorf(croft.Conflict,
				"%s is not the authority %s of this cloud (%s): put back the file that was there", file, a,
				ca.Partition)
	}
	s := &signer{key: key, cert: certs[0]}
	for _, c := range certs[1:] {
		if bytes.Equal(c.RawSubjectPublicKeyInfo, s.cert.RawSubjectPublicKeyInfo) {
			s.cross = c
		} else {
			s.old = c
		}
	}
	return s, nil
}

func (ca *CA) write(a Authority, s *signer) error {
	key, err := encodeKey(s.key)
	if err != nil {
		return err
	}
	return durable.Write(ca.file(a), slices.Concat(key, encode(s.cert, s.cross, s.old)), 0o600)
}

// change replaces an authority by the result of become, which gets nil if none exists yet. It runs in one process at a
// time.
func (ca *CA) change(a Authority, become func(*signer) (*signer, error)) (err error) {
	dir, err := os.Open(ca.Dir)
	if err != nil {
		return fmt.Errorf("open the directory of the certificate authority: %w", err)
	}
	defer func() { err = errors.Join(err, dir.Close()) }() // also releases the lock
	if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock %s: %w", ca.Dir, err)
	}
	before, err := ca.read(a)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	after, err := become(before)
	if err != nil {
		return err
	}
	return ca.write(a, after)
}

// For returns the CA as the Issuer for one identity, with the names at which it serves.
func (ca *CA) For(id Identity, names ...string) Issuer { return own{ca, id, names} }

type own struct {
	ca    *CA
	id    Identity
	names []string
}

func (o own) Trusted(_ context.Context, a Authority) ([]byte, error) { return o.ca.Trusted(a) }

func (o own) Issue(_ context.Context, a Authority, csr []byte) (Issued, error) {
	return o.ca.Sign(a, o.id, o.names, csr)
}

// fits reports whether a certificate is for the same identity and for all the names.
func (o own) fits(c *x509.Certificate) bool {
	if i, err := IdentityOf(c); err != nil || i != o.id {
		return false
	}
	return !slices.ContainsFunc(o.names, func(name string) bool { return c.VerifyHostname(name) != nil })
}
