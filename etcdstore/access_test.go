package etcdstore_test

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
)

// secured is a server that requires certificates and users, with the credentials for it.
type secured struct {
	authority *etcdtest.Authority
	server    *etcdserver.Server
	good      etcdstore.Credentials
}

func newSecured(t *testing.T) *secured {
	t.Helper()
	a := etcdtest.NewAuthority(t)
	cert, key := a.Issue("server")
	s := &secured{authority: a, server: etcdtest.ServerWith(t,
		etcdserver.Config{Cert: cert, Key: key, ClientCA: a.File})}
	s.good.CA = a.File
	s.good.Cert, s.good.Key = a.Issue("client")
	etcdtest.RequireUsers(t, s.server, s.good)
	s.good.User, s.good.Password = "croft", "croft"
	return s
}

func TestAServerWithTLSCertificatesAndUsersIsAServer(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	for _, c := range []etcdstore.Config{
		{Endpoints: []string{s.server.Endpoint()}, Credentials: s.good, DialTimeout: 20 * time.Second, Mint: true},
		{Embedded: s.server, Credentials: s.good, DialTimeout: 20 * time.Second},
	} {
		store, err := etcdstore.Open(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		etcdtest.Must(store.Instances.Create(t.Context(),
			etcdtest.NewInstance("web-"+string(croft.NewInstanceID()))))(t)
		if problems := store.Cluster.Problems(t.Context()); len(problems) > 0 {
			t.Errorf("problems: %q", problems)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestWhatAServerRefusesIsSaidInASentence(t *testing.T) {
	t.Parallel()
	s := newSecured(t)
	other := etcdtest.NewAuthority(t)
	otherCert, otherKey := other.Issue("stranger")
	https := s.server.Endpoint()
	for _, c := range []struct {
		name     string
		endpoint string
		change   func(*etcdstore.Credentials)
		kind     croft.Kind
		says     string
	}{
		{"a password that is wrong", https, func(a *etcdstore.Credentials) { a.Password = "s3cret-word" },
			croft.Invalid,
			"etcd.password_file"},
		{"no user", https, func(a *etcdstore.Credentials) { a.User, a.Password = "", "" }, croft.Invalid,
			"wants a user and a password"},
		{"a user without a password", https, func(a *etcdstore.Credentials) { a.Password = "" }, croft.Invalid,
			"there is no password"},
		{"a user without the right", https, func(a *etcdstore.Credentials) { a.User, a.Password = "guest", "guest" },
			croft.Invalid, "does not let user guest"},
		{"an authority that we do not know", https, func(a *etcdstore.Credentials) { a.CA = other.File }, croft.Invalid,
			"set etcd.ca"},
		{"an authority that no system knows", https, func(a *etcdstore.Credentials) { a.CA = "" }, croft.Invalid,
			"set etcd.ca"},
		{"no certificate of ours", https, func(a *etcdstore.Credentials) { a.Cert, a.Key = "", "" }, croft.Invalid,
			"set etcd.cert and etcd.key"},
		{"a certificate of ours that it does not know", https, func(a *etcdstore.Credentials) {
			a.Cert, a.Key = otherCert, otherKey
		}, croft.Invalid, "refuses our certificate"},
		{"an address for which the server's certificate is not", strings.Replace(https, "127.0.0.1", "localhost", 1),
			func(*etcdstore.Credentials) {}, croft.Invalid, "certificate for other names"},
		{"no TLS, and a user", strings.Replace(https, "https", "http", 1), func(a *etcdstore.Credentials) {
			*a = etcdstore.Credentials{User: "croft", Password: "croft"}
		}, croft.Invalid, "speaks TLS: write https://"},
		{"no TLS", strings.Replace(https, "https", "http", 1), func(a *etcdstore.Credentials) {
			*a = etcdstore.Credentials{}
		},
			croft.Invalid, "speaks TLS: write https://"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			access := s.good
			c.change(&access)
			wantRefusal(t, []string{c.endpoint}, access, c.kind, c.says)
		})
	}
}

func TestAServersCertificateThatRanOutIsTold(t *testing.T) {
	t.Parallel()
	a := etcdtest.NewAuthority(t)
	pair, err := tls.LoadX509KeyPair(a.IssueUntil("server", time.Now().Add(-time.Minute)))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(http.NotFoundHandler()) // etcd refuses to start with such a certificate
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	server.EnableHTTP2 = true
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	server.StartTLS()
	defer server.Close()
	wantRefusal(t, []string{server.URL}, etcdstore.Credentials{CA: a.File}, croft.Unavailable, "not valid now")
}

func TestAServerWithoutTLSIsTold(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	wantRefusal(t, []string{strings.Replace(server.Endpoint(), "http", "https", 1)}, etcdstore.Credentials{},
		croft.Invalid,
		"does not speak TLS")
}

func TestFilesAndSettingsThatDoNotFitAreTold(t *testing.T) {
	t.Parallel()
	a := etcdtest.NewAuthority(t)
	cert, key := a.Issue("client")
	old, oldKey := a.IssueUntil("old", time.Now().Add(-time.Hour))
	_, otherKey := a.Issue("other")
	none := filepath.Join(t.TempDir(), "none")
	nonsense := filepath.Join(t.TempDir(), "nonsense")
	if err := os.WriteFile(nonsense, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	https, http := []string{"https://127.0.0.1:1"}, []string{"http://127.0.0.1:1"}
	for _, c := range []struct {
		name      string
		endpoints []string
		access    etcdstore.Credentials
		says      string
	}{
		{"an authority that is not there", https, etcdstore.Credentials{CA: none}, "etcd.ca: there is no file " + none},
		{"an authority that is none", https, etcdstore.Credentials{CA: nonsense}, "holds no certificate in PEM"},
		{"a certificate that is not there", https, etcdstore.Credentials{Cert: none, Key: key},
			"etcd.cert: there is no file"},
		{"a key that is not there", https, etcdstore.Credentials{Cert: cert, Key: none}, "etcd.key: there is no file"},
		{"a key of another certificate", https, etcdstore.Credentials{Cert: cert, Key: otherKey},
			"do not belong together"},
		{"a key that is none", https, etcdstore.Credentials{Cert: cert, Key: nonsense}, "do not belong together"},
		{"a certificate that ran out", https, etcdstore.Credentials{Cert: old, Key: oldKey}, "ran out on"},
		{"a certificate alone", https, etcdstore.Credentials{Cert: cert}, "etcd.key is not"},
		{"a key alone", https, etcdstore.Credentials{Key: key}, "etcd.cert is not"},
		{"an authority for a server without TLS", http, etcdstore.Credentials{CA: a.File}, "do not use etcd.ca"},
		{"members with and without TLS", append(https, http...), etcdstore.Credentials{}, "use one of them for all"},
		{"no address", []string{"127.0.0.1:2379"}, etcdstore.Credentials{}, "is no address of a server"},
	} {
		t.Run(c.name, func(t *testing.T) { wantRefusal(t, c.endpoints, c.access, croft.Invalid, c.says) })
	}
}

// wantRefusal fails the test unless opening fails with an error of the kind that contains the text.
func wantRefusal(t *testing.T, endpoints []string, access etcdstore.Credentials, kind croft.Kind, says string) {
	t.Helper()
	var err error
	for patience := 2 * time.Second; patience < time.Minute; patience *= 4 { // a busy machine may be slow
		var store *etcdstore.Store
		store, err = etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: endpoints, Credentials: access, Mint: true,
			DialTimeout: patience})
		if err == nil {
			t.Fatal(errors.Join(errors.New("it was let in"), store.Close()))
		}
		if croft.KindOf(err) == kind {
			break
		}
	}
	etcdtest.WantKind(t, err, kind)
	if !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\n") {
		t.Errorf("it says %q, want one sentence with %q", err, says)
	}
	if strings.Contains(err.Error(), "s3cret-word") {
		t.Errorf("it tells the password: %q", err)
	}
}

func TestAnEmbeddedServerWhoseFilesDoNotFitDoesNotStart(t *testing.T) {
	t.Parallel()
	a := etcdtest.NewAuthority(t)
	cert, key := a.Issue("server")
	_, other := a.Issue("other")
	for name, c := range map[string]etcdserver.Config{
		"a certificate without a key":        {Cert: cert},
		"clients' authority without TLS":     {ClientCA: a.File},
		"a key of another certificate":       {Cert: cert, Key: other},
		"a clients' authority that is a key": {Cert: cert, Key: key, ClientCA: key},
	} {
		t.Run(name, func(t *testing.T) {
			c.Dir, c.Listen = filepath.Join(t.TempDir(), "etcd"), "127.0.0.1:0"
			_, err := etcdserver.Start(t.Context(), c)
			etcdtest.WantKind(t, err, croft.Invalid)
			if _, err := os.Stat(c.Dir); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the directory was made: %v", err)
			}
		})
	}
}
