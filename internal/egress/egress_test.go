package egress_test

import (
	"net/http"
	"testing"

	"croft"
	"croft/internal/egress"
)

func TestTheProxyOfASetting(t *testing.T) {
	t.Setenv("https_proxy", "http://env:3128")
	t.Setenv("HTTPS_PROXY", "http://env:3128")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://images.example/a", nil)
	if err != nil {
		t.Fatal(err)
	}
	for setting, want := range map[string]string{"": "http://env:3128", "none": "",
		"http://set:8080": "http://set:8080"} {
		proxy, err := egress.ParseProxy(setting)
		if err != nil {
			t.Fatal(err)
		}
		u, err := egress.Outward(proxy).Proxy(r)
		got := ""
		if u != nil {
			got = u.String()
		}
		if err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", setting, got, err, want)
		}
	}
	for _, wrong := range []string{"proxy:3128", "ftp://proxy", "no"} {
		if _, err := egress.ParseProxy(wrong); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if egress.Internal().Proxy != nil {
		t.Error("an internal transport has a proxy")
	}
}
