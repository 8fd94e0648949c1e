package pki_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/quick"

	"go.uber.org/goleak"

	"croft"
	"croft/trust/pki"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var partition, host = croft.NewPartitionID(), croft.NewHostID()

func newCA(t *testing.T, p croft.PartitionID) *pki.CA {
	t.Helper()
	ca, err := pki.OpenCA(filepath.Join(t.TempDir(), "ca"), p)
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// keeper returns a keeper of an identity's certificate in its own directory.
func keeper(t *testing.T, ca *pki.CA, a pki.Authority, id pki.Identity, names ...string) pki.Keeper {
	t.Helper()
	return pki.Keeper{
		Files: pki.Files{Dir: filepath.Join(t.TempDir(), "tls"), Authority: a}, Issuer: ca.For(id, names...),
		Log: slog.New(slog.DiscardHandler),
	}
}

// issue issues the certificate of an identity.
func issue(t *testing.T, ca *pki.CA, a pki.Authority, id pki.Identity, names ...string) pki.Files {
	t.Helper()
	k := keeper(t, ca, a, id, names...)
	ensure(t, k)
	return k.Files
}

func ensure(t *testing.T, k pki.Keeper) *x509.Certificate {
	t.Helper()
	if _, err := k.Ensure(t.Context()); err != nil {
		t.Fatal(err)
	}
	return leaf(t, k.Files)
}

func leaf(t *testing.T, f pki.Files) *x509.Certificate {
	t.Helper()
	pair, err := f.Load()
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}

// meet connects a client and a server, and returns the server's connection state and the error of each side.
func meet(server, client *tls.Config) (seen tls.ConnectionState, atServer, atClient error) {
	here, there := net.Pipe()
	s, c := tls.Server(here, server), tls.Client(there, client)
	ended := make(chan error, 1)
	go func() {
		err := s.HandshakeContext(context.Background())
		if err == nil {
			_, err = s.Write([]byte("x"))
		}
		ended <- errors.Join(err, ignoreClosed(here, err))
	}()
	atClient = c.HandshakeContext(context.Background())
	if atClient == nil {
		_, atClient = c.Read(make([]byte, 1)) // a server verifies after the client
	}
	_ = there.Close()
	atServer = <-ended
	return s.ConnectionState(), atServer, atClient
}

// ignoreClosed closes what a failed handshake left open.
func ignoreClosed(c net.Conn, err error) error {
	if err != nil {
		_ = c.Close()
	}
	return nil
}

func TestIdentitiesAreReadAsTheyWereWritten(t *testing.T) {
	for _, id := range []pki.Identity{
		pki.HostIdentity(partition, host), pki.MemberIdentity(partition, host),
		pki.OperatorIdentity(partition, "anna.b-c_d"),
	} {
		u, err := url.Parse(id.String())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := pki.IdentityOf(&x509.Certificate{URIs: []*url.URL{u}}); err != nil || got != id {
			t.Errorf("got %v, %v, want %v", got, err, id)
		}
	}
}

func TestWhatSaysNotOneIdentityIsRefused(t *testing.T) {
	p, h := string(partition), string(host)
	for name, texts := range map[string][]string{
		"nothing":                 {},
		"two":                     {"croft://" + p + "/host/" + h, "croft://" + p + "/member/" + h},
		"another scheme":          {"https://" + p + "/host/" + h},
		"no partition":            {"croft:///host/" + h},
		"a partition that is not": {"croft://everything/host/" + h},
		"no kind":                 {"croft://" + p + "/" + h},
		"another kind":            {"croft://" + p + "/root/" + h},
		"no host":                 {"croft://" + p + "/host/"},
		"a host that is none":     {"croft://" + p + "/host/x"},
		"a host in capitals":      {"croft://" + p + "/host/" + strings.ToUpper(h)},
		"more after it":           {"croft://" + p + "/host/" + h + "/x"},
		"a question":              {"croft://" + p + "/host/" + h + "?x"},
		"an anchor":               {"croft://" + p + "/host/" + h + "#x"},
		"a user":                  {"croft://x@" + p + "/host/" + h},
		"an operator's path":      {"croft://" + p + "/operator/../x"},
		"an authority":            {"croft://" + p + "/authority/hosts"},
	} {
		c := &x509.Certificate{}
		for _, text := range texts {
			u, err := url.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			c.URIs = append(c.URIs, u)
		}
		if got, err := pki.IdentityOf(c); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}

// TestNoNameMakesAnotherIdentity checks that a certificate contains exactly the operator's name, or is not issued.
func TestNoNameMakesAnotherIdentity(t *testing.T) {
	ca := newCA(t, partition)
	_, csr, err := pki.Request()
	if err != nil {
		t.Fatal(err)
	}
	same := func(name string) bool {
		id := pki.OperatorIdentity(partition, name)
		issued, err := ca.Sign(pki.Hosts, id, nil, csr)
		if err != nil {
			return croft.KindOf(err) == croft.Invalid
		}
		got, err := pki.IdentityOf(firstOf(t, issued.Chain))
		return err == nil && got == id
	}
	if err := quick.Check(same, nil); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"anna", "a", "", ".", "..", "a/b", "a b", "a%2fb", "ä", "a\x00"} {
		if !same(name) {
			t.Errorf("%q became something else", name)
		}
	}
}

func TestTheSignerSaysWhoItIs(t *testing.T) {
	ca := newCA(t, partition)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	forged, err := url.Parse(pki.MemberIdentity(partition, croft.NewHostID()).String())
	if err != nil {
		t.Fatal(err)
	}
	csr, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: "root"}, DNSNames: []string{"placement"},
		IPAddresses: []net.IP{net.IPv4(10, 0, 0, 1)}, URIs: []*url.URL{forged},
		// an authority
		ExtraExtensions: []pkix.Extension{{Id: []int{2, 5, 29, 19}, Critical: true,
			Value: []byte{0x30, 3, 1, 1, 0xff}}},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	issued, err := ca.Sign(pki.Hosts, pki.HostIdentity(partition, host), []string{"10.0.0.2"}, csr)
	if err != nil {
		t.Fatal(err)
	}
	c := firstOf(t, issued.Chain)
	id, err := pki.IdentityOf(c)
	if err != nil || id != pki.HostIdentity(partition, host) {
		t.Errorf("the certificate is of %v, %v", id, err)
	}
	if c.IsCA || len(c.DNSNames) > 0 || len(c.IPAddresses) != 1 || c.IPAddresses[0].String() != "10.0.0.2" ||
		c.Subject.CommonName == "root" {
		t.Errorf("the request had its way: %+v", c)
	}
}

// firstOf returns the first certificate of a chain.
func firstOf(t *testing.T, chain []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(chain)
	if block == nil {
		t.Fatal("no PEM")
	}
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWhatIsNoRequestIsNotSigned(t *testing.T) {
	ca := newCA(t, partition)
	_, good, err := pki.Request()
	if err != nil {
		t.Fatal(err)
	}
	small, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, small)
	if err != nil {
		t.Fatal(err)
	}
	changed := append([]byte(nil), good...)
	changed[len(changed)-1] ^= 1
	mine := pki.HostIdentity(partition, host)
	for name, r := range map[string]struct {
		id  pki.Identity
		csr []byte
	}{
		"nothing":                 {mine, nil},
		"half of one":             {mine, good[:len(good)/2]},
		"a signature that is not": {mine, changed},
		"a small key":             {mine, weak},
		"another partition":       {pki.HostIdentity(croft.NewPartitionID(), host), good},
		"no identity":             {pki.Identity{}, good},
	} {
		if _, err := ca.Sign(pki.Hosts, r.id, nil, r.csr); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnAuthorityIsMadeOnceAndIsItsClouds(t *testing.T) {
	ca := newCA(t, partition)
	before, _, err := ca.Certificates(pki.Hosts)
	if err != nil {
		t.Fatal(err)
	}
	again, err := pki.OpenCA(ca.Dir, partition)
	if err != nil {
		t.Fatal(err)
	}
	if after, _, err := again.Certificates(pki.Hosts); err != nil || !after.Equal(before) {
		t.Errorf("the authority was made anew, %v", err)
	}
	if _, err := pki.OpenCA(ca.Dir, croft.NewPartitionID()); croft.KindOf(err) != croft.Conflict {
		t.Errorf("another cloud took it: %v", err)
	}
	if found, err := pki.FindCA(ca.Dir); err != nil || found.Partition != partition {
		t.Errorf("found %v, %v", found, err)
	}
	if _, err := pki.FindCA(t.TempDir()); croft.KindOf(err) != croft.NotFound {
		t.Errorf("none was found: %v", err)
	}
}

func TestFilesThatAreNotAsTheyShouldBe(t *testing.T) {
	ca := newCA(t, partition)
	mine := issue(t, ca, pki.Hosts, pki.HostIdentity(partition, host))
	other := issue(t, ca, pki.Hosts, pki.HostIdentity(partition, croft.NewHostID()))
	text, err := os.ReadFile(mine.Pair())
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := os.ReadFile(other.Pair())
	if err != nil {
		t.Fatal(err)
	}
	certs := strings.Index(string(foreign), "-----BEGIN CERTIFICATE")
	key := strings.Index(string(text), "-----BEGIN CERTIFICATE")
	for name, c := range map[string]struct {
		text []byte
		mode fs.FileMode
		says string
	}{
		"readable by a group":   {text, 0o640, "others may read"},
		"readable by all":       {text, 0o644, "chmod go= " + mine.Pair()},
		"half written":          {text[:len(text)/2], 0o600, "is damaged"},
		"cut within the key":    {text[:key/2], 0o600, "is damaged"},
		"empty":                 {nil, 0o600, "is damaged"},
		"the key alone":         {text[:key], 0o600, "is damaged"},
		"certificates alone":    {text[key:], 0o600, "is damaged"},
		"the key of another":    {append(append([]byte(nil), text[:key]...), foreign[certs:]...), 0o600, "is damaged"},
		"something else":        {[]byte("hello\n"), 0o600, "is damaged"},
		"more at the end":       {append(append([]byte(nil), text...), "hello"...), 0o600, "is damaged"},
		"two keys, one is ours": {append(append([]byte(nil), text...), foreign[:certs]...), 0o600, "is damaged"},
	} {
		for _, file := range []string{mine.Pair(), filepath.Join(ca.Dir, "hosts.pem")} {
			whole, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			write(t, file, c.text, c.mode)
			says := strings.ReplaceAll(c.says, mine.Pair(), file)
			if file == mine.Pair() {
				_, err = mine.Load()
			} else {
				_, err = pki.OpenCA(ca.Dir, partition)
			}
			// Another installation's certificate as the authority has a different message.
			if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), says) ||
				!strings.Contains(err.Error(), file) {
				t.Errorf("%s, %s: got %v, want %q", file, name, err, says)
			}
			if err != nil && strings.Contains(err.Error(), "PRIVATE") {
				t.Errorf("%s: the error tells the key: %v", name, err)
			}
			write(t, file, whole, 0o600)
		}
	}
}

func write(t *testing.T, file string, text []byte, mode fs.FileMode) {
	t.Helper()
	if err := errors.Join(os.WriteFile(file, text, mode), os.Chmod(file, mode)); err != nil {
		t.Fatal(err)
	}
}

func TestOnlyTheOwnerReadsWhatIsWritten(t *testing.T) {
	ca := newCA(t, partition)
	f := issue(t, ca, pki.Etcd, pki.MemberIdentity(partition, host))
	for _, dir := range []string{ca.Dir, f.Dir} {
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 2 {
			t.Fatalf("%s has %v, %v", dir, entries, err)
		}
		for _, e := range entries {
			if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("%s: mode %v, %v", e.Name(), info.Mode(), err)
			}
		}
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: mode %v, %v", dir, info.Mode(), err)
		}
	}
}

func TestWhatWasNotAskedForIsNotKept(t *testing.T) {
	ca := newCA(t, partition)
	f := issue(t, ca, pki.Hosts, pki.HostIdentity(partition, host))
	before := leaf(t, f)
	key, _, err := pki.Request()
	if err != nil {
		t.Fatal(err)
	}
	_, csr, err := pki.Request()
	if err != nil {
		t.Fatal(err)
	}
	other, err := ca.Sign(pki.Hosts, pki.HostIdentity(partition, host), nil, csr)
	if err != nil {
		t.Fatal(err)
	}
	for name, issued := range map[string]pki.Issued{
		"nothing": {}, "for another key": other, "nobody to trust": {Chain: other.Chain},
	} {
		if err := f.Keep(key, issued); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !leaf(t, f).Equal(before) {
		t.Error("the certificate changed")
	}
}
