package login_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"croft"
	"croft/client/login"
	"croft/tenant/access/oidc/oidctest"
)

// logIn logs ann in at an issuer and stores the context.
func logIn(t *testing.T, i *oidctest.Issuer) (file login.File) {
	t.Helper()
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	c, err := login.Device(t.Context(), login.Issuer{URL: i.URL, Client: i.Client}, func(p login.Prompt) {
		if !i.Approve(p.Code, oidctest.User{Name: "ann"}) || !strings.Contains(p.Full, p.Code) || p.Page == "" {
			t.Errorf("the user is shown %+v", p)
		}
	})
	if err != nil || c.Refresh == "" || c.Token == "" || c.Issuer.URL != i.URL {
		t.Fatalf("logged in as %+v, %v", c, err)
	}
	c.URL = "https://cloud.example"
	file = login.File(filepath.Join(t.TempDir(), "below", "login.json"))
	if err := file.Put("work", c); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestALoginThatCountsIsUsedAsItIs(t *testing.T) {
	i := oidctest.Start(t)
	file := logIn(t, i)
	before, err := file.Context("work")
	if err != nil {
		t.Fatal(err)
	}
	i.Forget()
	if token, err := file.Token(t.Context(), "work"); err != nil || token != before.Token {
		t.Errorf("got another token, or %v", err)
	}
	if left := time.Until(before.Expires); left < 50*time.Minute || left > time.Hour {
		t.Errorf("it expires in %s", left)
	}
}

func TestOfManyProcessesOneRenewsALogin(t *testing.T) {
	i := oidctest.Start(t)
	i.Life = 10 * time.Second // renewed at once
	file := logIn(t, i)
	i.Life = time.Hour
	tokens := make([]string, 20)
	var all sync.WaitGroup
	for n := range tokens {
		all.Go(func() {
			var err error
			if tokens[n], err = file.Token(t.Context(), "work"); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, token := range tokens {
		if token == "" || token != tokens[0] {
			t.Fatal("it was renewed more than once")
		}
	}
	if c, err := file.Context("work"); err != nil || c.Token != tokens[0] || c.URL != "https://cloud.example" {
		t.Errorf("kept is %+v, %v", c.URL, err)
	}
	if info, err := os.Stat(string(file)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
}

func TestALoginThatCannotBeRenewedStays(t *testing.T) {
	i := oidctest.Start(t)
	i.Life = 10 * time.Second
	file := logIn(t, i)
	i.Forget()
	_, err := file.Token(t.Context(), "work")
	if croft.KindOf(err) != croft.Denied || strings.Contains(err.Error(), "refresh-secret") {
		t.Errorf("got %v", err)
	}
	c, err := file.Context("work")
	if err != nil {
		t.Fatal(err)
	}
	c.Issuer.URL = "http://127.0.0.1:1"
	if err := file.Put("work", c); err != nil {
		t.Fatal(err)
	}
	if _, err := file.Token(t.Context(), "work"); croft.KindOf(err) != croft.Unavailable {
		t.Errorf("without the issuer: %v", err)
	}
	if c.Issuer.URL, c.Refresh = i.URL, ""; file.Put("work", c) != nil {
		t.Fatal("it cannot be written")
	}
	if _, err := file.Token(t.Context(), "work"); croft.KindOf(err) != croft.Denied ||
		!strings.Contains(err.Error(), "expired on") {
		t.Errorf("without a refresh token: %v", err)
	}
}

func TestIssuersThatCannotBe(t *testing.T) {
	i := oidctest.Start(t)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	for _, c := range []struct {
		issuer login.Issuer
		want   croft.Kind
	}{
		{login.Issuer{URL: "http://id.example.org", Client: "croft"}, croft.Invalid},
		{login.Issuer{URL: "ftp://id.example.org", Client: "croft"}, croft.Invalid},
		{login.Issuer{URL: i.URL}, croft.Invalid},
		{login.Issuer{URL: i.URL + "/other", Client: "croft"}, croft.Unavailable},
		{login.Issuer{URL: i.URL, Client: "another"}, croft.Denied},
	} {
		_, err := login.Device(t.Context(), c.issuer, func(login.Prompt) { t.Error("a user is asked") })
		if croft.KindOf(err) != c.want {
			t.Errorf("%+v: %v, want %s", c.issuer, err, c.want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := login.Device(ctx, login.Issuer{URL: i.URL, Client: "croft"}, func(login.Prompt) { cancel() })
	if err != context.Canceled {
		t.Errorf("interrupted: %v", err)
	}
}

func TestFilesThatAreNoLogin(t *testing.T) {
	file := login.File(filepath.Join(t.TempDir(), "login.json"))
	if _, err := file.Context("work"); croft.KindOf(err) != croft.NotFound {
		t.Errorf("none: %v", err)
	}
	for text, mode := range map[string]os.FileMode{"{": 0o600, "{}": 0o600, `{"url":"x"}`: 0o640,
		`{"contexts":{"a":{}}}`: 0o600, `{"current":"b","contexts":{"a":{"url":"x"}}}`: 0o600,
		`{"contexts":{"../a":{"url":"x"}}}`: 0o600} {
		if err := os.WriteFile(string(file), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(string(file), mode); err != nil {
			t.Fatal(err)
		}
		if _, err := file.Context("work"); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%s: %v", text, err)
		}
	}
}
