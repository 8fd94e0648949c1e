package gate_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"croft"
	"croft/trust/gate"
)

// raw is a host that sends arbitrary requests.
type raw struct {
	t     *testing.T
	cloud *cloud
	http  *http.Client
}

func newRaw(t *testing.T, c *cloud, host croft.HostID) *raw {
	transport := &http.Transport{TLSClientConfig: c.front.TLS(t, host), ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &raw{t, c, &http.Client{Transport: transport}}
}

// post sends a request whose answer ends with the test at the latest.
func (r *raw) post(ctx context.Context, name string, body io.Reader) *http.Response {
	r.t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+r.cloud.front.Address+gate.Prefix+name,
		body)
	if err != nil {
		r.t.Fatal(err)
	}
	answer, err := r.http.Do(request)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

func TestAHostHasSoManyStreamsAndNoMore(t *testing.T) {
	c := newCloud(t)
	greedy, ctx := newRaw(t, c, croft.NewHostID()), t.Context()
	for range gate.MostStreams {
		if got := greedy.post(ctx, "WatchOrders", silent(t)); got.StatusCode != http.StatusOK {
			t.Fatalf("got %s, want a stream", got.Status)
		}
	}
	if got := greedy.post(ctx, "WatchOrders", silent(t)); got.StatusCode != http.StatusTooManyRequests {
		t.Errorf("got %s, want that one more is too many", got.Status)
	}
	if got := newRaw(t, c, croft.NewHostID()).post(ctx, "WatchOrders", silent(t)); got.StatusCode != http.StatusOK {
		t.Errorf("got %s, want that another host has its own", got.Status)
	}
}

// silent returns a body that never yields anything.
func silent(t *testing.T) io.Reader {
	body, end := io.Pipe()
	t.Cleanup(func() { _ = end.Close() })
	return body
}

func TestAHostThatAsksTooFastWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pay := gate.NewAllowance()
		begun := time.Now()
		for range gate.AtOnce {
			if err := pay(t.Context(), 10); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("a burst waits %s", took)
		}
		for range gate.PerSecond {
			if err := pay(t.Context(), 10); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begun); took < 990*time.Millisecond || took > 1010*time.Millisecond {
			t.Errorf("what comes after it takes %s, want a second", took)
		}
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := pay(short, 64<<20); croft.KindOf(err) != croft.Unavailable {
			t.Errorf("got %v for what there is never room for, want that it is refused", err)
		}
	})
}

func TestAHostBringsFewNewNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bring := gate.NewNames()
		names := func(from, n int) map[string]bool {
			all := map[string]bool{}
			for i := range n {
				all[fmt.Sprintf("CUSTOM_%d", from+i)] = true
			}
			return all
		}
		made := 0
		for range 3600 { // a host that floods for a minute
			if bring(names(made, 100)) == nil {
				made += 100
			}
			time.Sleep(time.Minute / 3600)
		}
		if made != 500 {
			t.Errorf("a host brought %d names in a minute", made)
		}
		for range 100 { // it may always repeat the names that it has
			if err := bring(names(made-100, 100)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour)
		if err := bring(names(made, 60)); err != nil {
			t.Errorf("an hour later: %v", err)
		}
		if err := bring(names(made+100, 60)); croft.KindOf(err) != croft.Unavailable {
			t.Errorf("twice so many: %v", err)
		}
	})
}

func TestAProviderHasFewCustomNames(t *testing.T) {
	c := newCloud(t)
	me := croft.NewHostID()
	agent := c.front.Client(t, me)
	p := croft.Provider{ID: me, Name: "host"}
	for i := range 65 {
		p.Traits = append(p.Traits, croft.Trait(fmt.Sprintf("CUSTOM_%d", i)))
	}
	if err := agent.EnsureProvider(t.Context(), p); croft.KindOf(err) != croft.Invalid {
		t.Errorf("with %d: %v", len(p.Traits), err)
	}
	p.Traits = p.Traits[1:]
	if err := agent.EnsureProvider(t.Context(), p); err != nil {
		t.Error(err)
	}
}

func TestWhatIsTooLargeIsRefused(t *testing.T) {
	c := newCloud(t)
	r := newRaw(t, c, croft.NewHostID())
	if got := r.post(t.Context(), "PutHost", bytes.NewReader(make([]byte,
		1<<20))); got.StatusCode != http.StatusBadRequest {
		t.Errorf("got %s for a question of 1 MiB", got.Status)
	}
	endless := r.post(t.Context(), "Serve", io.LimitReader(zeros{}, 1<<30)) // one line
	if text, _ := io.ReadAll(endless.Body); len(text) > 1<<10 {
		t.Errorf("got %d bytes, want that the stream ends", len(text))
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestAHostThatFloodsTheGateDoesNotStopOthers lets one host send as many requests as it can, on many connections, while
// another sends normal ones.
func TestAHostThatFloodsTheGateDoesNotStopOthers(t *testing.T) {
	c := newCloud(t)
	honest := c.front.Client(t, croft.NewHostID())
	if err := honest.Usable(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var flooding sync.WaitGroup
	evil := croft.NewHostID()
	for range 2 {
		r := newRaw(t, c, evil)
		for range 20 {
			flooding.Go(func() {
				for ctx.Err() == nil {
					r.flood(ctx, "HostBooks", `{"host":"`+string(evil)+`","more":["`+
						strings.Repeat(string(croft.NewInstanceID())+`","`, 1000)+string(croft.NewInstanceID())+`"]}`)
				}
			})
		}
	}
	var worst time.Duration
	for range 20 {
		begun := time.Now()
		if _,
			err := honest.Order(t.Context(), honest.Host, croft.NewInstanceID()); croft.KindOf(err) != croft.NotFound {
			t.Errorf("got %v while another host floods the gate", err)
		}
		worst = max(worst, time.Since(begun))
	}
	cancel()
	flooding.Wait()
	t.Logf("the slowest of 20 calls took %s", worst)
}

// flood is post, ignoring the result.
func (r *raw) flood(ctx context.Context, name, body string) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+r.cloud.front.Address+gate.Prefix+name,
		strings.NewReader(body))
	if err != nil {
		return
	}
	if answer, err := r.http.Do(request); err == nil {
		_, _ = io.Copy(io.Discard, answer.Body)
		_ = answer.Body.Close()
	}
}
