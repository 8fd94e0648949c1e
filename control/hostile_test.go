package control_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"croft"
	"croft/control"
	"croft/control/api"
	"croft/internal/delay"
	"croft/tenant/access"
)

// hostile are the attacks of the tenants, by project. Each runs until ctx ends, ignores the answers, and retries
// refused requests.
var hostile = map[string]func(context.Context, *tenantClient){
	"flooding": func(ctx context.Context, c *tenantClient) {
		c.repeat(ctx, 8, func(int) { c.do(ctx, http.MethodGet, "/v1/instances", nil) })
	},
	"slow": func(ctx context.Context, c *tenantClient) {
		c.repeat(ctx, 50, func(int) { c.trickle(ctx) })
	},
	"storing": func(ctx context.Context, c *tenantClient) {
		c.repeat(ctx, 4, func(n int) {
			c.do(ctx, http.MethodPost, "/v1/keys", fields{"name": fmt.Sprint("k", n), "line": sshKey})
			c.do(ctx, http.MethodPost, "/v1/appliances", fields{"name": fmt.Sprint("a", n)})
			c.do(ctx, http.MethodPost, fmt.Sprintf("/v1/appliances/a%d/implementations", n%50),
				fields{"site": "local", "template": strings.Repeat("# nothing\n", 50_000)})
		})
	},
	"streaming": func(ctx context.Context, c *tenantClient) {
		c.repeat(ctx, 100, func(int) { c.do(ctx, http.MethodGet, "/v1/events", nil) })
	},
	"forwarding": func(ctx context.Context, c *tenantClient) {
		c.repeat(ctx, 100, func(n int) {
			path := "/v1/events"
			if n%2 == 0 {
				path = "/v1/instances"
			}
			c.do(ctx, http.MethodGet, path, nil, "X-Croft-Partition", "west")
		})
	},
}

const sshKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGNyb2Z0Y3JvZnRjcm9mdGNyb2Z0Y3JvZnRjcm9mdGNy test"

// more are callers in addition to those of every test, by token.
type more map[string]access.Caller

// Authenticate implements access.Authenticator.
func (m more) Authenticate(_ context.Context, r *http.Request) (access.Caller, bool, error) {
	caller, known := m[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	return caller, known, nil
}

// tenantClient sends requests as one tenant, at a rate that leaves the machine some time for the server.
type tenantClient struct {
	url, token string
	http       *http.Client
	pace       *rate.Limiter
}

// repeat makes workers call do at the pace of the client until ctx ends. n counts up.
func (c *tenantClient) repeat(ctx context.Context, workers int, do func(n int)) {
	var work sync.WaitGroup
	defer work.Wait()
	for w := range workers {
		work.Go(func() {
			for n := w; c.pace.Wait(ctx) == nil; n += workers {
				do(n)
			}
		})
	}
}

// do sends a request and reads the answer to its end, or until ctx ends. It returns the status and the answer; 0: there
// is no answer.
func (c *tenantClient) do(ctx context.Context, method, path string, body any, headers ...string) (int, string) {
	text, err := json.Marshal(body)
	if body == nil || err != nil {
		text = nil
	}
	r, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(string(text)))
	if err != nil {
		return 0, err.Error()
	}
	r.Header.Set("Authorization", "Bearer "+c.token)
	for pair := range slices.Chunk(headers, 2) {
		r.Header.Set(pair[0], pair[1])
	}
	got, err := c.http.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer got.Body.Close()
	answer, _ := io.ReadAll(io.LimitReader(got.Body, 1<<10))
	_, _ = io.Copy(io.Discard, got.Body)
	return got.StatusCode, string(answer)
}

// trickle sends a request whose body arrives byte by byte.
func (c *tenantClient) trickle(ctx context.Context) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(c.url, "http://"))
	if err != nil {
		return
	}
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST /v1/keys HTTP/1.1\r\nHost: croft\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n", c.token)
	for range 1000 {
		if err != nil || delay.For(ctx, 100*time.Millisecond) != nil {
			return
		}
		_, err = conn.Write([]byte(" "))
	}
}

// An honest tenant is served while five others flood, trickle, store, stream and forward for the duration in
// CROFT_SOAK. Only with CROFT_SOAK, the test also measures: a request takes less than twice as long as without the
// others. Without CROFT_SOAK every request of the honest tenant has to succeed, regardless of the time it takes.
func TestAnHonestTenantIsServedAmongHostileOnes(t *testing.T) {
	soak, err := time.ParseDuration(os.Getenv("CROFT_SOAK"))
	measured := err == nil
	if !measured {
		t.Parallel()
	}
	tenants := more{"honest": {User: "honest", Project: "honest", Via: "token honest",
		Roles: []access.Role{access.Member}}}
	for name := range hostile {
		tenants[name] = access.Caller{User: name, Project: croft.Project(name), Via: "token " + name,
			Roles: []access.Role{access.ProjectAdmin}}
	}
	p := newPairWith(t, func(c *control.Config) {
		c.Callers, c.Rate, c.Burst = access.First(tenants, c.Callers), 0, 0 // the usual ones
	})
	for name := range tenants {
		p.atEast.ask(t, "operator", http.MethodPost, "/v1/projects", api.NewProject{Name: croft.Project(name)}).
			want(t, http.StatusCreated, "")
	}
	p.atWest.ask(t, "operator", http.MethodPost, "/v1/projects/shop/mappings",
		api.NewMapping{Peer: "east", Theirs: "forwarding", Role: access.Reader}).want(t, http.StatusOK, "")

	client := func(token string, each rate.Limit) *tenantClient {
		transport := &http.Transport{MaxIdleConnsPerHost: 100}
		t.Cleanup(transport.CloseIdleConnections)
		return &tenantClient{p.east.URL, token, &http.Client{Transport: transport}, rate.NewLimiter(each, 1)}
	}
	honest, started := client("honest", 5), time.Now()
	serve := func(rounds int, until time.Time) time.Duration {
		t.Helper()
		var took []time.Duration
		ask := func(want int, method, path string, body any) {
			t.Helper()
			began := time.Now()
			if got, answer := honest.do(t.Context(), method, path, body); got != want {
				t.Errorf("after %s the honest tenant gets %d for %s %s after %s, want %d: %s", time.Since(started), got,
					method, path, time.Since(began), want, answer)
			}
			took = append(took, time.Since(began))
		}
		for n := 0; (n < rounds || time.Now().Before(until)) && !t.Failed(); n++ {
			_ = honest.pace.WaitN(t.Context(), 1)
			ask(http.StatusOK, http.MethodGet, "/v1/projects/honest", nil)
			ask(http.StatusCreated, http.MethodPost, "/v1/keys", fields{"name": "mine", "line": sshKey})
			ask(http.StatusOK, http.MethodGet, "/v1/keys", nil)
			ask(http.StatusNoContent, http.MethodDelete, "/v1/keys/mine", nil)
			ask(http.StatusOK, http.MethodGet, "/v1/instances", nil)
			ask(http.StatusOK, http.MethodGet, "/v1/appliances", nil)
		}
		if len(took) == 0 {
			t.FailNow()
		}
		slices.Sort(took)
		return took[len(took)/2]
	}
	alone := serve(10, time.Now().Add(soak/6))

	ctx, end := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for name, act := range hostile {
		work.Go(func() { act(ctx, client(name, 100)) })
	}
	among := serve(20, time.Now().Add(soak-soak/6))
	end()
	work.Wait()
	t.Logf("a request of the honest tenant takes %s alone and %s among hostile tenants", alone, among)
	if measured && among >= 2*alone {
		t.Errorf("a request takes %s among hostile tenants and %s alone: %.1f times as long", among, alone,
			float64(among)/float64(alone))
	}
	check := p.atEast.ask(t, "operator", http.MethodGet, "/v1/quota/check", nil)
	if !strings.Contains(string(check.body), `"discrepancies":[]`) {
		t.Errorf("what is stored is counted wrongly: %s", check.body)
	}
}
