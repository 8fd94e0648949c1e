package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"croft"
	"croft/pool/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// client returns a client of a server with this handler, with a short Patience.
func client(t *testing.T, answer http.HandlerFunc) *api.Client {
	t.Helper()
	return clientFor(t, 300*time.Millisecond, answer)
}

// clientFor returns a client with this patience. It calls the servers in more first.
func clientFor(t *testing.T, patience time.Duration, answer http.HandlerFunc, more ...string) *api.Client {
	t.Helper()
	s := httptest.NewServer(answer)
	t.Cleanup(s.Close)
	c, err := api.New(api.Config{Endpoints: append(more, s.URL), Token: "t", Patience: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdle)
	return c
}

func TestErrorsHaveTheirKinds(t *testing.T) {
	for _, c := range []struct {
		name   string
		status int
		body   string
		kind   croft.Kind
		want   string
	}{
		{"a kind that is told", 404, `{"error":"there is no ticket 7","kind":"not found"}`, croft.NotFound,
			"there is no ticket 7"},
		{"no kind", 401, `{"error":"this server wants a token"}`, "", "this server wants a token"},
		{"a server that is away behind a proxy", 502, "<html>", croft.Unavailable, "502"},
		{"no manager at all", 404, "<html>", "", "is not a manager of pools"},
		{"an answer that is none", 200, "<html>", "", "is not a manager of pools"},
		{"nobody acts", 503, `{"error":"no server acts","kind":"unavailable"}`, croft.Unavailable, "no server acts"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := client(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.body)
			}).Ticket(t.Context(), 7)
			if err == nil || croft.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v of kind %q, want %q of kind %q", err, croft.KindOf(err), c.want, c.kind)
			}
		})
	}
}

func TestAServerThatIsAwayIsAskedAgainWithTheSameKey(t *testing.T) {
	var asked atomic.Int64
	keys := make(chan string, 10)
	c := clientFor(t, time.Minute, func(w http.ResponseWriter, r *http.Request) {
		var o api.Opening
		_ = json.NewDecoder(r.Body).Decode(&o)
		keys <- o.Key
		if r.Header.Get("Authorization") != "Bearer t" {
			t.Error("the token was not shown")
		}
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, `{"id":4,"state":"OPEN"}`)
	}, "http://127.0.0.1:1")
	got, err := c.Open(t.Context(), api.Opening{Tags: []string{"a"}})
	if err != nil || got.ID != 4 || !got.Waiting() {
		t.Fatalf("got %+v, %v", got, err)
	}
	if a, b := <-keys, <-keys; a == "" || a != b {
		t.Errorf("the keys were %q and %q", a, b)
	}
}

func TestWaitingEndsWithItsContext(t *testing.T) {
	slow := func(w http.ResponseWriter, r *http.Request) {
		if r.FormValue("wait") != "0s" {
			<-r.Context().Done()
		}
		_, _ = io.WriteString(w, `{"id":4,"state":"OPEN","waits_for":"rain"}`)
	}
	saw := ""
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := client(t, slow).Wait(ctx, 4, api.Waiting{Changed: func(t api.Ticket) { saw = t.WaitsFor }})
	if !errors.Is(err, context.DeadlineExceeded) || saw != "rain" {
		t.Errorf("saw %q, ended with %v", saw, err)
	}
}

func TestWaitingInVainEnds(t *testing.T) {
	vain := func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"id":4,"state":"OPEN","never":true}`)
	}
	got, err := client(t, vain).Wait(t.Context(), 4, api.Waiting{})
	if err != nil || !got.Never {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestWhatAResourceHandsOutComesBackAsItWas(t *testing.T) {
	for _, data := range []string{"", "192.0.2.1\n", "ä", "\x00\xff\n"} {
		text, err := json.Marshal(api.Resource{Data: api.Text(data)})
		if err != nil {
			t.Fatal(err)
		}
		var r api.Resource
		if err := json.Unmarshal(text, &r); err != nil || string(r.Data) != data {
			t.Errorf("%q became %q by %s: %v", data, r.Data, text, err)
		}
	}
}

func TestDurationsAreSeconds(t *testing.T) {
	text, err := json.Marshal(api.Opening{Tags: []string{}, TTL: api.Seconds(90 * time.Second)})
	if want := `{"tags":[],"ttl":90}`; err != nil || string(text) != want {
		t.Errorf("got %s, %v, want %s", text, err, want)
	}
	var o api.Opening
	if err := json.Unmarshal([]byte(`{"ttl":0.5}`), &o); err != nil || time.Duration(o.TTL) != 500*time.Millisecond {
		t.Errorf("got %v, %v", o.TTL, err)
	}
	if err := json.Unmarshal([]byte(`{"ttl":"soon"}`), &o); err == nil {
		t.Error("a word was taken for a duration")
	}
}

func TestWhatIsNoEndpoint(t *testing.T) {
	for _, c := range []api.Config{{Endpoints: []string{"localhost:49100"}}, {Endpoints: []string{"ftp://x"}},
		{CA: "/nowhere"}} {
		if _, err := api.New(c); croft.KindOf(err) != croft.Invalid {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
