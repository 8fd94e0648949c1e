package health_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"croft/internal/health"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ask sends a request to a server with these checks.
func ask(t *testing.T, c *health.Checks, method, target string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	mux := http.NewServeMux()
	c.Register(mux)
	r := httptest.NewRequestWithContext(t.Context(), method, target, nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	return w
}

// parts returns checks of one part that is ready and two that are not.
func parts() *health.Checks {
	c := new(health.Checks)
	c.Add("well", func(context.Context) error { return nil })
	c.Add("etcd", func(context.Context) error { return errors.Join(errors.New("full"), errors.New("and slow")) })
	c.Add("libvirt", func(context.Context) error { return errors.New("start libvirtd") })
	return c
}

func TestWhatIsAnswered(t *testing.T) {
	const both = "etcd: full; and slow\nlibvirt: start libvirtd\n"
	well := new(health.Checks)
	well.Add("all", func(context.Context) error { return nil })
	for _, c := range []struct {
		name   string
		checks *health.Checks
		path   string
		status int
		body   string
	}{
		{"a process without parts is ready", new(health.Checks), "/readyz", 200, "ok\n"},
		{"one whose parts are well is ready", well, "/readyz", 200, "ok\n"},
		{"each part that is not ready has a line", parts(), "/readyz", 503, both},
		{"a process lives whatever its parts do", parts(), "/livez", 200, "ok\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := ask(t, c.checks, "GET", c.path)
			if got.Code != c.status || got.Body.String() != c.body {
				t.Errorf("got %d %q, want %d %q", got.Code, got.Body, c.status, c.body)
			}
			if head := ask(t, c.checks, "HEAD", c.path); head.Code != c.status {
				t.Errorf("HEAD: %d, want %d", head.Code, c.status)
			}
		})
	}
	if got := ask(t, parts(), "POST", "/readyz"); got.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", got.Code)
	}
}

func TestProgramsReadAllParts(t *testing.T) {
	for name, got := range map[string]*httptest.ResponseRecorder{
		"verbose": ask(t, parts(), "GET", "/readyz?verbose"),
		"accept":  ask(t, parts(), "GET", "/readyz", "Accept", "text/html, application/json"),
	} {
		var said struct {
			Ready bool
			Parts []health.Result
		}
		if err := json.Unmarshal(got.Body.Bytes(), &said); err != nil {
			t.Fatalf("%s: %v: %s", name, err, got.Body)
		}
		want := health.Result{Part: "etcd", Reason: "full; and slow"}
		if got.Code != 503 || said.Ready || len(said.Parts) != 3 || !said.Parts[0].Ready || said.Parts[1] != want {
			t.Errorf("%s: %d %s", name, got.Code, got.Body)
		}
	}
}

func TestAPartThatHangsKeepsNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c health.Checks
		release := make(chan struct{})
		defer close(release)
		c.Add("hangs", func(context.Context) error { <-release; return nil }) // ignores its context
		c.Add("slow", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		began := time.Now()
		found := c.Look(t.Context())
		if took := time.Since(began); took != health.Patience {
			t.Errorf("it took %s", took)
		}
		if found[0].Ready || found[1].Ready || found[0].Reason != "no answer within 3s" {
			t.Errorf("found %+v", found)
		}
	})
}

// With cheap checks, no answer is outdated.
func TestACheapLookIsNeverOld(t *testing.T) {
	var broken error
	c := &health.Checks{Cheap: true}
	c.Add("memory", func(context.Context) error { return broken })
	if got := ask(t, c, "GET", "/readyz"); got.Code != http.StatusOK {
		t.Errorf("it is well: %d", got.Code)
	}
	broken = errors.New("it follows nothing")
	if got := ask(t, c, "GET", "/readyz"); got.Code != http.StatusServiceUnavailable {
		t.Errorf("it has just broken: %d", got.Code)
	}
}

// Without sharing, every answer to /readyz ran all checks, so that a client that polled without pause slowed down the
// parts.
func TestManyWhoAskShareALook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		looks := 0
		c := new(health.Checks)
		c.Add("slow", func(context.Context) error { looks++; time.Sleep(100 * time.Millisecond); return nil })
		for range 10 {
			for range 100 {
				go ask(t, c, "GET", "/readyz")
			}
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(time.Second)
		if looks != 1 {
			t.Errorf("a thousand who asked in half a second made the part look %d times", looks)
		}
		ask(t, c, "GET", "/readyz")
		if looks != 2 {
			t.Errorf("a second later it has looked %d times", looks)
		}
	})
}
