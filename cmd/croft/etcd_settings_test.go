package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"croft"
	"croft/control/cloud/direct"
	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
)

func writeSecret(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestEtcdctlsVariablesCountForWhatNothingElseSets(t *testing.T) {
	etcdctl := map[string]string{
		"ETCDCTL_CACERT": "/env/ca", "ETCDCTL_CERT": "/env/cert", "ETCDCTL_KEY": "/env/key", "ETCDCTL_USER": "envy",
		"ETCDCTL_PASSWORD": "secret",
	}
	tls, plain := []string{"https://a:2379"}, []string{"http://a:2379"}
	file := writeSecret(t, "of a file\n", 0o600)
	for _, c := range []struct {
		name string
		set  direct.EtcdSettings
		env  map[string]string
		want etcdstore.Credentials
	}{
		{"all of them", direct.EtcdSettings{Endpoints: tls}, etcdctl,
			etcdstore.Credentials{CA: "/env/ca", Cert: "/env/cert", Key: "/env/key", User: "envy", Password: "secret"}},
		{"no files where there is no TLS", direct.EtcdSettings{Endpoints: plain}, etcdctl,
			etcdstore.Credentials{User: "envy", Password: "secret"}},
		{"a pair is taken whole or not at all", direct.EtcdSettings{Endpoints: tls, Cert: "/our/cert"}, etcdctl,
			etcdstore.Credentials{CA: "/env/ca", Cert: "/our/cert", User: "envy", Password: "secret"}},
		{"our authority", direct.EtcdSettings{Endpoints: tls, CA: "/our/ca"},
			map[string]string{"ETCDCTL_CACERT": "/env/ca"}, etcdstore.Credentials{CA: "/our/ca"}},
		{"a user and password in one", direct.EtcdSettings{Endpoints: plain},
			map[string]string{"ETCDCTL_USER": "envy:p:w"}, etcdstore.Credentials{User: "envy", Password: "p:w"}},
		{"our user with etcdctl's password", direct.EtcdSettings{Endpoints: plain, User: "croft"}, etcdctl,
			etcdstore.Credentials{User: "croft", Password: "secret"}},
		{"our user with our file", direct.EtcdSettings{Endpoints: plain, User: "croft", PasswordFile: file}, etcdctl,
			etcdstore.Credentials{User: "croft", Password: "of a file"}},
		{"no user, no password", direct.EtcdSettings{Endpoints: plain}, map[string]string{"ETCDCTL_PASSWORD": "secret"},
			etcdstore.Credentials{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.set.Config(func(name string) string { return c.env[name] })
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got.Credentials); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestEtcdctlsEndpointsMayLackTheScheme(t *testing.T) {
	for _, c := range []struct {
		endpoints, ca string
		want          []string
	}{
		{"", "", []string{}},
		{"a:1, b:2", "", []string{"http://a:1", "http://b:2"}},
		{"a:1,https://b:2", "/ca", []string{"https://a:1", "https://b:2"}},
	} {
		env := map[string]string{"ETCDCTL_ENDPOINTS": c.endpoints, "ETCDCTL_CACERT": c.ca}
		if diff := cmp.Diff(c.want, direct.EndpointsFromEnv(func(name string) string {
			return env[name]
		})); diff != "" {
			t.Errorf("%q: -want +got:\n%s", c.endpoints, diff)
		}
	}
}

func TestAPasswordFileIsForFewEyes(t *testing.T) {
	for name, path := range map[string]string{
		"none there":           filepath.Join(t.TempDir(), "none"),
		"everybody may read":   writeSecret(t, "x", 0o644),
		"it is empty":          writeSecret(t, "\n", 0o600),
		"it is a directory":    t.TempDir(),
		"it is nobody's (set)": "",
	} {
		s := direct.EtcdSettings{Endpoints: []string{direct.DefaultEtcd}, User: "croft", PasswordFile: path}
		if path == "" {
			s.User, s.PasswordFile = "", writeSecret(t, "x", 0o600)
		}
		if _, err := s.Config(func(string) string { return "" }); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%s: got %v, want it refused", name, err)
		}
	}
}

// Commands reach an etcd that requires certificates and a password; if it rejects them, their exit code says so.
func TestCommandsReachAnEtcdThatTrustsFew(t *testing.T) {
	a := etcdtest.NewAuthority(t)
	cert, key := a.Issue("server")
	server := etcdtest.ServerWith(t, etcdserver.Config{Cert: cert, Key: key, ClientCA: a.File})
	access := etcdstore.Credentials{CA: a.File}
	access.Cert, access.Key = a.Issue("client")
	etcdtest.RequireUsers(t, server, access)
	store, err := etcdstore.Open(t.Context(), etcdstore.Config{
		Endpoints: []string{server.Endpoint()}, Mint: true, DialTimeout: 20 * time.Second,
		Credentials: etcdstore.Credentials{CA: access.CA, Cert: access.Cert, Key: access.Key, User: "croft",
			Password: "croft"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ETCDCTL_ENDPOINTS", server.Endpoint())
	t.Setenv("CROFT_ETCD_CA", access.CA)
	t.Setenv("CROFT_ETCD_CERT", access.Cert)
	t.Setenv("ETCDCTL_CERT", "/not/ours")
	t.Setenv("CROFT_ETCD_KEY", access.Key)
	t.Setenv("CROFT_ETCD_USER", "croft")
	list := func() (int, string) {
		var out, words bytes.Buffer
		return Run(t.Context(), []string{"croft", "schedule", "list", "-o", "json"}, nil, &out, &words), words.String()
	}
	t.Setenv("CROFT_ETCD_PASSWORD_FILE", writeSecret(t, "croft\n", 0o600))
	if code, said := list(); code != croft.ExitOK {
		t.Errorf("exit code %d: %s", code, said)
	}
	t.Setenv("CROFT_ETCD_PASSWORD_FILE", writeSecret(t, "guessed\n", 0o600))
	if code, said := list(); code != croft.ExitUsage || !strings.Contains(said, "etcd.password_file") ||
		strings.Contains(said, "guessed") {
		t.Errorf("a wrong password: exit code %d: %s", code, said)
	}
	t.Setenv("CROFT_ETCD_CA", etcdtest.NewAuthority(t).File)
	if code, said := list(); code != croft.ExitUsage || !strings.Contains(said, "set etcd.ca") {
		t.Errorf("another authority: exit code %d: %s", code, said)
	}
}
