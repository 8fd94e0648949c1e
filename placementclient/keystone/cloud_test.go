package keystone_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"croft"
	"croft/placementclient/keystone"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// write creates clouds.yaml and, unless secure is empty, secure.yaml, and points the environment at them.
func write(t *testing.T, public, secure string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"clouds.yaml": public, "secure.yaml": secure} {
		if text == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	clean(t)
	t.Setenv("OS_CLIENT_CONFIG_FILE", filepath.Join(dir, "clouds.yaml"))
}

// clean removes the variables of the environment that affect these tests.
func clean(t *testing.T) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "OS_") {
			t.Setenv(name, "")
		}
	}
}

func TestCloudsThatCannotBe(t *testing.T) {
	for _, c := range []struct{ name, cloud, public, secure, want string }{
		{"a cloud that is not there", "prod", "clouds: {prd: {auth: {}}}", "",
			`has no cloud prod, only prd; did you mean "prd"?`},
		{"no clouds at all", "prod", "clouds: {}", "", "has no clouds"},
		{"text that is no YAML", "prod", "clouds: [", "", "did not find"},
		{"a secure.yaml that is no YAML", "prod", "clouds: {prod: {auth: {}}}", "clouds: 7", "secure.yaml"},
		{"no auth", "prod", "clouds: {prod: {region_name: a}}", "", "has no auth"},
		{"a login that there is not", "prod", "clouds: {prod: {auth_type: v3oidcpassword, auth: {}}}", "",
			"auth_type v3oidcpassword"},
		{"no Keystone", "prod", "clouds: {prod: {auth: {username: u}}}", "", "has no auth_url"},
		{"a Keystone that is no URL", "prod", "clouds: {prod: {auth: {auth_url: 'k:5000'}}}", "",
			"has an auth_url that " +
				"is none: k:5000"},
		{"nobody", "prod", "clouds: {prod: {auth: {auth_url: 'http://k'}}}", "", "has neither username and password"},
		{"no password", "prod", "clouds: {prod: {auth: {auth_url: 'http://k', username: u}}}", "", "has no password"},
		{"no project", "prod", "clouds: {prod: {auth: {auth_url: 'http://k', username: u, password: p}}}", "",
			"names no project"},
		{"an application credential without its secret", "prod", "clouds: {prod: {auth: {auth_url: 'http://k', " +
			"application_credential_id: a}}}", "", "without application_credential_secret"},
		{"a named application credential of nobody", "prod", "clouds: {prod: {auth: {auth_url: 'http://k', " +
			"application_credential_name: a, application_credential_secret: s}}}", "", "no user"},
		{"a CA that is not there", "prod",
			"clouds: {prod: {cacert: /none.pem, auth: {auth_url: 'http://k', username: " +
				"u}}}", "", "/none.pem"},
		{"an environment that says nothing", keystone.Environment, "clouds: {}", "",
			"neither OS_CLOUD nor OS_AUTH_URL"},
	} {
		t.Run(c.name, func(t *testing.T) {
			write(t, c.public, c.secure)
			_, err := keystone.Load(c.cloud)
			if !errors.Is(err, croft.Invalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want invalid and %q", err, c.want)
			}
		})
	}
}

func TestNoCloudsFile(t *testing.T) {
	clean(t)
	t.Chdir(t.TempDir())
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	_, err := keystone.Load("prod")
	if !errors.Is(err, croft.Invalid) || !strings.Contains(err.Error(), "OS_CLIENT_CONFIG_FILE") {
		t.Errorf("got %v", err)
	}
}
