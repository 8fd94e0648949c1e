package system

import (
	"context"
	"flag"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"croft/etcdstore"
	"croft/internal/testing/placementoracle"
	"croft/placement"
	"croft/placement/ledger"
	"croft/placementclient"
)

// placementStore is a Placement's view of etcd, through its gate. Reads of the revision are not crossings.
type placementStore struct {
	gate *gate
	ledger.Store
}

func (p *placementStore) Load(ctx context.Context) (ledger.Snapshot, error) {
	return through(p.gate, "placement Load", "", func() (ledger.Snapshot, error) { return p.Store.Load(ctx) })
}

func (p *placementStore) Commit(ctx context.Context, t ledger.Txn) (ledger.Outcome, error) {
	if len(t.Then) == 0 {
		return p.Store.Commit(ctx, t)
	}
	return through(p.gate, "placement "+purpose(t), "", func() (ledger.Outcome,
		error) {
		return p.Store.Commit(ctx, t)
	})
}

// purpose names a transaction after its most important effect.
func purpose(t ledger.Txn) string {
	what := "Describe" // hosts
	for _, w := range t.Then {
		if w.Kind != ledger.KindConsumer {
			continue
		}
		if w.Delete {
			return "Release"
		}
		what = "Move"
		for _, c := range t.If {
			if c.Key == w.Key && c.Revision == 0 {
				what = "Claim"
			}
		}
	}
	return what
}

// placementProcess is one process that serves Placement.
type placementProcess struct {
	gate    *gate
	handler http.Handler
	end     func()
}

var originalFlag = flag.Bool("original", false, "random runs use OpenStack's Placement")

// beforeOriginal returns a process that passes requests on to OpenStack's Placement, whose database outlives it.
func (w *world) beforeOriginal(last int) (*placementProcess, error) {
	target, err := url.Parse(w.original)
	if err != nil {
		return nil, err
	}
	pass := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Header.Set("X-Auth-Token", "admin")
	}, ErrorLog: log.New(io.Discard, "", 0)}
	return &placementProcess{gate: w.gate(last), handler: pass, end: func() {}}, nil
}

// newPlacement starts a process. last: as for gate.
func (w *world) newPlacement(last int) (*placementProcess, error) {
	if w.original != "" {
		return w.beforeOriginal(last)
	}
	ctx := context.WithoutCancel(w.t.Context())
	store, err := etcdstore.Open(ctx, etcdstore.Config{Endpoints: []string{"http://" + w.listen},
		DialTimeout: 10 * time.Second, Mint: true})
	if err != nil {
		return nil, err
	}
	g := w.gate(last)
	server, err := placement.New(placement.Config{Store: &placementStore{g, store.Placement(0)},
		Log: slog.New(slog.DiscardHandler), Retry: 20 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	work.Go(func() { _ = server.Run(ctx) })
	return &placementProcess{gate: g, handler: server.Handler(), end: func() {
		cancel()
		work.Wait()
		g.late.Wait()
		_ = store.Close()
	}}, nil
}

// startPlacement serves Placement until the test ends. If its process dies, another one replaces it at the next
// request, as under systemd.
func (w *world) startPlacement() {
	if *originalFlag {
		w.original = placementoracle.Start(w.t)
	}
	var err error
	if w.placement, err = w.newPlacement(0); err != nil {
		w.t.Fatal(err)
	}
	front := httptest.NewServer(http.HandlerFunc(w.servePlacement))
	w.t.Cleanup(func() { front.Close(); w.placement.end() })
	w.claims, err = placementclient.New(placementclient.Config{Endpoint: front.URL, Attempts: 4,
		Pause: time.Millisecond})
	if err != nil {
		w.t.Fatal(err)
	}
}

// servePlacement lets the process answer. Answers of a dead process are dropped.
func (w *world) servePlacement(rw http.ResponseWriter, r *http.Request) {
	if w.placementDown.Load() {
		http.Error(rw, "down", http.StatusServiceUnavailable)
		return
	}
	p, err := w.livePlacement()
	if err != nil {
		http.Error(rw, err.Error(), http.StatusServiceUnavailable)
		return
	}
	answer := httptest.NewRecorder()
	p.handler.ServeHTTP(answer, r)
	if p.gate.cross("before placement answers "+r.Method, "") != nil {
		panic(http.ErrAbortHandler)
	}
	for key, values := range answer.Header() {
		rw.Header()[key] = values
	}
	rw.WriteHeader(answer.Code)
	_, _ = rw.Write(answer.Body.Bytes())
}

// livePlacement returns the process that serves now.
func (w *world) livePlacement() (*placementProcess, error) {
	w.placing.Lock()
	defer w.placing.Unlock()
	if !w.placement.gate.isDead() {
		return w.placement, nil
	}
	next, err := w.newPlacement(w.placementLife())
	if err != nil {
		return nil, err
	}
	w.placement.end()
	w.placement = next
	w.tally.add("Placement was restarted")
	return next, nil
}

// placementLife returns how many crossings the next Placement process lives: many, so that it serves for some time.
func (w *world) placementLife() int {
	n := w.calls.Add(1)
	if w.faulty == 0 || w.calmed.Load() || n%2 == 0 {
		return 0
	}
	return 50 + int((w.seed+n*7919)%500)
}

// killPlacement ends the process as kill -9 does.
func (w *world) killPlacement() {
	w.placing.Lock()
	defer w.placing.Unlock()
	w.placement.gate.die()
}
