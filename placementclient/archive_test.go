package placementclient_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"croft"
	"croft/etcdstore/etcdtest"
	"croft/internal/testing/placementoracle"
	"croft/placement/ledger"
	"croft/placement/transfer"
	"croft/placement/transfer/transfertest"
	"croft/placementclient"
)

func noProgress(string, int, int) {}

// archive returns the Archive at an endpoint.
func archive(t *testing.T, endpoint string) *placementclient.Archive {
	t.Helper()
	client, err := placementclient.New(placementclient.Config{Endpoint: endpoint})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return &placementclient.Archive{Client: client}
}

func readAll(t *testing.T, from transfer.Source) *transfer.State {
	t.Helper()
	state, err := from.Read(t.Context(), noProgress)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// carry imports twice; the second import must change nothing.
func carry(t *testing.T, state *transfer.State, to transfer.Target) {
	t.Helper()
	if _, err := transfer.Import(t.Context(), state, to, false, noProgress); err != nil {
		t.Fatal(err)
	}
	again, err := transfer.Import(t.Context(), state, to, false, noProgress)
	if err != nil || !again.Empty() {
		t.Fatalf("imported again: %v, changes %+v", err, again)
	}
}

// wantSame compares states as files, without the servers' own counters.
func wantSame(t *testing.T, what string, want, got *transfer.State) {
	t.Helper()
	a, b := lines(t, transfertest.WithoutGenerations(want)), lines(t, transfertest.WithoutGenerations(got))
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			t.Fatalf("%s, line %d:\nwant %s\ngot  %s", what, i+1, a[i], b[i])
		}
	}
	if len(a) != len(b) {
		t.Fatalf("%s: %d lines, want %d", what, len(b), len(a))
	}
}

func lines(t *testing.T, s *transfer.State) []string {
	t.Helper()
	var b bytes.Buffer
	if err := transfer.Encode(&b, s); err != nil {
		t.Fatal(err)
	}
	return strings.Split(b.String(), "\n")
}

func TestArchiveOfOurServer(t *testing.T) {
	want := transfertest.Sample(1, 40)
	store := etcdtest.Start(t).Placement(0)
	stored := &ledger.Archive{Store: store}
	carry(t, want, stored)
	served := readAll(t, archive(t, serveOn(t, store)))
	if a, b := strings.Join(lines(t, want), "\n"), strings.Join(lines(t, served), "\n"); a != b {
		t.Errorf("what the API tells is not what etcd has:\n%s\n%s", a, b)
	}
	other := archive(t, serve(t))
	carry(t, served, other)
	wantSame(t, "from server to server", want, readAll(t, other))
}

// TestOverToUsAndBack migrates from OpenStack's Placement to ours and back.
func TestOverToUsAndBack(t *testing.T) {
	want := transfertest.Sample(2, 16)
	original := archive(t, placementoracle.Start(t))
	carry(t, want, original)
	first := readAll(t, original)
	wantSame(t, "into OpenStack's", want, first)

	ours := &ledger.Archive{Store: etcdtest.Start(t).Placement(0)}
	carry(t, first, ours)
	wantSame(t, "into ours", want, readAll(t, ours))

	back := archive(t, placementoracle.Start(t))
	carry(t, readAll(t, ours), back)
	wantSame(t, "back into OpenStack's", first, readAll(t, back))
}

// failing passes the given number of writes, and answers 500 to later ones.
func failing(t *testing.T, endpoint string, writes int) string {
	t.Helper()
	target, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = transport
	var mu sync.Mutex
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			mu.Lock()
			writes--
			over := writes < 0
			mu.Unlock()
			if over {
				w.WriteHeader(http.StatusTeapot) // not retried
				return
			}
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { web.Close(); transport.CloseIdleConnections() })
	return web.URL
}

func TestAnInterruptedImportIsFinishedThroughTheAPI(t *testing.T) {
	want := transfertest.Sample(3, 5)
	for n := 0; ; n += 5 {
		endpoint := serve(t)
		_, err := transfer.Import(t.Context(), want, archive(t, failing(t, endpoint, n)), false, noProgress)
		if err == nil {
			if n < 40 {
				t.Errorf("it took %d writes only", n)
			}
			return
		}
		to := archive(t, endpoint)
		carry(t, want, to)
		wantSame(t, fmt.Sprintf("interrupted at %d", n), want, readAll(t, to))
	}
}

func TestMergeAddsAndChanges(t *testing.T) {
	to := archive(t, serve(t))
	first := transfertest.Sample(4, 6)
	carry(t, first, to)
	second := transfertest.Sample(5, 6)
	for i := range second.Providers {
		second.Providers[i].Name += " of the second"
	}
	renamed := first.Providers[2]
	renamed.Name, renamed.Aggregates = "renamed", []string{string(first.Providers[0].ID)}
	second.Providers = append(second.Providers, renamed)
	moved := first.Consumers[0]
	moved.Allocations = map[croft.HostID]croft.Resources{first.Providers[0].ID: {croft.VCPU: 1}}
	second.Consumers = append(second.Consumers, moved)
	if _, err := transfer.Import(t.Context(), second, to, false, noProgress); !errors.Is(err, croft.Conflict) {
		t.Errorf("without merge: got %v, want a conflict", err)
	}
	wantSame(t, "after the refusal", first, readAll(t, to))
	if _, err := transfer.Import(t.Context(), second, to, true, noProgress); err != nil {
		t.Fatal(err)
	}
	have := readAll(t, to)
	if want := len(first.Providers) + len(second.Providers) - 1; len(have.Providers) != want {
		t.Errorf("%d providers, want %d", len(have.Providers), want)
	}
	for _, p := range have.Providers {
		if p.ID == renamed.ID && (p.Name != renamed.Name || len(p.Aggregates) != 1 ||
			p.Aggregates[0] != renamed.Aggregates[0]) {
			t.Errorf("the provider in both is %+v, want %+v", p, renamed)
		}
	}
	if changes, err := transfer.Plan(have, second, true); err != nil || !changes.Empty() {
		t.Errorf("after the merge something is left to do: %v, %+v", err, changes)
	}
}

// TestReadIsOfOneMoment moves a claim between two providers repeatedly: in every read, it is on exactly one of them.
func TestReadIsOfOneMoment(t *testing.T) {
	endpoint := serve(t)
	to := archive(t, endpoint)
	carry(t, transfertest.Sample(6, 3), to)
	state := readAll(t, to)
	var hosts []croft.HostID
	for _, p := range state.Providers {
		if i, ok := p.Inventories[croft.VCPU]; ok && i.Reserved < i.Total && i.MinUnit == 1 {
			hosts = append(hosts, p.ID)
		}
	}
	busy := &mover{archive: to, hosts: hosts, id: croft.NewInstanceID()}
	if err := busy.move(t); err != nil {
		t.Fatal(err)
	}
	// For some time a move follows each read of the list: the reader must notice.
	proxied := hooked(t, endpoint, func(r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/inventories") && busy.moves < 12 {
			if err := busy.move(t); err != nil {
				t.Error(err)
			}
		}
	})
	got := readAll(t, archive(t, proxied))
	for _, c := range got.Consumers {
		if c.ID == busy.id && (len(c.Allocations) != 1 || c.Allocations[busy.at()][croft.VCPU] != 1) {
			t.Errorf("read %v, want it on %s alone", c.Allocations, busy.at())
		}
	}
	wantSame(t, "read while it changed", readAll(t, to), got)
	if busy.moves < 12 {
		t.Errorf("only %d moves: nothing was tested", busy.moves)
	}
}

// mover moves a consumer from host to host.
type mover struct {
	archive *placementclient.Archive
	hosts   []croft.HostID
	id      croft.InstanceID
	mu      sync.Mutex
	moves   int
}

func (m *mover) at() croft.HostID { return m.hosts[m.moves%len(m.hosts)] }

func (m *mover) move(t *testing.T) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.archive.Client.Release(t.Context(), m.id, croft.On()); err != nil {
		return err
	}
	m.moves++
	return m.archive.Client.Claim(t.Context(), m.id, croft.Owner{Project: "p"},
		croft.Candidate{Allocations: map[croft.HostID]croft.Resources{m.at(): {croft.VCPU: 1}}})
}

// hooked is a proxy that calls before for each request, one at a time.
func hooked(t *testing.T, endpoint string, before func(*http.Request)) string {
	t.Helper()
	target, err := url.Parse(endpoint)
	if err != nil {
		t.Fatal(err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = transport
	var mu sync.Mutex
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		before(r)
		mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() { web.Close(); transport.CloseIdleConnections() })
	return web.URL
}
