package keystone_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"croft"
	"croft/etcdstore/etcdtest"
	"croft/placement"
	"croft/placementclient"
	"croft/placementclient/keystone"
	"croft/placementclient/keystone/keystonetest"
)

const (
	keystoneFile = "clouds: {prod: {region_name: one, interface: internal, auth: {auth_url: '%s', username: nova, " +
		"project_name: service}}}"
	secretFile = "clouds: {prod: {auth: {password: secret}}}"
)

func addUsers(k *keystonetest.Keystone) {
	k.Add(keystonetest.User{Name: "nova", Password: "secret", Project: "service", Roles: []string{"admin", "reader"},
		Credential: "c1"})
	k.Add(keystonetest.User{Name: "watcher", Password: "secret", Roles: []string{"reader"}})
	k.Add(keystonetest.User{Name: "demo", Password: "secret", Project: "demo", Roles: []string{"member", "reader"}})
}

// start runs a Keystone with users and makes prod its cloud.
func start(t *testing.T) *keystonetest.Keystone {
	t.Helper()
	k := keystonetest.Start(t)
	addUsers(k)
	write(t, fmt.Sprintf(keystoneFile, k.URL), secretFile)
	return k
}

func load(t *testing.T, name string) *keystone.Cloud {
	t.Helper()
	c, err := keystone.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func guarded(t *testing.T) string {
	t.Helper()
	return guardedBy(t, "prod")
}

// guardedBy runs our own Placement, which validates every token at a cloud's Keystone.
func guardedBy(t *testing.T, cloud string) string {
	t.Helper()
	login := load(t, cloud)
	tokens := keystone.NewTokens(login)
	server, err := placement.New(placement.Config{Store: etcdtest.Start(t).Placement(0), Token: "nobody-knows",
		Keystone: &placement.Keystone{Identity: tokens, URL: login.URL(), CacheFor: time.Nanosecond}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	if err := server.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(server.Handler())
	t.Cleanup(func() {
		web.Close()
		tokens.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return web.URL
}

// dial creates a client that logs in to a cloud.
func dial(t *testing.T, cloud, endpoint string) *placementclient.Client {
	t.Helper()
	login := load(t, cloud)
	client, err := placementclient.New(placementclient.Config{Endpoint: endpoint, Auth: login, TLS: login.TLS(),
		Attempts: 4, Pause: time.Microsecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// ask sends one read request.
func ask(t *testing.T, client *placementclient.Client) error {
	t.Helper()
	_, err := client.Candidates(t.Context(), "resources=VCPU:1", 1)
	return err
}

func provider() croft.Provider {
	id := croft.NewHostID()
	return croft.Provider{ID: id, Name: "host-" + string(id[:8]), Inventories: map[croft.ResourceClass]croft.Inventory{
		croft.VCPU: {Total: 4, MinUnit: 1, MaxUnit: 4, StepSize: 1, AllocationRatio: 1}}}
}

func TestEndpointIsOfTheCatalogue(t *testing.T) {
	k := start(t)
	endpoint := guarded(t)
	k.Offer(keystonetest.Endpoint{Region: "one", Interface: "public", URL: "http://127.0.0.1:1"},
		keystonetest.Endpoint{Region: "two", Interface: "internal", URL: "http://127.0.0.1:1"},
		keystonetest.Endpoint{Service: "compute", Region: "one", Interface: "internal", URL: "http://127.0.0.1:1"},
		keystonetest.Endpoint{Region: "one", Interface: "internal", URL: endpoint + "/"})
	if err := ask(t, dial(t, "prod", "")); err != nil {
		t.Error(err)
	}
}

func TestWaysToLogIn(t *testing.T) {
	k := start(t)
	endpoint := guarded(t)
	for _, c := range []struct {
		name, public string
		env          map[string]string
	}{
		{"a password of secure.yaml", fmt.Sprintf(keystoneFile, k.URL), nil},
		{"a Keystone whose versions have to be asked for", fmt.Sprintf(keystoneFile, k.Root), nil},
		{"an application credential", "clouds: {prod: {auth_type: v3applicationcredential, auth: {auth_url: '" + k.URL +
			"', application_credential_id: c1, application_credential_secret: secret}}}", nil},
		{"a token that somebody else got", "clouds: {prod: {auth_type: token, auth: {auth_url: '" + k.URL +
			"', token: '" + k.Token(t, "nova") + "'}}}", nil},
		{"variables", "clouds: {}", map[string]string{"OS_AUTH_URL": k.URL, "OS_USERNAME": "nova",
			"OS_PASSWORD":         "secret",
			"OS_PROJECT_NAME":     "service",
			"OS_USER_DOMAIN_NAME": "Default", "OS_PROJECT_DOMAIN_ID": "default"}},
		{"the cloud of OS_CLOUD", strings.ReplaceAll(fmt.Sprintf(keystoneFile, k.URL), "username: nova",
			"username: nova, password: secret"), map[string]string{"OS_CLOUD": "prod"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			secure, cloud := secretFile, "prod"
			if c.env != nil {
				secure, cloud = "", keystone.Environment
			}
			write(t, c.public, secure)
			for name, value := range c.env {
				t.Setenv(name, value)
			}
			if err := ask(t, dial(t, cloud, endpoint)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTokensAreRenewedByOneForAll(t *testing.T) {
	k := start(t)
	client := dial(t, "prod", guarded(t))
	p := provider()
	if err := client.EnsureProvider(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		before, _ := k.Counts()
		k.Revoke()
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				// The body must be sent again with the new token.
				if err := client.Claim(t.Context(), croft.NewInstanceID(), croft.Owner{Project: "p"},
					croft.Candidate{Allocations: map[croft.HostID]croft.Resources{p.ID: {croft.VCPU: 9}}}); !errors.Is(
					err, croft.NoCapacity) {
					t.Errorf("a claim that does not fit: got %v", err)
				}
			})
		}
		all.Wait()
		// One for the client, one for the server, which logs in as the same user.
		if after, _ := k.Counts(); after-before != 2 {
			t.Errorf("%d logins after all tokens were revoked, want 2", after-before)
		}
	}
}

func TestWhatKeepsALoginFromSucceeding(t *testing.T) {
	k := start(t)
	endpoint := guarded(t)
	secure := keystonetest.StartTLS(t)
	file := fmt.Sprintf(keystoneFile, k.URL)
	for _, c := range []struct {
		name, public, endpoint string
		kind                   croft.Kind
		want                   string
	}{
		{"a wrong password", strings.Replace(file, "username: nova", "username: other", 1), endpoint, croft.Invalid,
			"refuses the credentials of cloud prod"},
		{"nobody there", fmt.Sprintf(keystoneFile, "http://127.0.0.1:1/v3"), endpoint, croft.Unavailable,
			"keystone at http://127.0.0.1:1/v3 does not answer"},
		{"something else there", fmt.Sprintf(keystoneFile, endpoint+"/v3"), endpoint, croft.Invalid, "refuses"},
		{"a certificate of an unknown CA", fmt.Sprintf(keystoneFile, secure.URL), endpoint, croft.Invalid, "cacert"},
		{"no Placement in the catalogue", file, "", croft.Invalid,
			"has no internal endpoint of placement in region one"},
		{"a user without the role", strings.Replace(strings.Replace(file, "nova", "demo", 1), "service", "demo", 1),
			endpoint, croft.Invalid, "the role admin"},
	} {
		t.Run(c.name, func(t *testing.T) {
			write(t, c.public, secretFile)
			err := ask(t, dial(t, "prod", c.endpoint))
			if croft.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v of kind %q, want %q and %q", err, croft.KindOf(err), c.kind, c.want)
			}
			if strings.Contains(err.Error(), "secret") {
				t.Errorf("%v tells the password", err)
			}
		})
	}
}

func TestRenewalThatFails(t *testing.T) {
	k := start(t)
	client := dial(t, "prod", guarded(t))
	if err := ask(t, client); err != nil {
		t.Fatal(err)
	}
	k.SetDown(true)
	if err := ask(t, client); !errors.Is(err, croft.Unavailable) {
		t.Errorf("while Keystone is away: got %v, want unavailable", err)
	}
	k.SetDown(false)
	if err := ask(t, client); err != nil {
		t.Errorf("once it is back: %v", err)
	}
	k.Forget()
	k.Revoke()
	// The server cannot log in either, and reports that the client is not at fault.
	if err := ask(t, client); !errors.Is(err, croft.Unavailable) || !strings.Contains(err.Error(),
		"tokens cannot be checked") {
		t.Errorf("got %v, want unavailable", err)
	}
}

func TestOwnCA(t *testing.T) {
	k := keystonetest.StartTLS(t)
	addUsers(k)
	for name, cacert := range map[string]string{"by clouds.yaml": k.CA(t), "by OS_CACERT": ""} {
		t.Run(name, func(t *testing.T) {
			write(t, fmt.Sprintf("clouds: {prod: {cacert: '%s', auth: {auth_url: '%s', username: nova, project_name: "+
				"service}}}", cacert, k.URL), secretFile)
			if cacert == "" {
				t.Setenv("OS_CACERT", k.CA(t))
			}
			if err := ask(t, dial(t, "prod", guarded(t))); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTokensOfOthers(t *testing.T) {
	k := start(t)
	tokens := keystone.NewTokens(load(t, "prod"))
	t.Cleanup(tokens.Close)
	c, err := tokens.Validate(t.Context(), k.Token(t, "demo"))
	if err != nil || c.User != "demo-id" || c.Project != "demo" || c.System || strings.Join(c.Roles,
		" ") != "member reader" || time.Until(c.Expires) < time.Minute {
		t.Errorf("got %+v, %v", c, err)
	}
	if c, err := tokens.Validate(t.Context(), k.Token(t, "watcher")); err != nil || !c.System || c.Project != "" {
		t.Errorf("got %+v, %v, want one of the system", c, err)
	}
	if _, err := tokens.Validate(t.Context(), "made-up"); !errors.Is(err, croft.NotFound) {
		t.Errorf("got %v, want not found", err)
	}
	k.SetDown(true)
	if _, err := tokens.Validate(t.Context(), "made-up"); !errors.Is(err, croft.Unavailable) {
		t.Errorf("got %v, want unavailable", err)
	}
}

func TestUserThatMayNotAskAboutTokens(t *testing.T) {
	k := start(t)
	write(t, strings.Replace(strings.Replace(fmt.Sprintf(keystoneFile, k.URL), "nova", "demo", 1), "service", "demo",
		1),
		secretFile)
	tokens := keystone.NewTokens(load(t, "prod"))
	t.Cleanup(tokens.Close)
	if _, err := tokens.Validate(t.Context(), k.Token(t, "nova")); !errors.Is(err,
		croft.Unavailable) || !strings.Contains(err.Error(), "the role service") {
		t.Errorf("got %v, want unavailable and what to do", err)
	}
}
