package access_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"croft"
	"croft/tenant/access"
	"croft/trust/pki"
)

func TestWhoACertificateStandsFor(t *testing.T) {
	p, other := croft.NewPartitionID(), croft.NewPartitionID()
	host := croft.NewHostID()
	admit := func(r *http.Request) (pki.Identity, error) {
		id, _ := pki.Caller(r)
		return id, nil
	}
	refuse := func(kind croft.Kind) func(*http.Request) (pki.Identity, error) {
		return func(*http.Request) (pki.Identity, error) {
			return pki.Identity{}, croft.Errorf(kind, "host h1 was forgotten")
		}
	}
	for _, c := range []struct {
		name  string
		uri   string // of the verified certificate; "": none
		admit func(*http.Request) (pki.Identity, error)
		role  access.Role // "": not authenticated
		host  croft.HostID
		kind  croft.Kind
		says  string
	}{
		{"no certificate", "", refuse(croft.Invalid), "", "", "", ""},
		{"an operator", pki.OperatorIdentity(p, "anna").String(), admit, access.PartitionAdmin, "", "", ""},
		{"a host", pki.HostIdentity(p, host).String(), admit, access.Agent, host, "", ""},
		{"a host that serves etcd", pki.MemberIdentity(p, host).String(), admit, access.Agent, host, "", ""},
		{"an operator of another cloud", pki.OperatorIdentity(other, "anna").String(), admit, "", "", croft.Denied,
			"of another cloud"},
		{"a forgotten host", pki.HostIdentity(p, host).String(), refuse(croft.NotFound), "", "", croft.Denied,
			"host h1 was forgotten"},
		{"a host of which nobody knows now", pki.HostIdentity(p, host).String(), refuse(croft.Unavailable), "", "",
			croft.Unavailable, ""},
		{"a certificate of another program", "spiffe://x/y", admit, "", "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := request(t)
			if r.TLS = (&tls.ConnectionState{}); c.uri != "" {
				u, err := url.Parse(c.uri)
				if err != nil {
					t.Fatal(err)
				}
				r.TLS.VerifiedChains = [][]*x509.Certificate{{{URIs: []*url.URL{u}}}}
			}
			got, ok, err := access.Certificates{Partition: p, Admit: c.admit}.Authenticate(t.Context(), r)
			if ok != (c.role != "") || croft.KindOf(err) != c.kind {
				t.Fatalf("got %+v, %v, %v", got, ok, err)
			}
			if err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("it says %q, want %q in it", err, c.says)
			}
			if ok && (len(got.Roles) != 1 || got.Roles[0] != c.role || got.Host != c.host || got.Partition != p ||
				got.Project != "") {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestWithoutTLSThereIsNoCertificate(t *testing.T) {
	if _, ok, err := (access.Certificates{}).Authenticate(t.Context(), request(t)); ok || err != nil {
		t.Errorf("got %v, %v", ok, err)
	}
}
