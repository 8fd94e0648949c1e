package image

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"net/http"
	"net/netip"
	"testing"

	"croft"
)

func TestFetchRefusesWhatIsTooLarge(t *testing.T) {
	content := rawImage(1, 2<<20)
	for _, v := range []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request) bool
	}{
		{"as announced", nil},
		{"not announced", func(w http.ResponseWriter, r *http.Request) bool {
			w.(http.Flusher).Flush()
			w.Write(content)
			return true
		}},
	} {
		t.Run(v.name, func(t *testing.T) {
			s, c := newServer(t, content), newCache(t, func(conf *Config) { conf.MaxBytes = 1 << 20 })
			s.answers(v.answer)
			_, err := c.Fetch(t.Context(), s.ref(), nil)
			refused(t, c, err, croft.Invalid, "1 MiB")
		})
	}
}

func TestFetchNeedsRoom(t *testing.T) {
	s, c := newServer(t, rawImage(1, 2<<20)), newCache(t)
	c.free = func(string) (int64, error) { return slack + 1<<20, nil }
	_, err := c.Fetch(t.Context(), s.ref(), nil)
	refused(t, c, err, croft.Unavailable, "66 MiB more are needed", "65 MiB are free")
}

func TestFetchFollowsOnlySafeRedirects(t *testing.T) {
	content := rawImage(1, 1<<20)
	for _, v := range []struct {
		name, to string
		words    string // empty: followed
	}{
		{"to another address", "/other.img", ""},
		{"to a file of the host", "file:///etc/passwd", "only http and https"},
		{"to another protocol", "ftp://example.com/disk.img", "only http and https"},
		{"to a metadata server", "http://169.254.169.254/latest/meta-data/", "link-local"},
		{"to a metadata server by IPv6", "http://[fe80::1]/latest", "link-local"},
		{"to a metadata server by IPv4 within IPv6", "http://[::ffff:169.254.169.254]/latest", "link-local"},
		{"in circles", "/disk.img", "in circles"},
	} {
		t.Run(v.name, func(t *testing.T) {
			s, c := newServer(t, content), newCache(t)
			s.answers(func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != "/disk.img" {
					return false
				}
				http.Redirect(w, r, v.to, http.StatusFound)
				return true
			})
			_, err := c.Fetch(t.Context(), s.ref(), nil)
			if v.words == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			refused(t, c, err, croft.Invalid, v.words)
		})
	}
}

// roundTrip is a transport without a network.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestFetchLeavesHTTPSOnlyForWhatIsPinned(t *testing.T) {
	content := rawImage(1, 1<<20)
	s := newServer(t, content)
	c := newCache(t, func(conf *Config) {
		conf.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.URL.Scheme == "https" {
				return &http.Response{StatusCode: 302, Header: http.Header{"Location": {s.ref()}}, Body: http.NoBody, Request: r}, nil
			}
			return http.DefaultTransport.RoundTrip(r)
		})
	})
	c.lookup = func(context.Context, string, string) ([]netip.Addr, error) { // a test's server is on this host
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}
	t.Cleanup(http.DefaultTransport.(*http.Transport).CloseIdleConnections)
	_, err := c.Fetch(t.Context(), "https://example.com/disk.img", nil)
	refused(t, c, err, croft.Invalid, "from https to http")
	fetch(t, c, "https://example.com/disk.img#sha256="+sha(content))
}

func TestNamesMayNotLeadToLinkLocalAddresses(t *testing.T) {
	for resolved, want := range map[string]croft.Kind{
		"127.0.0.1:80":                "",
		"192.0.2.7:443":               "",
		"[2001:db8::1]:443":           "",
		"169.254.169.254:80":          croft.Invalid,
		"[fe80::1]:80":                croft.Invalid,
		"[fe80::1%eth0]:80":           croft.Invalid,
		"[::ffff:169.254.169.254]:80": croft.Invalid,
	} {
		if got := croft.KindOf(checkResolved("example.com", resolved)); got != want {
			t.Errorf("%s: %q, want %q", resolved, got, want)
		}
	}
}

func TestFetchIsNotRedirectedToThisHost(t *testing.T) {
	resolves := map[string]string{"localhost": "127.0.0.1", "inside.example.com": "127.0.0.53", "2130706433": "127.0.0.1", "mirror.example.com": "192.0.2.7"}
	for to, words := range map[string]string{
		"http://127.0.0.1:2379/version":       "this host itself",
		"http://127.8.9.1/":                   "this host itself",
		"http://[::1]:2379/version":           "this host itself",
		"http://[::ffff:127.0.0.1]/":          "this host itself",
		"http://0.0.0.0:2379/":                "this host itself",
		"http://[::]/":                        "this host itself",
		"http://localhost:8778/":              "this host itself",
		"http://inside.example.com/":          "this host itself",
		"http://2130706433/":                  "this host itself",
		"http://mirror.example.com/disk.img":  "",
		"http://unknown.example.com/disk.img": "",
	} {
		t.Run(to, func(t *testing.T) {
			content, asked := rawImage(1, 1<<20), 0
			c := newCache(t, func(conf *Config) {
				conf.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
					if asked++; asked == 1 {
						return &http.Response{StatusCode: 302, Header: http.Header{"Location": {to}}, Body: http.NoBody, Request: r}, nil
					}
					return &http.Response{StatusCode: 200, Body: io.NopCloser(bytes.NewReader(content)), ContentLength: int64(len(content)), Request: r}, nil
				})
			})
			c.lookup = func(_ context.Context, _, host string) ([]netip.Addr, error) {
				if a, ok := resolves[host]; ok {
					return []netip.Addr{netip.MustParseAddr(a)}, nil
				}
				return nil, fs.ErrNotExist
			}
			_, err := c.Fetch(t.Context(), "http://images.example.com/disk.img", nil)
			if words != "" {
				refused(t, c, err, croft.Invalid, words)
			} else if err != nil {
				t.Error(err)
			}
			if followed := asked > 1; followed != (words == "") {
				t.Errorf("%d requests", asked)
			}
		})
	}
}
