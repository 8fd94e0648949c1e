package image

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"croft"
	"croft/cluster/outbound"
)

// inside returns a rule under which an address of this machine counts as public.
func inside(networks ...string) outbound.Rule {
	r := outbound.Rule{Setting: "images.call_networks"}
	for _, n := range networks {
		r.Allow = append(r.Allow, netip.MustParsePrefix(n))
	}
	return r
}

// looksUp makes every name resolve to an address when it is looked up before a connection.
func looksUp(c *Cache, address string) {
	c.client.lookup = func(context.Context, string, string) ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr(address)}, nil
	}
}

func TestANameThatATenantGaveDoesNotLeadToAPrivateAddress(t *testing.T) {
	server := newServer(t, rawImage(1, 1<<20))
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	named := "http://localhost:" + port + "/disk.img"
	for name, looked := range map[string]string{"now": "127.0.0.1", "mapped into IPv6": "::ffff:10.0.0.7",
		"at the metadata server": "169.254.169.254", "only when it is connected to": "203.0.113.7"} {
		t.Run(name, func(t *testing.T) {
			c := newCache(t, func(conf *Config) { conf.Public = inside() })
			looksUp(c, looked)
			_, err := c.FetchPublic(t.Context(), named, nil)
			refused(t, c, err, croft.Invalid, "localhost")
			if seen := server.requests(); len(seen) > 0 {
				t.Errorf("the server was asked: %v", seen)
			}
		})
	}
	c := newCache(t, func(conf *Config) { conf.Public = inside("127.0.0.0/8", "::1/128") })
	if _, err := c.FetchPublic(t.Context(), named, nil); err != nil {
		t.Errorf("in a network that an operator allows: %v", err)
	}
}

func TestARedirectOfAnImageThatATenantGaveIsChecked(t *testing.T) {
	server := newServer(t, rawImage(1, 1<<20))
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	front := httptest.NewUnstartedServer(http.RedirectHandler("http://localhost:"+port+"/disk.img", http.StatusFound))
	front.Listener.Close()
	var err error
	if front.Listener, err = net.Listen("tcp", "127.0.0.2:0"); err != nil {
		t.Fatal(err)
	}
	front.Start()
	defer front.Close()
	for name, looked := range map[string]string{"when it is followed": "127.0.0.1",
		"when it is connected to": "127.0.0.2"} {
		t.Run(name, func(t *testing.T) {
			c := newCache(t, func(conf *Config) { conf.Public = inside("127.0.0.2/32") })
			looksUp(c, looked)
			_, err := c.FetchPublic(t.Context(), front.URL+"/disk.img", nil)
			refused(t, c, err, croft.Invalid, "localhost", "images.call_networks")
		})
	}
	if seen := server.requests(); len(seen) > 0 {
		t.Errorf("the server was asked: %v", seen)
	}
}

func TestTheCacheAnswersForATenantsAddressAfterTheCheckAlone(t *testing.T) {
	content := rawImage(1, 1<<20)
	server := newServer(t, content)
	c := newCache(t, func(conf *Config) { conf.Public, conf.Fresh = inside(), 0 })
	_, port, _ := net.SplitHostPort(server.Listener.Addr().String())
	for _, ref := range []string{"http://localhost:" + port + "/disk.img",
		"http://localhost:" + port + "/disk.img#sha256=" + sha(content)} {
		if _, err := c.Fetch(t.Context(), ref, nil); err != nil {
			t.Fatal(err)
		}
		looksUp(c, "127.0.0.1")
		if _, err := c.FetchPublic(t.Context(), ref, nil); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%s: the cache answers: %v", ref, err)
		}
		c.client.lookup = func(context.Context, string, string) ([]netip.Addr, error) {
			return nil, errors.New("no such host")
		}
		if _, err := c.FetchPublic(t.Context(), ref, nil); croft.KindOf(err) != croft.Unavailable {
			t.Errorf("%s without an address: %v", ref, err)
		}
	}
	// The cache entry of an operator's fetch from inside is not used for the tenant's.
	looksUp(c, "203.0.113.7")
	_, err := c.FetchPublic(t.Context(), "http://localhost:"+port+"/disk.img", nil)
	refusedWith(t, err, "localhost")
}

func TestWhatAProxyConnectsToForATenantIsLookedUp(t *testing.T) {
	asked := 0
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		_, _ = w.Write(rawImage(1, 1<<20))
	}))
	defer proxy.Close()
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := newCache(t, func(conf *Config) {
		conf.Public, conf.Proxy = inside(), func(*http.Request) (*url.URL, error) { return at, nil }
	})
	looksUp(c, "10.0.0.7")
	_, err = c.FetchPublic(t.Context(), "http://images.example/disk.img", nil)
	refusedWith(t, err, "images.example")
	if asked != 0 {
		t.Errorf("the proxy was asked %d times", asked)
	}
	looksUp(c, "203.0.113.7")
	if _, err := c.FetchPublic(t.Context(), "http://images.example/disk.img", nil); err != nil || asked != 1 {
		t.Errorf("a server of the internet: %v after %d requests", err, asked)
	}
}

func TestOnlyASourceWithoutAServerKeepsTenantsImagesToTheInternet(t *testing.T) {
	s, err := ParseSources([]string{"https://", "https://images.example/public/"})
	if err != nil {
		t.Fatal(err)
	}
	for reference, want := range map[string]bool{
		"https://images.example/public/disk.img":                                   false,
		"https://images.example/other/disk.img":                                    true,
		"https://evil.example/disk.img":                                            true,
		"https://images.example/public/disk.img#sums=https://evil.example/SUMS":    true,
		"https://images.example/public/disk.img#sums=SHA256SUMS":                   false,
		"https://images.example.evil.example/public/disk.img":                      true,
		"https://images.example/public/disk.img#sha256=" + strings.Repeat("0", 64): false,
	} {
		if got := s.Public(reference); got != want {
			t.Errorf("%s: %v", reference, got)
		}
	}
}

// refusedWith fails the test unless an error is Invalid and contains a word.
func refusedWith(t *testing.T, err error, word string) {
	t.Helper()
	if croft.KindOf(err) != croft.Invalid || !strings.Contains(err.Error(), word) {
		t.Errorf("got %v, want an error that says %s", err, word)
	}
}
