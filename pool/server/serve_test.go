package server_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"croft"
	"croft/internal/testing/patient"
	"croft/pool"
	"croft/pool/api"
	"croft/pool/pooltest"
	"croft/pool/server"
	"croft/pool/shell"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const twoPools = `
small:
  cmd_new: echo secret-$RESALLOC_ID
  cmd_delete: "true"
  max: 4
  max_prealloc: 1
  tags: [x86_64]
  description: Small machines of the farm
large:
  cmd_new: echo secret-$RESALLOC_ID
  cmd_delete: "true"
  max: 2
  max_prealloc: 0
  tags_on_demand: [large]
`

// member is a manager with its server; several may share a store.
type member struct {
	*httptest.Server

	manager *pool.Manager
	stop    func()
	tokens  string // file of the tokens; empty: none
}

// serve runs a manager on a store, and its server, until the test ends or stop is called.
func serve(t *testing.T, store pool.Store, dir, name string, tokens *server.PoolTokens) *member {
	t.Helper()
	hooks, err := shell.New(shell.Config{Dir: t.TempDir(), Mark: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewUnstartedServer(nil)
	m, err := pool.New(pool.Config{
		Partition: "test", Store: store, Hooks: hooks, File: filepath.Join(dir, "pools.yaml"),
		Me: pool.Server{Name: name, Machine: name, Address: "http://" + listener.Listener.Addr().String()},
	})
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	s, err := server.New(server.Config{Manager: m, Tokens: tokens, Local: tokens == nil, Peers: transport,
		RPC: numbers})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	listener.Config.Handler = s.Handler()
	listener.Config.BaseContext = nil
	listener.Start()
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		listener.CloseClientConnections()
		listener.Close()
		transport.CloseIdleConnections()
		cancel()
		if err := errors.Join(<-ended, hooks.Close()); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return &member{Server: listener, manager: m, stop: stop}
}

// numbers is another protocol: a request is the number of a ticket.
func numbers(tickets server.Tickets) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		id, err := pool.ParseTicketID(string(text))
		if err == nil {
			_, err = tickets.Get(r.Context(), id)
		}
		if err != nil {
			http.Error(w, err.Error(), croft.HTTPStatus(err))
		}
	})
}

// one runs a single manager of these pools, with the tokens ci and boss.
func one(t *testing.T) (m *member, ci, boss string) {
	t.Helper()
	return oneOn(t, pooltest.NewMemory())
}

func oneOn(t *testing.T, store pool.Store) (m *member, ci, boss string) {
	t.Helper()
	return oneWith(t, store, server.Quota{})
}

// oneWith is like one, with a store, and a quota in the line of ci's token.
func oneWith(t *testing.T, store pool.Store, quota server.Quota) (m *member, ci, boss string) {
	t.Helper()
	return oneOf(t, twoPools, store, quota)
}

// oneOf is like oneWith, with other pools.
func oneOf(t *testing.T, pools string, store pool.Store, quota server.Quota) (m *member, ci, boss string) {
	t.Helper()
	dir := poolsIn(t, pools)
	file := filepath.Join(dir, "tokens")
	ci, client, _ := server.NewToken("ci", server.RoleClient)
	client.Quota = quota
	boss, admin, _ := server.NewToken("boss", server.RoleAdmin)
	if err := os.WriteFile(file, []byte(client.Line()+admin.Line()), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := server.LoadTokens(file, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	m = serve(t, store, dir, "one", tokens)
	m.tokens = file
	return m, ci, boss
}

func poolsIn(t *testing.T, text string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pools.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// client calls servers, within the time limit of a test.
func client(t *testing.T, token string, endpoints ...string) *api.Client {
	t.Helper()
	c, err := api.New(api.Config{Endpoints: endpoints, Token: token, Patience: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdle)
	return c
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patient.Longest)
	t.Cleanup(cancel)
	return ctx
}

func opened(t *testing.T, c *api.Client, tags ...string) api.Ticket {
	t.Helper()
	got, err := c.Open(bounded(t), api.Opening{Tags: tags})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestAskingAgainWithOneKeyOpensNoSecondTicket(t *testing.T) {
	m, ci, boss := one(t)
	ask := func(token string) int64 {
		got, err := client(t, token, m.URL).Open(bounded(t), api.Opening{Tags: []string{"x86_64"}, Key: "job 7"})
		if err != nil {
			t.Fatal(err)
		}
		return got.ID
	}
	if a, b, other := ask(ci), ask(ci), ask(boss); a != b || a == other {
		t.Errorf("tickets %d, %d and %d", a, b, other)
	}
}

// TestAClientOutlivesServers makes a client wait while the leader stops and another server replaces it.
func TestAClientOutlivesServers(t *testing.T) {
	store, dir := pooltest.NewMemory(), poolsIn(t, twoPools)
	first := serve(t, store, dir, "first", nil)
	awaitLeader(t, first)
	second := serve(t, store, dir, "second", nil)
	c := client(t, "", first.URL, second.URL)
	if got := opened(t, client(t, "", second.URL), "x86_64"); got.ID != 1 {
		t.Fatalf("the one that stands by opened ticket %d", got.ID)
	}
	for range 4 {
		opened(t, c, "x86_64")
	}
	type result struct {
		api.Ticket
		err error
	}
	waited := make(chan result, 1)
	saw := make(chan struct{}, 100)
	go func() {
		got, err := c.Wait(bounded(t), 5, api.Waiting{Changed: func(api.Ticket) { saw <- struct{}{} }})
		waited <- result{got, err}
	}()
	<-saw // it waits, because four are assigned
	first.stop()
	if _, err := client(t, "", first.URL, second.URL).Close(bounded(t), 1); err != nil {
		t.Fatal(err)
	}
	if got := <-waited; got.err != nil || !got.Ready() || got.Resource == nil {
		t.Errorf("waited for %+v, %v", got.Ticket, got.err)
	}
	if got := opened(t, c, "x86_64"); got.ID != 6 {
		t.Errorf("the number after 5 is %d", got.ID)
	}
}

func awaitLeader(t *testing.T, m *member) {
	t.Helper()
	ctx, cancel := context.WithCancel(bounded(t))
	m.manager.WatchLeader(ctx, func(_ *pool.Server, here bool) {
		if here {
			cancel()
		}
	})
	if ctx.Err() != context.Canceled {
		t.Fatal("nobody acts")
	}
}

// request sends a request with these headers, and returns status and body.
func request(t *testing.T, method, url, body string, header map[string]string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(bounded(t), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range header {
		if r.Header.Set(name, value); name == "Host" {
			r.Host = value
		}
	}
	alone := &http.Client{Transport: &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := alone.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func TestWhoMayDoWhat(t *testing.T) {
	m, ci, boss := one(t)
	opened(t, client(t, boss, m.URL), "x86_64")
	bearer := func(token string) map[string]string { return map[string]string{"Authorization": "Bearer " + token} }
	for _, c := range []struct {
		name, method, path, body string
		header                   map[string]string
		status                   int
		want                     string
	}{
		{"nobody opens a ticket", "POST", "/v1/tickets", `{"tags":["x86_64"]}`, nil, 401, "wants a token"},
		{"nobody lists tickets", "GET", "/v1/tickets", "", nil, 401, "wants a token"},
		{"nobody speaks another protocol", "POST", "/RPC2", "1", nil, 401, "wants a token"},
		{"a token that is none is refused", "GET", "/v1/pools", "", bearer("cp_x"), 401,
			"this server does not know the token"},
		{"a client lists pools", "GET", "/v1/pools", "", bearer(ci), 200, `"name":"small"`},
		{"a client sees no ticket of another", "GET", "/v1/tickets/1", "", bearer(ci), 404, "there is no ticket 1"},
		{"nor over another protocol", "POST", "/RPC2", "1", bearer(ci), 404, "there is no ticket 1"},
		{"a client pauses nothing", "POST", "/v1/pools/small/pause", "", bearer(ci), 403, "for admins"},
		{"a client reads no logs", "GET", "/v1/resources/1/logs", "", bearer(ci), 403, "for admins"},
		{"an admin sees all tickets", "GET", "/v1/tickets/1", "", bearer(boss), 200, `"owner":"boss"`},
		{"a password of a URL is a token", "GET", "/v1/tickets/1", "",
			map[string]string{"Authorization": "Basic " + basic(boss)}, 200, `"id":1`},
		{"a cookie lets one look", "GET", "/v1/tickets/1", "", map[string]string{"Cookie": "croft_pool_token=" + boss},
			200, `"id":1`},
		{"and change nothing", "DELETE", "/v1/tickets/1", "", map[string]string{"Cookie": "croft_pool_token=" + boss},
			401, "wants a token"},
		{"a page of somebody else changes nothing", "POST", "/v1/pools/small/pause", "",
			map[string]string{"Authorization": "Bearer " + boss, "Origin": "http://evil.example"}, 400,
			"from elsewhere"},
		{"everybody sees the page", "GET", "/", "", nil, 200, "<h1>Pools</h1>"},
		{"what is no document is refused", "POST", "/v1/tickets", "{", bearer(boss), 400, "not a document of this API"},
		{"what has something else in it is refused", "POST", "/v1/tickets", `{"tags":"x86_64"}`, bearer(boss), 400,
			"tags cannot be a JSON string"},
		{"what is something else is refused", "POST", "/v1/tickets", `[]`, bearer(boss), 400,
			"it cannot be a JSON array"},
		{"what is too long is refused", "POST", "/v1/tickets", strings.Repeat(" ", 70000), bearer(boss), 400,
			"longer than"},
		{"what is no time at all is refused", "POST", "/v1/tickets", `{"tags":[],"ttl":1e300}`, bearer(boss), 400,
			"not a number of seconds"},
		{"what is a negative time is refused", "POST", "/v1/tickets", `{"tags":[],"ttl":-5}`, bearer(boss), 400,
			"a lease of -5s"},
		{"what is no duration is refused", "GET", "/v1/tickets/1?wait=soon", "", bearer(boss), 400,
			"use a duration such as 30s"},
		{"what is no number is refused", "GET", "/v1/tickets/one", "", bearer(boss), 400, "not a ticket number"},
		{"what is no choice is refused", "DELETE", "/v1/resources?which=some", "", bearer(boss), 400,
			"use none, unused or all"},
		{"what is no limit is refused", "GET", "/v1/tickets?limit=-1", "", bearer(boss), 400, "limit"},
		{"what there is not", "GET", "/v1/x", "", bearer(boss), 404, "there is no GET /v1/x in this API"},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, body := request(t, c.method, m.URL+c.path, c.body, c.header)
			if status != c.status || !strings.Contains(body, c.want) {
				t.Errorf("%d %s, want %d and %q", status, body, c.status, c.want)
			}
		})
	}
}

// A forgotten ticket has no known owner, so closing it has no effect.
func TestAForgottenTicketMayBeClosedWithAnyToken(t *testing.T) {
	store := pooltest.NewMemory()
	if err := store.Lead(t.Context(), pool.Server{}, func(ctx context.Context, term pool.Term) error {
		return term.Commit(ctx, pool.Batch{Head: &pool.Head{Ticket: 5}})
	}); err != nil {
		t.Fatal(err)
	}
	m, ci, _ := oneOn(t, store)
	for path, want := range map[string]int{"/v1/tickets/3": 200, "/v1/tickets/6": 404} {
		if status, body := request(t, http.MethodDelete, m.URL+path, "",
			map[string]string{"Authorization": "Bearer " + ci}); status != want {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

// A page that is already live gets no more updates once its token is revoked.
func TestARevokedTokenSeesNoMore(t *testing.T) {
	m, ci, boss := one(t)
	awaitLeader(t, m)
	r, err := http.NewRequestWithContext(bounded(t), http.MethodGet, m.URL+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.AddCookie(&http.Cookie{Name: "croft_pool_token", Value: boss})
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, "Sandbox") {
		t.Fatalf("an admin is shown %.200s, %v", line, err)
	}
	text, err := os.ReadFile(m.tokens)
	if err != nil {
		t.Fatal(err)
	}
	kept, _, _ := strings.Cut(string(text), "boss")
	if err := os.WriteFile(m.tokens, []byte(kept), 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, lines); ended <- err }()
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
			return
		case <-time.After(100 * time.Millisecond):
			opened(t, client(t, ci, m.URL), "nonesuch") // causes a change of the page
		}
	}
}

func basic(password string) string {
	r, _ := http.NewRequest(http.MethodGet, "http://x", nil)
	r.SetBasicAuth("anybody", password)
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Basic ")
}

func TestAServerOfThisMachineIsAskedByItsName(t *testing.T) {
	m := serve(t, pooltest.NewMemory(), poolsIn(t, twoPools), "one", nil)
	awaitLeader(t, m)
	for host, want := range map[string]int{"localhost:49100": 200, "127.0.0.1": 200, "[::1]:1": 200,
		"evil.example": 400, "10.0.0.1:49100": 400} {
		if status, body := request(t, http.MethodGet, m.URL+"/v1/pools", "",
			map[string]string{"Host": host}); status != want {
			t.Errorf("asked as %s: %d %s, want %d", host, status, body, want)
		}
	}
}

func TestTheAddressOfTheOldPageLeadsToTheNewOne(t *testing.T) {
	const page = "https://cloud.example:8781/ui/pools"
	m := serve(t, pooltest.NewMemory(), poolsIn(t, twoPools), "one", nil)
	s, err := server.New(server.Config{Manager: m.manager, Page: page})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"/": page, "/pools": "/#pools"} {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != want {
			t.Errorf("%s leads to %q with %d, want %q", path, w.Header().Get("Location"), w.Code, want)
		}
	}
}
