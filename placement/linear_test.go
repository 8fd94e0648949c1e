package placement_test

import (
	"context"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
	"croft/internal/testing/placementcheck"
	"croft/internal/testing/wire"
	"croft/placement"
)

// member is one of several servers on one etcd, with connections that can break.
type member struct {
	t       *testing.T
	config  placement.Config
	etcd    *wire.Wire // connection to etcd
	http    *wire.Wire // connection from clients
	handler atomic.Pointer[http.Handler]
	stop    func()
}

// join starts another server on an etcd. It ends with the test.
func join(t *testing.T, server *etcdserver.Server, c placement.Config) *member {
	t.Helper()
	m := &member{t: t, etcd: wire.New(t, strings.TrimPrefix(server.Endpoint(), "http://"))}
	store, err := etcdstore.Open(t.Context(), etcdstore.Config{
		Endpoints: []string{"http://" + m.etcd.Address()}, DialTimeout: 20 * time.Second, Mint: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	m.config = c
	m.config.Store = store.Placement(etcdserver.TxnOps)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		r *http.Request) {
		(*m.handler.Load()).ServeHTTP(w, r)
	}))
	t.Cleanup(web.Close)
	m.http = wire.New(t, web.Listener.Addr().String())
	m.start()
	t.Cleanup(func() { m.stop() })
	return m
}

func (m *member) url() string { return "http://" + m.http.Address() }

// start runs the server with an empty memory.
func (m *member) start() {
	m.t.Helper()
	server, err := placement.New(m.config)
	if err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(m.t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	handler := server.Handler()
	m.handler.Store(&handler)
	m.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			m.t.Error(err)
		}
	}
	if err := server.WaitReady(m.t.Context()); err != nil {
		m.t.Error(err)
	}
}

// soak is the duration of checks with random faults: CROFT_SOAK, or the shortest that is useful.
func soak(t *testing.T) time.Duration {
	text := os.Getenv("CROFT_SOAK")
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("CROFT_SOAK: %v", err)
	}
	return d
}

// Three servers on one etcd lose their clients, their etcd and their processes while 64 clients claim, move, release
// and read. All answers must be consistent with one sequential order.
func TestServersBehaveLikeOne(t *testing.T) {
	end := time.Now().Add(soak(t))
	for again := true; again; again = time.Now().Before(end) {
		behaveLikeOne(t, rand.Uint64())
		if t.Failed() {
			return
		}
	}
}

func behaveLikeOne(t *testing.T, seed uint64) {
	t.Logf("sampled: seed %d", seed)
	etcd := etcdtest.Server(t)
	var members []*member
	var servers []string
	for range 3 {
		m := join(t, etcd, placement.Config{Patience: time.Second})
		members, servers = append(members, m), append(servers, m.url())
	}
	check, err := placementcheck.New(t.Context(), placementcheck.Config{Servers: servers, Token: "admin", Seed: seed})
	if err != nil {
		t.Fatal(err)
	}
	var chaos sync.WaitGroup
	chaos.Go(func() { breakThings(check, members, rand.New(rand.NewPCG(seed, 0))) })
	check.Run(t.Context(), 60)
	chaos.Wait()
	for _, m := range members {
		m.awaitReady()
	}
	t.Log(check)
	if err := check.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	if check.Done() < 1000 {
		t.Errorf("only %d requests were done: that shows little", check.Done())
	}
}

// breakThings breaks one thing at a time, as long as the check runs.
func breakThings(check *placementcheck.Check, members []*member, r *rand.Rand) {
	for check.Await(100 + r.IntN(100)) {
		m := members[r.IntN(len(members))]
		switch r.IntN(4) {
		case 0: // killed and started again
			m.http.Cut()
			m.stop()
			check.Await(50)
			m.start()
			m.http.Mend()
		case 1: // clients lose their answers
			m.http.Drop()
		case 2: // requests to etcd, or its answers, are lost
			m.etcd.Cut()
			check.Await(50)
			m.etcd.Mend()
		case 3: // etcd is silent for a while
			m.etcd.Hold()
			check.Await(30)
			m.etcd.Flow()
		}
	}
}

// awaitReady returns once the server serves again.
func (m *member) awaitReady() {
	for {
		r := httptest.NewRecorder()
		(*m.handler.Load()).ServeHTTP(r, httptest.NewRequestWithContext(m.t.Context(), "GET", "/readyz", nil))
		if r.Code == http.StatusOK || m.t.Context().Err() != nil {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
}
