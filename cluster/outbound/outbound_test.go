package outbound_test

import (
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"croft"
	"croft/cluster/outbound"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func client(t *testing.T, c outbound.Config) *http.Client {
	t.Helper()
	got, err := outbound.Client(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(got.CloseIdleConnections)
	return got
}

func get(t *testing.T, c *http.Client, url string) (string, error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := c.Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

func TestURLsAreChecked(t *testing.T) {
	for url, says := range map[string]string{
		"https://keystone.example:5000/v3":              "",
		"http://127.0.0.1:5000/v3":                      "",
		"http://[2001:db8::1]/":                         "",
		"ftp://keystone.example/":                       "http://",
		"file:///etc/passwd":                            "http://",
		"keystone.example:5000":                         "http://",
		"https:///v3":                                   "http://",
		"":                                              "http://",
		"https://ann:hunter2@keystone.example/v3":       "password",
		"https://ann@keystone.example/v3":               "password",
		"https://keystone.example/v3?token=x":           "?",
		"https://keystone.example/v3#x":                 "#",
		"http://keystone.example:x/":                    "none",
		"http://169.254.169.254/latest":                 "metadata",
		"http://169.254.169.254./latest":                "metadata",
		"http://[::ffff:169.254.1.1]/":                  "metadata",
		"http://[fe80::1%25eth0]/":                      "metadata",
		"http://[fd00:ec2::254]/":                       "metadata",
		"http://[64:ff9b::a9fe:a9fe]/":                  "metadata",
		"http://0.0.0.0/":                               "no address",
		"http://[::]/":                                  "no address",
		"http://224.0.0.1/":                             "no address",
		"http://x.example/" + strings.Repeat("x", 3000): "none",
	} {
		err := outbound.CheckURL("site a", url)
		if says == "" && err != nil || says != "" && (croft.KindOf(err) != croft.Invalid ||
			!strings.Contains(err.Error(), says)) {
			t.Errorf("%.60s: %v, want %q", url, err, says)
		}
		if err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("the error shows the password: %v", err)
		}
	}
}

func TestLinkLocalAddressesAreNotReached(t *testing.T) {
	c := client(t, outbound.Config{})
	for _, url := range []string{"http://169.254.169.254/latest/meta-data", "http://[fe80::1%25lo]/",
		"http://[fd00:ec2::254]/", "http://[::ffff:169.254.169.254]/", "http://0.0.0.0:1/"} {
		if _, err := get(t, c, url); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestRedirectsStayOnTheServer(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("other"))
	}))
	defer other.Close()
	targets := map[string]string{"/here": "/there", "/other": other.URL, "/meta": "http://169.254.169.254/",
		"/ever": "/ever"}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if to := targets[r.URL.Path]; to != "" {
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
		_, _ = w.Write([]byte("ok"))
	}))
	defer server.Close()
	c := client(t, outbound.Config{})
	if text, err := get(t, c, server.URL+"/here"); text != "ok" || err != nil {
		t.Errorf("got %q, %v", text, err)
	}
	for _, path := range []string{"/other", "/meta", "/ever"} {
		if _, err := get(t, c, server.URL+path); croft.KindOf(err) != croft.Unavailable {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestAnswersAreBounded(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/long":
			_, _ = w.Write([]byte(strings.Repeat("x", 101)))
		case "/hangs":
			<-r.Context().Done()
		default:
			_, _ = w.Write([]byte(strings.Repeat("x", 100)))
		}
	}))
	defer server.Close()
	c := client(t, outbound.Config{MaxBody: 100, Timeout: 300 * time.Millisecond})
	if text, err := get(t, c, server.URL); len(text) != 100 || err != nil {
		t.Errorf("got %d bytes, %v", len(text), err)
	}
	if text, err := get(t, c, server.URL+"/long"); len(text) > 100 || croft.KindOf(err) != croft.Unavailable {
		t.Errorf("a long one: %d bytes, %v", len(text), err)
	}
	if _, err := get(t, c, server.URL+"/hangs"); !os.IsTimeout(err) {
		t.Errorf("one that hangs: %v", err)
	}
}

func TestCertificatesAreAdded(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	if _, err := get(t, client(t, outbound.Config{}), server.URL); err == nil {
		t.Error("an unknown certificate is trusted")
	}
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	if _, err := get(t, client(t, outbound.Config{CACert: ca}), server.URL); err != nil {
		t.Error(err)
	}
	if err := outbound.CheckCA("x"); croft.KindOf(err) != croft.Invalid {
		t.Errorf("no certificate: %v", err)
	}
}
