package image

import (
	"bytes"
	"context"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
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
	c.space.free = func(string) (int64, error) { return slack + 1<<20, nil }
	_, err := c.Fetch(t.Context(), s.ref(), nil)
	refused(t, c, err, croft.Unavailable, "258 MiB more are needed", "257 MiB are free")
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

// TestADownloadOfUnknownLengthLeavesRoom uses a server that sends endlessly without a length.
func TestADownloadOfUnknownLengthLeavesRoom(t *testing.T) {
	const room, sends = 16 << 20, 64 << 20
	s, c := newServer(t, nil), newCache(t)
	s.answers(func(w http.ResponseWriter, r *http.Request) bool {
		block := rawImage(1, 1<<20)
		for n := 0; n < sends; n += len(block) {
			if _, err := w.Write(block); err != nil {
				return true
			}
		}
		return true
	})
	most := int64(0)
	c.space.free = func(string) (int64, error) {
		var has int64
		entries, err := os.ReadDir(c.staging.dir)
		for _, e := range entries {
			if fi, err := e.Info(); err == nil {
				has += fi.Size()
			}
		}
		most = max(most, has)
		return slack + room - has, err
	}
	_, err := c.Fetch(t.Context(), s.ref(), nil)
	refused(t, c, err, croft.Unavailable, "free some space")
	if most > room {
		t.Errorf("%d bytes were written where %d were free", most, int64(room))
	}
}

// TestACopyLeavesRoom fills the disk from elsewhere while a file is copied.
func TestACopyLeavesRoom(t *testing.T) {
	content := make([]byte, 24<<20)
	for i := range content {
		content[i] = 1
	}
	copy(content[510:], "\x55\xaa")
	c, asked := newCache(t), int64(0)
	c.space.free = func(string) (int64, error) { asked++; return slack + 32<<20 - asked*8<<20, nil }
	_, err := c.Fetch(t.Context(), writeFile(t, filepath.Join(t.TempDir(), "disk.raw"), content), nil)
	refused(t, c, err, croft.Unavailable, "free some space")
}

// TestRedirectsAreJudgedWhereTheyConnect uses names that resolve to a public address when they are checked, and to this
// host when they are connected to. The test's server at 127.0.0.2 represents a public one.
func TestRedirectsAreJudgedWhereTheyConnect(t *testing.T) {
	content := rawImage(1, 1<<20)
	inside := newServer(t, content)
	_, port, _ := net.SplitHostPort(inside.Listener.Addr().String())
	zones := map[string]zone{"127.0.0.2": internet, "192.0.2.7": internet, "127.0.0.1": ownLAN}
	for _, v := range []struct {
		name, to string
		change   func(*Config)
		words    string // empty: followed
	}{
		{"to an address of its network", "http://127.0.0.1:" + port + "/disk.img", nil, "own network"},
		{"to a name that changes", "http://localhost:" + port + "/disk.img", nil, "own network"},
		{"to a network that is allowed", "http://localhost:" + port + "/disk.img",
			func(conf *Config) {
				conf.AllowRedirects = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32"),
					netip.MustParsePrefix("::1/128")}
			}, ""},
	} {
		t.Run(v.name, func(t *testing.T) {
			c := newCache(t)
			if v.change != nil {
				c = newCache(t, v.change)
			}
			c.client.zone = func(a netip.Addr) zone {
				if z, ok := zones[a.Unmap().String()]; ok {
					return z
				}
				return ownLAN
			}
			c.client.lookup = func(context.Context, string, string) ([]netip.Addr, error) {
				return []netip.Addr{netip.MustParseAddr("192.0.2.7")}, nil
			}
			outside := httptest.NewUnstartedServer(http.RedirectHandler(v.to, http.StatusFound))
			outside.Listener.Close()
			var err error
			if outside.Listener, err = net.Listen("tcp", "127.0.0.2:0"); err != nil {
				t.Fatal(err)
			}
			outside.Start()
			defer outside.Close()
			before := len(inside.requests())
			_, err = c.Fetch(t.Context(), outside.URL+"/disk.img", nil)
			if v.words != "" {
				refused(t, c, err, croft.Invalid, v.words, "images.allow_redirects")
			} else if err != nil {
				t.Error(err)
			}
			if asked := len(inside.requests()) > before; asked != (v.words == "") {
				t.Errorf("the server inside was asked: %v", asked)
			}
			// The reference names the inside server deliberately, and it may redirect to itself.
			if _, err := c.Fetch(t.Context(), inside.ref(), nil); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestZones(t *testing.T) {
	own := []netip.Prefix{netip.MustParsePrefix("203.0.113.5/24"), netip.MustParsePrefix("2001:db8:1::5/64"),
		netip.MustParsePrefix("169.254.169.254/32")}
	for address, want := range map[string]zone{
		"192.0.2.7": internet, "2001:db8::1": internet, "::ffff:192.0.2.7": internet,
		"127.0.0.1": itself, "::1": itself, "0.0.0.0": itself, "::": itself, "::ffff:127.8.9.1": itself,
		"64:ff9b::7f00:1": itself,
		"203.0.113.5":     itself, "::ffff:203.0.113.5": itself, "2001:db8:1::5": itself, "169.254.169.254": itself,
		"203.0.113.6": ownLAN, "2001:db8:1::6": ownLAN, "10.1.2.3": ownLAN, "172.16.0.1": ownLAN, "192.168.1.1": ownLAN,
		"100.64.0.1": ownLAN,
		"fd00::1":    ownLAN, "fec0::1": ownLAN, "239.1.2.3": ownLAN, "255.255.255.255": ownLAN, "0.1.2.3": ownLAN,
		"2002:0a01:0203::1": ownLAN,
		"169.254.1.1":       nearLink, "fe80::1%eth0": nearLink, "64:ff9b::a9fe:101": nearLink,
	} {
		if got := zoneOf(netip.MustParseAddr(address), own); got != want {
			t.Errorf("%s is %q, want %q", address, got, want)
		}
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
				return &http.Response{StatusCode: 302, Header: http.Header{"Location": {s.ref()}}, Body: http.NoBody,
					Request: r}, nil
			}
			return http.DefaultTransport.RoundTrip(r)
		})
	})
	c.client.lookup = func(context.Context, string, string) ([]netip.Addr, error) { // a test's server is on this host
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
	resolves := map[string]string{"localhost": "127.0.0.1", "inside.example.com": "127.0.0.53",
		"2130706433": "127.0.0.1", "mirror.example.com": "192.0.2.7"}
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
						return &http.Response{StatusCode: 302, Header: http.Header{"Location": {to}}, Body: http.NoBody,
							Request: r}, nil
					}
					return &http.Response{StatusCode: 200, Body: io.NopCloser(bytes.NewReader(content)),
						ContentLength: int64(len(content)), Request: r}, nil
				})
			})
			c.client.lookup = func(_ context.Context, _, host string) ([]netip.Addr, error) {
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
