package trust

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"croft"
	"croft/internal/httpapi"
	"croft/internal/testing/badserver"
	"croft/trust/pki"
)

// After any failure of a join server during a request, its client reports that a retry may succeed.
func TestAJoinServerThatDies(t *testing.T) {
	fault := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		httpapi.Answer(w, http.StatusInternalServerError, refusal{Message: "the disk is gone"})
	}))
	defer fault.Close()
	servers := badserver.All(t, true)
	servers["it reports a fault of its own"] = fault.Listener.Addr().String()
	for name, address := range servers {
		client := NewClient([]string{address}, &tls.Config{InsecureSkipVerify: true})
		if _, err := client.Trusted(t.Context(), pki.Hosts); croft.KindOf(err) != croft.Unavailable {
			t.Errorf("%s: got %v of kind %q, want Unavailable", name, err, croft.KindOf(err))
		}
	}
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	_, err := NewClient([]string{fault.Listener.Addr().String()}, &tls.Config{}).Trusted(late, pki.Hosts)
	if croft.KindOf(err) != croft.Unavailable {
		t.Errorf("too late: got %v of kind %q, want Unavailable", err, croft.KindOf(err))
	}
}

func TestWhatAJoinServerRefusesKeepsItsKind(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		text, _ := json.Marshal(refusal{croft.NotFound, "no such host"})
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write(text)
	}))
	defer server.Close()
	client := NewClient([]string{server.Listener.Addr().String()}, &tls.Config{InsecureSkipVerify: true})
	if _, err := client.Trusted(t.Context(), pki.Hosts); croft.KindOf(err) != croft.NotFound {
		t.Errorf("got %v, want what the server said", err)
	}
}
