package placementclient_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"croft"
)

// between forwards requests to a server, modified by change, and keeps the last answer.
func between(t *testing.T, address string, change func(*http.Request)) (through string, last *string) {
	t.Helper()
	last = new(string)
	client := &http.Client{Transport: &http.Transport{}}
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		on, err := http.NewRequestWithContext(r.Context(), r.Method, address+r.URL.RequestURI(), r.Body)
		if err != nil {
			t.Error(err)
			return
		}
		on.Header = r.Header.Clone()
		on.Header.Del("Accept-Encoding")
		change(on)
		answer, err := client.Do(on)
		if err != nil {
			t.Error(err)
			return
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Error(err)
		}
		*last = string(body)
		w.WriteHeader(answer.StatusCode)
		_, _ = w.Write(body)
	}))
	t.Cleanup(func() { web.Close(); client.CloseIdleConnections() })
	return web.URL, last
}

// The candidates are the same whether or not a server supports return=minimal.
func TestCandidatesAreReadWithoutWhatNobodyUses(t *testing.T) {
	server := serve(t)
	address, short := between(t, server, func(*http.Request) {})
	minimal := newClient(t, address)
	address, long := between(t, server, func(r *http.Request) { r.Header.Del("Prefer") })
	full := newClient(t, address)
	for i := range 3 {
		if err := full.EnsureProvider(t.Context(), croft.Provider{
			ID: croft.NewHostID(), Name: fmt.Sprintf("host-%d", i),
			Traits:      []croft.Trait{"COMPUTE_NODE", "HW_CPU_X86_AVX2"},
			Inventories: map[croft.ResourceClass]croft.Inventory{croft.VCPU: {Total: 4}, croft.MemoryMB: {Total: 1024}},
		}); err != nil {
			t.Fatal(err)
		}
	}
	const query = "resources=VCPU:1,MEMORY_MB:256"
	got, err := minimal.Candidates(t.Context(), query, 32)
	if err != nil {
		t.Fatal(err)
	}
	want, err := full.Candidates(t.Context(), query, 32)
	if err != nil || len(want) != 3 {
		t.Fatalf("%d candidates, %v", len(want), err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("candidates differ (-full +minimal):\n%s", diff)
	}
	for _, unused := range []string{"traits", "mappings", "parent_provider_uuid", "root_provider_uuid"} {
		if strings.Contains(*short, unused) || !strings.Contains(*long, unused) {
			t.Errorf("%s: answers are %s and %s", unused, *short, *long)
		}
	}
}
