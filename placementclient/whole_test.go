package placementclient_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"croft"
	"croft/placementclient/placementtest"
)

// before forwards requests to a server unless refuse handles them, and counts those forwarded.
func before(t testing.TB, address string, refuse func(*http.Request) bool) (string, *atomic.Int64) {
	t.Helper()
	to, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	var n atomic.Int64
	proxy := httputil.NewSingleHostReverseProxy(to)
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	proxy.Transport = transport
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuse(r) {
			http.NotFound(w, r)
			return
		}
		n.Add(1)
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { web.Close(); transport.CloseIdleConnections() })
	return web.URL, &n
}

// TestContractOfAServerWithoutOurRequests tests a server without croft's own requests, like older versions of croft's
// and other servers.
func TestContractOfAServerWithoutOurRequests(t *testing.T) {
	address, _ := before(t, serve(t), func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/croft/") })
	placementtest.Run(t, address, placementtest.Options{})
}

func TestOurServerIsAskedOnceForAllProvidersAndForEachThatIsMade(t *testing.T) {
	address, n := before(t, serve(t), func(*http.Request) bool { return false })
	client := newClient(t, address)
	const hosts = 5
	for range hosts {
		id := croft.NewHostID()
		for range 2 { // the second call changes nothing
			if err := client.EnsureProvider(t.Context(), croft.Provider{
				ID: id, Name: "host-" + string(id), Traits: []croft.Trait{"CUSTOM_NEW", "HW_CPU_X86_AVX2",
					"NOT_KNOWN_HERE"},
				Inventories: map[croft.ResourceClass]croft.Inventory{croft.VCPU: {Total: 4, AllocationRatio: 2},
					"CUSTOM_GPU": {Total: 1}},
				Aggregates: []string{"8f4a8d4e-0000-4000-8000-000000000001"},
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got := n.Swap(0); got != 2*hosts {
		t.Errorf("%d hosts that come twice make %d requests, want one each time", hosts, got)
	}
	all, err := client.Providers(t.Context())
	if err != nil || len(all) != hosts {
		t.Fatalf("got %d providers, %v", len(all), err)
	}
	if got := n.Load(); got != 1 {
		t.Errorf("to read all providers takes %d requests, want 1", got)
	}
	if p := all[0]; len(p.Traits) != 2 || p.Inventories["CUSTOM_GPU"].MaxUnit != 1 || p.Used[croft.VCPU] != 0 ||
		len(p.Aggregates) != 1 || p.Root != p.ID {
		t.Errorf("got %+v", p)
	}
}
