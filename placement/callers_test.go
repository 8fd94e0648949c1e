package placement_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/placement"
)

// directory is an Identity in memory.
type directory struct {
	mu     sync.Mutex
	tokens map[string]placement.Caller
	away   bool
	asked  int
	pause  time.Duration
}

func (d *directory) Validate(ctx context.Context, token string) (placement.Caller, error) {
	time.Sleep(d.pause)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked++
	if d.away {
		return placement.Caller{}, croft.Errorf(croft.Unavailable, "keystone is away")
	}
	c, ok := d.tokens[token]
	if !ok {
		return c, croft.Errorf(croft.NotFound, "no such token")
	}
	return c, nil
}

func (d *directory) change(do func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	do()
}

const ownProject = "41a81583b5004b3ca66296f48c1e55cd"

// guarded runs a server that validates tokens at a directory, in a bubble with fake time.
func guarded(t *testing.T, test func(t *testing.T, d *directory, send func(method, path,
	token string) *httptest.ResponseRecorder)) {
	synctest.Test(t, func(t *testing.T) {
		later := time.Now().Add(time.Hour)
		project := func(roles ...string) placement.Caller {
			return placement.Caller{User: "u", Project: ownProject, Roles: roles, Expires: later}
		}
		d := &directory{tokens: map[string]placement.Caller{
			"admin of a project":    project("admin", "member", "reader"),
			"service":               project("service"),
			"member":                project("member", "reader"),
			"reader of the system":  {User: "u", System: true, Roles: []string{"reader"}, Expires: later},
			"reader of watchers":    {User: "u", Project: "watchers", Roles: []string{"reader"}, Expires: later},
			"member of the system":  {User: "u", System: true, Roles: []string{"member"}, Expires: later},
			"reader without a room": {User: "u", Roles: []string{"reader"}, Expires: later},
			"soon": {User: "u", Project: ownProject, Roles: []string{"admin"},
				Expires: time.Now().Add(10 * time.Second)},
			"past": {User: "u", Project: ownProject, Roles: []string{"admin"},
				Expires: time.Now().Add(-time.Second)},
		}}
		server, err := placement.New(placement.Config{Store: newMemory(), Log: slog.New(slog.DiscardHandler),
			Token: "the-admin-token",
			Keystone: &placement.Keystone{Identity: d, URL: "http://keystone/v3",
				ReaderProjects: []string{"watchers"}}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- server.Run(ctx) }()
		if err := server.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		test(t, d, func(method, path, token string) *httptest.ResponseRecorder {
			r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(""))
			r.Header.Set("OpenStack-API-Version", "placement 1.38")
			if token != "none" {
				r.Header.Set("X-Auth-Token", token)
			}
			w := httptest.NewRecorder()
			server.Handler().ServeHTTP(w, r)
			return w
		})
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestWhatRolesMayDo(t *testing.T) {
	const list, write = "/resource_providers", "/traits/CUSTOM_BLUE"
	own, others := "/usages?project_id="+ownProject, "/usages?project_id=another"
	for _, c := range []struct {
		name, token, method, path string
		want                      int
	}{
		{"the administrator's token does everything still", "the-admin-token", "PUT", write, 201},
		{"an administrator of any project does everything", "admin of a project", "PUT", write, 201},
		{"a service does everything", "service", "PUT", write, 201},
		{"a reader of the system reads", "reader of the system", "GET", list, 200},
		{"a reader of the system reads what any project uses", "reader of the system", "GET", others, 200},
		{"a reader of the system writes nothing", "reader of the system", "PUT", write, 403},
		{"a reader of a named project reads", "reader of watchers", "GET", list, 200},
		{"a reader of a named project writes nothing", "reader of watchers", "PUT", write, 403},
		{"a member does not read providers", "member", "GET", list, 403},
		{"a member reads what the own project uses", "member", "GET", own, 200},
		{"a member does not read what another project uses", "member", "GET", others, 403},
		{"a member does not read what nobody in particular uses", "member", "GET", "/usages", 403},
		{"a member writes nothing", "member", "PUT", write, 403},
		{"a member of the system reads nothing", "member of the system", "GET", list, 403},
		{"a reader of nothing reads nothing", "reader without a room", "GET", list, 403},
		{"a reader of nothing reads no usages of nothing", "reader without a room", "GET", "/usages?project_id=", 403},
		{"an unknown token is none", "unknown", "GET", list, 401},
		{"an empty token is none", "", "GET", list, 401},
		{"a token that has expired is none", "past", "GET", list, 401},
		{"without a token one is asked for", "none", "GET", list, 401},
		{"without a token one is asked for before it is said what there is", "none", "GET", "/nowhere", 401},
		{"the versions are for everybody", "unknown", "GET", "/", 200},
	} {
		t.Run(c.name, func(t *testing.T) {
			guarded(t, func(t *testing.T, _ *directory, send func(method, path,
				token string) *httptest.ResponseRecorder) {
				w := send(c.method, c.path, c.token)
				if w.Code != c.want {
					t.Errorf("%s %s is answered %d, want %d: %s", c.method, c.path, w.Code, c.want, w.Body)
				}
				if got := w.Header().Get(
					"WWW-Authenticate"); (c.want == 401) != (got == `Keystone uri="http://keystone/v3"`) {
					t.Errorf("WWW-Authenticate is %q", got)
				}
				if text := "Policy does not allow placement:"; (c.want == 403) != strings.Contains(w.Body.String(),
					text) {
					t.Errorf("it says %s", w.Body)
				}
			})
		})
	}
}

func TestTokensAreRememberedForAWhile(t *testing.T) {
	guarded(t, func(t *testing.T, d *directory, send func(method, path, token string) *httptest.ResponseRecorder) {
		get := func(token string, want, asked int) {
			t.Helper()
			if w := send("GET", "/resource_providers", token); w.Code != want {
				t.Errorf("answered %d, want %d", w.Code, want)
			}
			if d.asked != asked {
				t.Errorf("asked %d times, want %d", d.asked, asked)
			}
		}
		get("admin of a project", 200, 1)
		get("soon", 200, 2)
		d.change(func() { delete(d.tokens, "admin of a project"); d.away = true })
		time.Sleep(9 * time.Second)
		get("admin of a project", 200, 2) // revoked, but cached
		get("soon", 200, 2)
		time.Sleep(2 * time.Second)
		get("soon", 503, 3) // the token has expired, and with it the cached answer
		d.change(func() { d.away = false })
		get("soon", 401, 4)
		get("soon", 401, 4) // the refusal is cached too
		time.Sleep(time.Minute)
		get("admin of a project", 401, 5)
	})
}

func TestAKeystoneThatIsAwayIsNotRemembered(t *testing.T) {
	guarded(t, func(t *testing.T, d *directory, send func(method, path, token string) *httptest.ResponseRecorder) {
		d.change(func() { d.away = true })
		w := send("GET", "/resource_providers", "service")
		if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "keystone is away") {
			t.Errorf("answered %d %s", w.Code, w.Body)
		}
		if w := send("GET", "/resource_providers", "the-admin-token"); w.Code != 200 {
			t.Errorf("the administrator's token is answered %d", w.Code)
		}
		d.change(func() { d.away = false })
		if w := send("GET", "/resource_providers", "service"); w.Code != 200 {
			t.Errorf("answered %d once it is back", w.Code)
		}
	})
}

func TestManyWithOneTokenAskOnce(t *testing.T) {
	guarded(t, func(t *testing.T, d *directory, send func(method, path, token string) *httptest.ResponseRecorder) {
		d.pause = time.Second
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if w := send("GET", "/resource_providers", "service"); w.Code != 200 {
					t.Errorf("answered %d", w.Code)
				}
			})
		}
		all.Wait()
		if d.asked != 1 {
			t.Errorf("asked %d times", d.asked)
		}
	})
}

func TestFloodOfTokensForgetsNoneThatCounts(t *testing.T) {
	guarded(t, func(t *testing.T, d *directory, send func(method, path, token string) *httptest.ResponseRecorder) {
		send("GET", "/resource_providers", "service")
		for i := range 25_000 {
			send("GET", "/resource_providers", fmt.Sprint("made up ", i))
		}
		before := d.asked
		if w := send("GET", "/resource_providers", "service"); w.Code != 200 || d.asked != before {
			t.Errorf("answered %d after %d more questions", w.Code, d.asked-before)
		}
	})
}

func TestKeystoneThatCannotBe(t *testing.T) {
	for name, k := range map[string]placement.Keystone{
		"without an identity":          {},
		"answers that count too long":  {Identity: &directory{}, CacheFor: 6 * time.Minute},
		"answers that count backwards": {Identity: &directory{}, CacheFor: -time.Second},
	} {
		if _, err := placement.New(placement.Config{Store: newMemory(), Keystone: &k}); !errors.Is(err, croft.Invalid) {
			t.Errorf("%s: got %v, want invalid", name, err)
		}
	}
}
