package pki_test

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/trust/pki"
)

var anybody pki.Accept = func(pki.Identity) error { return nil }

// TestWhoIsTaken tries every certificate that a peer might show, as client and as server, in simulated time.
func TestWhoIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca, elsewhere := newCA(t, partition), newCA(t, croft.NewPartitionID())
		member, mine := pki.MemberIdentity(partition, host), pki.HostIdentity(partition, host)
		server := issue(t, ca, pki.Hosts, member)
		good := issue(t, ca, pki.Hosts, mine)
		operator := issue(t, ca, pki.Hosts, pki.OperatorIdentity(partition, "anna"))
		ofEtcd := issue(t, ca, pki.Etcd, mine)
		foreign := issue(t, elsewhere, pki.Hosts, pki.HostIdentity(elsewhere.Partition, host))
		self := selfSigned(t, mine)
		short := &pki.CA{Dir: ca.Dir, Partition: partition, Life: time.Minute}
		expired := issue(t, short, pki.Hosts, mine)
		time.Sleep(time.Minute + time.Second)
		for _, c := range []struct {
			name   string
			shown  pki.Files
			client bool // accepted as a client
			server bool
			says   string
		}{
			{"a host", good, true, true, ""},
			{"an operator, who serves nothing", operator, true, false, "not good for this"},
			{"one of the other authority", ofEtcd, false, false, "authority that we do not know"},
			{"one of another cloud", foreign, false, false, "authority that we do not know"},
			{"one that nobody signed", self, false, false, "authority that we do not know"},
			{"one that ran out", expired, false, false, "expired on"},
		} {
			// Peers verify the certificate with the trusted authorities of the good one.
			show := trusting(t, c.shown, good)
			seen, atServer, _ := meet(server.Server(partition, false, anybody), show.Client(partition, anybody))
			if (atServer == nil) != c.client {
				t.Errorf("%s as a client: %v", c.name, atServer)
			}
			if atServer == nil {
				if got, ok := pki.Caller(&http.Request{TLS: &seen}); !ok || got.ID == "" {
					t.Errorf("%s: the server knows the client as %v, %v", c.name, got, ok)
				}
			}
			_, _, atClient := meet(show.Server(partition, true, anybody), pki.Client(trust(t, ca), partition, anybody))
			if (atClient == nil) != c.server {
				t.Errorf("%s as a server: %v", c.name, atClient)
			}
			if !c.server && (atClient == nil || !strings.Contains(atClient.Error(), c.says)) {
				t.Errorf("%s as a server: got %v, want %q", c.name, atClient, c.says)
			}
		}
	})
}

// trusting combines a certificate with the trusted authorities of another.
func trusting(t *testing.T, shown, trust pki.Files) pki.Files {
	t.Helper()
	roots := read(t, trust.CA())
	f := pki.Files{Dir: t.TempDir(), Authority: pki.Hosts}
	write(t, f.Pair(), read(t, shown.Pair()), 0o600)
	write(t, f.CA(), roots, 0o600)
	return f
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func trust(t *testing.T, ca *pki.CA) []byte {
	t.Helper()
	trusted, err := ca.Trusted(pki.Hosts)
	if err != nil {
		t.Fatal(err)
	}
	return trusted
}

// selfSigned returns a self-signed certificate of an identity.
func selfSigned(t *testing.T, id pki.Identity) pki.Files {
	t.Helper()
	key, _, err := pki.Request()
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(id.String())
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), URIs: []*url.URL{u}, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	f := pki.Files{Dir: t.TempDir(), Authority: pki.Hosts}
	if err := f.Keep(key, pki.Issued{Chain: text, Trusted: text}); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestACertificateOfTheFutureIsNotTaken creates a certificate in real time; the clock of a synctest bubble is decades
// behind.
func TestACertificateOfTheFutureIsNotTaken(t *testing.T) {
	ca := newCA(t, partition)
	f := issue(t, ca, pki.Hosts, pki.HostIdentity(partition, host))
	trusted := trust(t, ca)
	synctest.Test(t, func(t *testing.T) {
		_, atServer, atClient := meet(f.Server(partition, false, anybody), f.Client(partition, anybody))
		if atServer == nil || atClient == nil {
			t.Fatalf("taken: %v, %v", atServer, atClient)
		}
		_, _, err := meet(f.Server(partition, true, anybody), pki.Client(trusted, partition, anybody))
		if croft.KindOf(err) != croft.Unavailable || !strings.Contains(err.Error(), "counts from") ||
			!strings.Contains(err.Error(), "set the clocks") {
			t.Errorf("got %v", err)
		}
	})
}

func TestAcceptHasTheLastWord(t *testing.T) {
	ca := newCA(t, partition)
	other := croft.NewHostID()
	server := issue(t, ca, pki.Hosts, pki.MemberIdentity(partition, host))
	client := issue(t, ca, pki.Hosts, pki.HostIdentity(partition, other))
	for _, c := range []struct {
		name             string
		ofClient         pki.Accept
		ofServer         pki.Accept
		p                croft.PartitionID
		client, isServer bool
	}{
		{"both are who they should be", pki.HostOnly(other), pki.Kinds(pki.Member), partition, true, true},
		{"another host", pki.HostOnly(host), anybody, partition, false, true},
		{"a host is no member", pki.Kinds(pki.Member), anybody, partition, false, true},
		{"a server of another kind", anybody, pki.Kinds(pki.Host), partition, true, false},
		{"a server of another host", anybody, pki.HostOnly(other), partition, true, false},
		{"another partition", anybody, anybody, croft.NewPartitionID(), true, false},
	} {
		_, atServer, atClient := meet(server.Server(partition, false, c.ofClient), client.Client(c.p, c.ofServer))
		if c.isServer && (atServer == nil) != c.client || (atClient == nil) != (c.client && c.isServer) {
			t.Errorf("%s: the server says %v, the client %v", c.name, atServer, atClient)
		}
	}
	if _, atServer, _ := meet(server.Server(partition, false, anybody),
		pki.Client(trust(t, ca), partition, anybody)); atServer == nil {
		t.Error("a client without a certificate was taken")
	}
	seen, atServer, atClient := meet(server.Server(partition, true, anybody),
		pki.Client(trust(t, ca), partition, anybody))
	if atServer != nil || atClient != nil {
		t.Errorf("where one is optional: %v, %v", atServer, atClient)
	}
	if id, ok := pki.Caller(&http.Request{TLS: &seen}); ok {
		t.Errorf("who showed none is %v", id)
	}
	if _, ok := pki.Caller(httptest.NewRequest(http.MethodGet, "/", nil)); ok {
		t.Error("who came without TLS is somebody")
	}
}

func TestAPinNamesOneAuthority(t *testing.T) {
	ca, elsewhere := newCA(t, partition), newCA(t, partition)
	root, _, err := ca.Certificates(pki.Hosts)
	if err != nil {
		t.Fatal(err)
	}
	member := pki.MemberIdentity(partition, host)
	for _, c := range []struct {
		name string
		f    pki.Files
		says string
	}{
		{"its certificate", issue(t, ca, pki.Hosts, member), ""},
		{"another authority's, of the same names", issue(t, elsewhere, pki.Hosts, member), "it is the wrong server"},
		{"another's, with the pinned certificate beside it", besides(t, issue(t, elsewhere, pki.Hosts, member), root),
			"authority that we do not know"},
		{"a host's", issue(t, ca, pki.Hosts, pki.HostIdentity(partition, host)), "another kind is required"},
	} {
		_, _, err := meet(c.f.Server(partition, true, anybody),
			pki.Pinned(pki.Pin(root), partition, pki.Kinds(pki.Member)))
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.says)
		}
	}
}

// besides appends a certificate to the shown ones.
func besides(t *testing.T, f pki.Files, c *x509.Certificate) pki.Files {
	t.Helper()
	more := append(read(t, f.Pair()), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	write(t, f.Pair(), more, 0o600)
	return f
}

func TestBothAuthoritiesAreTrustedForAWhile(t *testing.T) {
	ca := newCA(t, partition)
	serverKeeper := keeper(t, ca, pki.Hosts, pki.MemberIdentity(partition, host))
	clientKeeper := keeper(t, ca, pki.Hosts, pki.HostIdentity(partition, host))
	ensure(t, serverKeeper)
	before := ensure(t, clientKeeper)
	talk := func() error {
		_, atServer, atClient := meet(serverKeeper.Files.Server(partition, false, anybody),
			clientKeeper.Files.Client(partition, anybody))
		if atServer != nil {
			return atServer
		}
		return atClient
	}
	want := func(when string) {
		t.Helper()
		if err := talk(); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	want("at first")
	if err := ca.Retire(pki.Hosts); croft.KindOf(err) != croft.NotFound {
		t.Errorf("retired what nothing follows: %v", err)
	}
	if err := ca.Rotate(pki.Hosts); err != nil {
		t.Fatal(err)
	}
	root, old, err := ca.Certificates(pki.Hosts)
	if err != nil || old == nil {
		t.Fatal(old, err)
	}
	if err := ca.Rotate(pki.Hosts); croft.KindOf(err) != croft.Conflict {
		t.Errorf("rotated twice: %v", err)
	}
	want("before anybody knows")
	left := trusting(t, clientKeeper.Files, clientKeeper.Files) // is never renewed
	ensure(t, serverKeeper)
	want("when the server has a certificate of the new one, and the client knows the old one alone")
	if after := ensure(t, clientKeeper); after.Equal(before) {
		t.Error("the client's certificate is still of the old one")
	}
	want("when both have one")
	for _, c := range []*x509.Certificate{root, old} { // tokens made before the rotation, and after it
		if _, _, err := meet(serverKeeper.Files.Server(partition, true, anybody),
			pki.Pinned(pki.Pin(c), partition, anybody)); err != nil {
			t.Errorf("pinned to one of %s: %v", c.NotBefore, err)
		}
	}
	if err := ca.Retire(pki.Hosts); err != nil {
		t.Fatal(err)
	}
	ensure(t, serverKeeper)
	ensure(t, clientKeeper)
	want("when the old one has been retired")
	if _, err, _ := meet(serverKeeper.Files.Server(partition, false, anybody),
		left.Client(partition, anybody)); err == nil {
		t.Error("who never renewed is still taken")
	}
	if n := strings.Count(string(read(t, serverKeeper.Files.CA())), "BEGIN"); n != 1 {
		t.Errorf("%d authorities are trusted, want one", n)
	}
}
