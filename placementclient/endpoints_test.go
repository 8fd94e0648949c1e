package placementclient_test

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"croft"
	"croft/placementclient"
)

// All servers are equivalent: a server that does not answer, or cannot serve, is skipped, and later requests start with
// the one that answered.
func TestAnotherServerIsAskedWhereOneDoesNotAnswer(t *testing.T) {
	var refused, asked atomic.Int64
	sick := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		refused.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	defer sick.Close()
	well := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		_, _ = w.Write([]byte(`{"resource_providers": []}`))
	}))
	defer well.Close()
	client,
		err := placementclient.New(placementclient.Config{Endpoint: "http://127.0.0.1:1," + sick.URL + "," + well.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for range 3 {
		if _, err := client.Providers(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if refused.Load() != 1 || asked.Load() != 3 {
		t.Errorf("the one that cannot was asked %d times, want 1; the other %d, want 3", refused.Load(), asked.Load())
	}
	client.SetEndpoints([]string{"http://127.0.0.1:1"})
	if _, err := client.Providers(t.Context()); croft.KindOf(err) != croft.Unavailable {
		t.Errorf("after all have gone: %v", err)
	}
	if _,
		err := placementclient.New(placementclient.Config{Endpoint: well.URL +
		",nowhere"}); croft.KindOf(err) != croft.Invalid {
		t.Errorf("one that is no URL: %v", err)
	}
}
