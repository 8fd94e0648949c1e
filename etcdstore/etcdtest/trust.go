package etcdtest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/internal/testing/patient"
)

// Authority signs certificates, which it keeps in files of the test.
type Authority struct {
	File string // its own certificate

	t    testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewAuthority returns a new authority.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t, dir: t.TempDir()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert, a.key = template, a.newKey()
	a.File, _ = a.sign("authority", template, a.key)
	return a
}

// Issue signs a certificate for 127.0.0.1 and returns its file and its key's.
func (a *Authority) Issue(name string) (cert, key string) {
	a.t.Helper()
	return a.IssueUntil(name, time.Now().Add(time.Hour))
}

// IssueUntil is like Issue, with an expiry, which may be in the past.
func (a *Authority) IssueUntil(name string, end time.Time) (cert, key string) {
	a.t.Helper()
	return a.sign(name, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: end,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.newKey())
}

func (a *Authority) newKey() *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	return key
}

func (a *Authority) sign(name string, template *x509.Certificate, key *ecdsa.PrivateKey) (certFile, keyFile string) {
	a.t.Helper()
	cert, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.write(name+".pem", "CERTIFICATE", cert), a.write(name+".key", "PRIVATE KEY", secret)
}

func (a *Authority) write(name, kind string, content []byte) string {
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// ServerWith is like Server, with a configuration.
func ServerWith(t testing.TB, c etcdserver.Config) *etcdserver.Server {
	t.Helper()
	c.Dir, c.Listen, c.Unsynced = t.TempDir(), "127.0.0.1:0", true
	server, err := etcdserver.Start(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return server
}

// RequireUsers makes a server require a user from now on. Its users are root, who may do everything, croft, with
// croft's permissions, and guest, with none; each user's password equals its name. access is what else the server
// requires.
func RequireUsers(t testing.TB, server *etcdserver.Server, access etcdstore.Credentials) {
	t.Helper()
	etcd := Client(t, server, access)
	ctx, cancel := context.WithTimeout(t.Context(), patient.Longest)
	defer cancel()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, user := range []string{"root", "croft", "guest"} {
		_, err := etcd.UserAdd(ctx, user, user)
		check(err)
		_, err = etcd.RoleAdd(ctx, user)
		check(err)
		_, err = etcd.UserGrantRole(ctx, user, user)
		check(err)
	}
	_, err := etcd.RoleGrantPermission(ctx, "croft", "/croft/", clientv3.GetPrefixRangeEnd("/croft/"),
		clientv3.PermissionType(clientv3.PermReadWrite))
	check(err)
	_, err = etcd.AuthEnable(ctx)
	check(err)
}

// Client connects to a server, bypassing the store. It ends with the test.
func Client(t testing.TB, server *etcdserver.Server, access etcdstore.Credentials) *clientv3.Client {
	t.Helper()
	c := clientv3.Config{Endpoints: []string{server.Endpoint()}, Username: access.User, Password: access.Password,
		DialTimeout: 20 * time.Second, Logger: zap.NewNop()}
	if access.CA != "" {
		c.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
		text, err := os.ReadFile(access.CA)
		if err != nil {
			t.Fatal(err)
		}
		c.TLS.RootCAs.AppendCertsFromPEM(text)
	}
	if access.Cert != "" {
		pair, err := tls.LoadX509KeyPair(access.Cert, access.Key)
		if err != nil {
			t.Fatal(err)
		}
		c.TLS.Certificates = []tls.Certificate{pair}
	}
	etcd, err := clientv3.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = etcd.Close() })
	return etcd
}
