package placementclient_test

import (
	"bytes"
	"context"
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
	"croft/etcdstore/etcdtest"
	"croft/internal/testing/badserver"
	"croft/internal/testing/placementoracle"
	"croft/placement"
	"croft/placement/ledger"
	"croft/placementclient"
	"croft/placementclient/placementtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs our own server on a new etcd and returns its address.
func serve(t *testing.T) string {
	t.Helper()
	return serveOn(t, etcdtest.Start(t).Placement(0))
}

// serveOn runs our own server on a store and returns its address.
func serveOn(t testing.TB, store ledger.Store) string {
	t.Helper()
	server, err := placement.New(placement.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	if err := server.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(server.Handler())
	t.Cleanup(func() {
		web.Close()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return web.URL
}

func TestContractOfOurServer(t *testing.T) {
	placementtest.Run(t, serve(t), placementtest.Options{})
}

func TestContractOfOpenStack(t *testing.T) {
	// SQLite locks its whole file: concurrent writers get errors unrelated to the client.
	placementtest.Run(t, placementoracle.Start(t), placementtest.Options{Serial: true})
}

// A claim of the previous version counts for the project only: it is counted as before, and can be released or moved
// like any other claim, after which it counts for the project of the partition.
func TestAClaimOfThePreviousVersion(t *testing.T) {
	for name, start := range map[string]func(*testing.T) string{
		"ours":        serve,
		"OpenStack's": func(t *testing.T) string { return placementoracle.Start(t) },
	} {
		t.Run(name, func(t *testing.T) {
			url := start(t)
			client, err := placementclient.New(placementclient.Config{Endpoint: url})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(client.Close)
			p := croft.Provider{ID: croft.NewHostID(), Name: "host1",
				Inventories: map[croft.ResourceClass]croft.Inventory{
					croft.VCPU: {Total: 4, MinUnit: 1, MaxUnit: 4, StepSize: 1, AllocationRatio: 1}}}
			if err := client.EnsureProvider(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			moved, ended := croft.NewInstanceID(), croft.NewInstanceID()
			for _, id := range []croft.InstanceID{moved, ended} {
				claimAsBefore(t, url, id, p.ID)
			}
			owner := croft.Owner{Partition: croft.NewPartitionID(), Project: "lab"}
			had, err := client.ClaimOf(t.Context(), moved)
			if err == nil {
				err = client.Reclaim(t.Context(), had, owner,
					croft.Candidate{Allocations: map[croft.HostID]croft.Resources{p.ID: {croft.VCPU: 2}}})
			}
			if err != nil {
				t.Fatal(err)
			}
			if used, err := client.Usage(t.Context(), owner); err != nil || used[croft.VCPU] != 2 {
				t.Errorf("after a move, the project of the partition uses %v, %v", used, err)
			}
			if err := client.Release(t.Context(), ended, croft.On(p.ID)); err != nil {
				t.Error(err)
			}
			claims, err := client.Claims(t.Context(), p.ID)
			if err != nil || len(claims) != 1 || claims[moved][croft.VCPU] != 2 {
				t.Errorf("in the end there are the claims %v, %v", claims, err)
			}
		})
	}
}

// claimAsBefore claims a VCPU like a program of the previous version.
func claimAsBefore(t *testing.T, url string, id croft.InstanceID, host croft.HostID) {
	t.Helper()
	client, err := placementclient.New(placementclient.Config{Endpoint: url, Transport: former{}})
	if err == nil {
		err = client.Claim(t.Context(), id, croft.Owner{Project: "lab"},
			croft.Candidate{Allocations: map[croft.HostID]croft.Resources{host: {croft.VCPU: 1}}})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// former sends claims that count for a project only.
type former struct{}

func (former) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPut {
		text, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		now := []byte(`"project_id":"/lab"`)
		if !bytes.Contains(text, now) {
			return nil, errors.New("the claim does not say whom it counts for")
		}
		text = bytes.Replace(text, now, []byte(`"project_id":"lab"`), 1)
		r = r.Clone(r.Context())
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	}
	return http.DefaultTransport.RoundTrip(r)
}

// answering is a server that gives the answers in order, then repeats the last one.
func answering(t *testing.T, answers ...func(http.ResponseWriter, *http.Request)) (*placementclient.Client,
	*atomic.Int64) {
	t.Helper()
	var n atomic.Int64
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answers[min(int(n.Add(1)), len(answers))-1](w, r)
	}))
	t.Cleanup(web.Close)
	client, err := placementclient.New(placementclient.Config{Endpoint: web.URL, Attempts: 4, Pause: time.Microsecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client, &n
}

func answer(status int, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Openstack-Request-Id", "req-of-the-server")
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

const (
	concurrent = `{"errors": [{"status": 409, "detail": "There was a conflict.\n\n slower than another  ", "code": "placement.concurrent_update"}]}`
	exceeded   = `{"errors": [{"status": 409, "detail": "There was a conflict.\n\n would exceed the capacity  ", "code": "placement.undefined_code"}]}`
	nothing    = `{"allocations": {}}`
)

func TestClaimErrors(t *testing.T) {
	candidate := croft.Candidate{Allocations: map[croft.HostID]croft.Resources{
		"7d5e2e4e-68ae-4b5c-8f9e-000000000001": {croft.VCPU: 1},
	}}
	for name, test := range map[string]struct {
		answers []func(http.ResponseWriter, *http.Request)
		kind    croft.Kind
		calls   int64
	}{
		"a concurrent update is tried again": {[]func(http.ResponseWriter, *http.Request){answer(409, concurrent),
			answer(200, nothing), answer(204, "")}, "", 3},
		"a full host is not": {[]func(http.ResponseWriter, *http.Request){answer(409, exceeded)},
			croft.NoCapacity, 1},
		"a bad request is not": {[]func(http.ResponseWriter, *http.Request){answer(400, `{}`)}, croft.Invalid,
			2}, // it looks whether the host is there
		"503 is tried again": {[]func(http.ResponseWriter, *http.Request){answer(503, ""), answer(503, ""),
			answer(204, "")}, "", 3},
		"503 for ever is unavailable": {[]func(http.ResponseWriter, *http.Request){answer(503, "")},
			croft.Unavailable, 4},
		"a refused token is our fault": {[]func(http.ResponseWriter, *http.Request){answer(401, "")}, croft.Invalid, 1},
		"a claim that is there although it was a conflict": {[]func(http.ResponseWriter, *http.Request){answer(503, ""),
			answer(409, concurrent), answer(200, `{"allocations":
				{"7d5e2e4e-68ae-4b5c-8f9e-000000000001": {"resources": {"VCPU": 1}}}, "consumer_generation": 1}`),
			answer(204, "")}, "", 4}, // written a second time
		"a claim of another's making is a conflict": {[]func(http.ResponseWriter,
			*http.Request){answer(409, concurrent),
			answer(200, `{"allocations": {"7d5e2e4e-68ae-4b5c-8f9e-000000000001": {"resources": {"VCPU": 2}}}}`)},
			croft.Conflict, 2},
	} {
		t.Run(name, func(t *testing.T) {
			client, calls := answering(t, test.answers...)
			err := client.Claim(t.Context(), croft.NewInstanceID(), croft.Owner{Project: "p"}, candidate)
			if got := croft.KindOf(err); got != test.kind {
				t.Errorf("got %v of kind %q, want %q", err, got, test.kind)
			}
			if calls.Load() != test.calls {
				t.Errorf("%d requests, want %d", calls.Load(), test.calls)
			}
			if test.kind == croft.NoCapacity && !strings.Contains(err.Error(), "req-of-the-server") {
				t.Errorf("%q does not name the request", err)
			}
		})
	}
}

func TestMicroversionGoesDownToWhatTheServerHas(t *testing.T) {
	var bodies []string
	client, _ := answering(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("OpenStack-API-Version") == "placement 1.39" {
			answer(406, `{"errors": [{"status": 406, "detail": "no", "max_version": "1.36", "min_version": "1.0"}]}`)(w,
				r)
			return
		}
		buf := make([]byte, 4096)
		n, _ := r.Body.Read(buf)
		bodies = append(bodies, r.Header.Get("OpenStack-API-Version")+" "+string(buf[:n]))
		answer(204, "")(w, r)
	})
	owner := croft.Owner{Partition: "7d5e2e4e-68ae-4b5c-8f9e-000000000003", Project: "p"}
	if err := client.Claim(t.Context(), croft.NewInstanceID(), owner, croft.Candidate{}); err != nil {
		t.Fatal(err)
	}
	if want := `placement 1.36 {"allocations":{},"project_id":"7d5e2e4e-68ae-4b5c-8f9e-000000000003/p","user_id":"p","consumer_generation":null}`; len(
		bodies) != 1 || bodies[0] != want {
		t.Errorf("got %q, want %q", bodies, want)
	}
}

func TestServerTooOld(t *testing.T) {
	client,
		_ := answering(t,
		answer(406, `{"errors": [{"status": 406, "detail": "no", "max_version": "1.10", "min_version": "1.0"}]}`))
	if _, err := client.Candidates(t.Context(), "resources=VCPU:1", 1); !errors.Is(err,
		croft.Invalid) || !strings.Contains(err.Error(), "1.29") {
		t.Errorf("got %v, want an error that names what is needed", err)
	}
}

// counter counts the requests sent through it.
type counter struct{ atomic.Int64 }

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.Add(1)
	return http.DefaultTransport.RoundTrip(r)
}

func TestUnreachable(t *testing.T) {
	web := httptest.NewServer(nil)
	web.Close()
	calls := new(counter)
	client, err := placementclient.New(placementclient.Config{Endpoint: web.URL, Attempts: 6, Pause: time.Microsecond,
		Transport: calls})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	_, err = client.Candidates(t.Context(), "resources=VCPU:1", 1)
	if calls.Load() != 3 {
		t.Errorf("it was tried %d times, want half as often as where something answers", calls.Load())
	}
	if !errors.Is(err, croft.Unavailable) || !strings.Contains(err.Error(), web.URL) || !strings.Contains(err.Error(),
		"placement.endpoint") {
		t.Errorf("got %v, want unavailable, the endpoint and what to do", err)
	}
}

// If Placement fails, callers get an error that says a retry may succeed.
func TestAPlacementThatDies(t *testing.T) {
	for name, address := range badserver.All(t, false) {
		client, err := placementclient.New(placementclient.Config{Endpoint: "http://" + address, Attempts: 2, Pause: 1})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Providers(t.Context()); croft.KindOf(err) != croft.Unavailable {
			t.Errorf("%s: got %v of kind %q, want Unavailable", name, err, croft.KindOf(err))
		}
		client.Close()
	}
}
