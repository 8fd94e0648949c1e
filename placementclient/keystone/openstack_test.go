package keystone_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/gophercloud/gophercloud/v2"

	"croft/placementclient"
	"croft/placementclient/keystone"
	"croft/placementclient/placementtest"
)

// openStack uses the clouds of a real OpenStack: admin and demo.
func openStack(t *testing.T) {
	t.Helper()
	file := os.Getenv("CROFT_TEST_CLOUDS")
	if file == "" {
		t.Skip("CROFT_TEST_CLOUDS names no clouds.yaml of an OpenStack for tests; make test-openstack starts one")
	}
	clean(t)
	t.Setenv("OS_CLIENT_CONFIG_FILE", file)
}

// session is a login with an accessible connection.
type session struct {
	*keystone.Cloud
	provider *gophercloud.ProviderClient
}

func (s *session) Authenticate(ctx context.Context, p *gophercloud.ProviderClient) error {
	s.provider = p
	return s.Cloud.Authenticate(ctx, p)
}

// enter logs in and creates a client of the Placement at endpoint.
func enter(t *testing.T, cloud, endpoint string) (*placementclient.Client, *session) {
	t.Helper()
	s := &session{Cloud: load(t, cloud)}
	client, err := placementclient.New(placementclient.Config{Endpoint: endpoint, Auth: s, TLS: s.TLS()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	if err := ask(t, client); err != nil {
		t.Fatal(err)
	}
	return client, s
}

// keystoneDo sends a request to Keystone and decodes the answer.
func (s *session) keystoneDo(t *testing.T, method, path string, body, out any) {
	t.Helper()
	options := &gophercloud.RequestOpts{JSONResponse: out, OkCodes: []int{200, 201, 204}}
	if body != nil {
		options.JSONBody = body
	}
	resp, err := s.provider.Request(context.WithoutCancel(t.Context()), method, s.provider.IdentityBase+"v3"+path,
		options)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	_ = resp.Body.Close()
}

// revoke revokes the session's token, as its owner may.
func (s *session) revoke(t *testing.T) {
	t.Helper()
	_, err := s.provider.Request(t.Context(), http.MethodDelete, s.provider.IdentityBase+"v3/auth/tokens",
		&gophercloud.RequestOpts{MoreHeaders: map[string]string{"X-Subject-Token": s.provider.Token()},
			OkCodes: []int{204}})
	if err != nil {
		t.Fatal(err)
	}
}

// onOpenStack runs our server with the real Keystone.
func onOpenStack(t *testing.T) string {
	t.Helper()
	return guardedBy(t, "admin")
}

func TestContractOfOpenStackBehindKeystone(t *testing.T) {
	openStack(t)
	placementtest.Run(t, "", placementtest.Options{Auth: load(t, "admin")})
}

func TestContractOfOursBehindOpenStacksKeystone(t *testing.T) {
	openStack(t)
	placementtest.Run(t, onOpenStack(t), placementtest.Options{Auth: load(t, "admin")})
}

func TestOpenStackTokenThatIsRevokedIsRenewed(t *testing.T) {
	openStack(t)
	client, s := enter(t, "admin", onOpenStack(t))
	old := s.provider.Token()
	s.revoke(t)
	if err := client.EnsureProvider(t.Context(), provider()); err != nil {
		t.Errorf("with a token that was revoked: %v", err)
	}
	if s.provider.Token() == old {
		t.Error("the token is the old one")
	}
	theirs, s := enter(t, "admin", "")
	// theirs caches tokens for five minutes, so a revoked token would still be accepted
	s.provider.SetToken("gAAAAABmade-up")
	if err := ask(t, theirs); err != nil {
		t.Errorf("with a token that is none, of OpenStack's Placement: %v", err)
	}
}

func TestOpenStackApplicationCredential(t *testing.T) {
	openStack(t)
	_, s := enter(t, "admin", "")
	var me struct {
		Token struct{ User struct{ ID string } }
	}
	resp, err := s.provider.Request(t.Context(), http.MethodGet, s.provider.IdentityBase+"v3/auth/tokens",
		&gophercloud.RequestOpts{
			MoreHeaders: map[string]string{"X-Subject-Token": s.provider.Token()}, JSONResponse: &me})
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	var made struct {
		Credential struct{ ID, Secret string } `json:"application_credential"`
	}
	path := "/users/" + me.Token.User.ID + "/application_credentials"
	s.keystoneDo(t, http.MethodPost, path,
		map[string]any{"application_credential": map[string]any{"name": uuid.NewString()}}, &made)
	t.Cleanup(func() { s.keystoneDo(t, http.MethodDelete, path+"/"+made.Credential.ID, nil, nil) })
	ours := onOpenStack(t)
	write(t, fmt.Sprintf("clouds: {app: {auth_type: v3applicationcredential, region_name: RegionOne, auth: "+
		"{auth_url: '%s', application_credential_id: %s, application_credential_secret: %s}}}",
		s.URL(), made.Credential.ID, made.Credential.Secret), "")
	for name, endpoint := range map[string]string{"OpenStack's": "", "ours": ours} {
		if err := ask(t, dial(t, "app", endpoint)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRolesCountAsInOpenStack sends both servers the same tokens: their answers may differ only in the ID of the
// request.
func TestRolesCountAsInOpenStack(t *testing.T) {
	openStack(t)
	_, admin := enter(t, "admin", "")
	theirs, err := admin.Endpoint(admin.provider)
	if err != nil {
		t.Fatal(err)
	}
	ours := onOpenStack(t)
	demo := login(t, "demo")
	tokens := map[string]string{"a member": demo.provider.Token(), "a reader of the system": systemReader(t,
		admin).provider.Token(), "nobody": "made-up"}
	for who, token := range tokens {
		for _, c := range []struct{ method, path string }{
			{"GET", "/"}, {"GET", "/resource_providers?name=none"}, {"PUT", "/traits/CUSTOM_CROFT_ROLES"},
			{"GET", "/usages"},
			{"GET", "/usages?project_id=another"}, {"GET", "/allocations/" + uuid.NewString()}, {"DELETE",
				"/allocations/" + uuid.NewString()},
			{"POST", "/reshaper"}, {"GET", "/nowhere"},
		} {
			want, got := request(t, c.method, strings.TrimSuffix(theirs, "/")+c.path, token),
				request(t, c.method, ours+c.path,
					token)
			if c.path != "/" && got != want {
				t.Errorf("%s, %s %s:\nours   %s\ntheirs %s", who, c.method, c.path, got, want)
			}
		}
	}
}

// login logs in without a request to Placement.
func login(t *testing.T, cloud string) *session {
	t.Helper()
	s := &session{Cloud: load(t, cloud)}
	provider := &gophercloud.ProviderClient{}
	provider.UseTokenLock()
	if err := s.Authenticate(t.Context(), provider); err != nil {
		t.Fatal(err)
	}
	return s
}

// systemReader creates a user with the system role reader, and logs in as that user.
func systemReader(t *testing.T, admin *session) *session {
	t.Helper()
	name, password := "croft-"+uuid.NewString(), uuid.NewString()
	var user struct{ User struct{ ID string } }
	admin.keystoneDo(t, http.MethodPost, "/users", map[string]any{"user": map[string]any{"name": name,
		"password": password, "domain_id": "default"}}, &user)
	t.Cleanup(func() { admin.keystoneDo(t, http.MethodDelete, "/users/"+user.User.ID, nil, nil) })
	var roles struct{ Roles []struct{ ID string } }
	admin.keystoneDo(t, http.MethodGet, "/roles?name=reader", nil, &roles)
	admin.keystoneDo(t, http.MethodPut, "/system/users/"+user.User.ID+"/roles/"+roles.Roles[0].ID, nil, nil)
	file := filepath.Join(t.TempDir(), "clouds.yaml")
	text := fmt.Sprintf("clouds: {watcher: {auth: {auth_url: '%s', username: %s, password: %s, system_scope: all}}}",
		admin.URL(), name, password)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("OS_CLIENT_CONFIG_FILE", file)
	return login(t, "watcher")
}

// shownSchema matches the part of an error in which the original shows the text of a schema, and ours its place.
var shownSchema = regexp.MustCompile(`(?s)(Failed validating '[a-zA-Z]+' in schema).*`)

// request returns the answer without the ID of the request and the text of a schema.
func request(t *testing.T, method, url, token string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, bytes.NewReader(nil))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Auth-Token", token)
	r.Header.Set("OpenStack-API-Version", "placement 1.38")
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var errs struct{ Errors []map[string]any }
	if json.Unmarshal(body, &errs) == nil && len(errs.Errors) == 1 {
		delete(errs.Errors[0], "request_id")
		if detail, is := errs.Errors[0]["detail"].(string); is {
			errs.Errors[0]["detail"] = shownSchema.ReplaceAllString(detail, "$1")
		}
		if body, err = json.Marshal(errs); err != nil {
			t.Fatal(err)
		}
	}
	return fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("WWW-Authenticate"), " ", string(body))
}
