package etcdstore_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
	"croft/internal/testing/patient"
	"croft/placement/ledger"
)

// proxy stands in front of a member and can freeze: it keeps its connections, accepts others, and forwards
// nothing.
type proxy struct {
	net.Listener
	to   string
	work sync.WaitGroup

	mu     sync.Mutex
	thaw   chan struct{} // closed while not frozen
	frozen bool
	open   []net.Conn
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: l, to: to, thaw: make(chan struct{})}
	close(p.thaw)
	p.work.Go(p.serve)
	t.Cleanup(p.end)
	return p
}

func (p *proxy) serve() {
	for {
		in, err := p.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.to)
		if err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		p.open = append(p.open, in, out)
		p.mu.Unlock()
		p.work.Go(func() { p.pass(in, out) })
		p.work.Go(func() { p.pass(out, in) })
	}
}

func (p *proxy) pass(to, from net.Conn) {
	defer to.Close()
	b := make([]byte, 32<<10)
	for {
		n, err := from.Read(b)
		p.mu.Lock()
		thaw := p.thaw
		p.mu.Unlock()
		<-thaw
		if _, failed := to.Write(b[:n]); failed != nil || err != nil {
			return
		}
	}
}

func (p *proxy) freeze() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen, p.thaw = true, make(chan struct{})
}

func (p *proxy) melt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.frozen {
		close(p.thaw)
		p.frozen = false
	}
}

func (p *proxy) end() {
	p.melt()
	_ = p.Close()
	p.mu.Lock()
	for _, c := range p.open {
		_ = c.Close()
	}
	p.mu.Unlock()
	p.work.Wait()
}

// Whichever member hangs, watches, leases and requests continue at another one, even without gRPC's keepalive.
func TestAMemberThatHangsIsLeft(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartCluster(t, 3)
	var proxies []*proxy
	var endpoints []string
	for _, m := range c.Members {
		p := newProxy(t, strings.TrimPrefix(m.Clients[0], "http://"))
		proxies = append(proxies, p)
		endpoints = append(endpoints, "http://"+p.Addr().String())
	}
	store := etcdtest.Must(etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: endpoints,
		DialTimeout: time.Minute}.WithoutKeepalive()))(t)
	defer store.Close()
	direct := c.Open(t, 0)

	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	defer work.Wait()
	defer cancel()
	h := croft.Host{ID: croft.NewHostID(), Name: "one"}
	if err := direct.Registry.PutHost(t.Context(), h); err != nil {
		t.Fatal(err)
	}
	work.Go(func() { _ = store.Registry.StayAlive(ctx, h.ID) })
	alive := func() bool {
		hosts, err := direct.Registry.Hosts(t.Context(), h.ID)
		return err == nil && hosts[h.ID].Alive
	}
	patient.Until(t, "the host is alive", alive)
	kept := store.Placement(0)
	seen := make(chan int64, 100)
	from := etcdtest.Must(kept.Load(t.Context()))(t)
	work.Go(func() {
		_ = kept.Watch(ctx, from.Revision, func(revision int64, _ []ledger.Entry) { seen <- revision })
	})

	for i, p := range proxies {
		// Only this store's connection is frozen: the members continue, and there is no election.
		p.freeze()
		done := etcdtest.Must(direct.Placement(0).Commit(t.Context(),
			ledger.Txn{Then: []ledger.Write{{Key: ledger.Key{Kind: "test", ID: "x"}, Value: []byte("{}")}}}))(t)
		for revision := int64(0); revision < done.Revision; {
			select {
			case revision = <-seen:
			case <-t.Context().Done():
				t.Fatalf("member %d hangs, and the watch with it", i)
			}
		}
		for range 2 * len(proxies) { // the proxies take turns
			patient.Until(t, "a request is answered", func() bool {
				_, err := store.Instances.Create(t.Context(),
					etcdtest.NewInstance("web-"+string(croft.NewInstanceID())))
				return err == nil
			})
		}
		patient.Until(t, "the host is alive", alive)
		p.melt()
	}
}

// A connection whose answer is overdue is kept if its member answers on other connections.
func TestAMemberThatOwesNoAnswerIsKept(t *testing.T) {
	t.Parallel()
	c := etcdtest.StartCluster(t, 2)
	store := c.OpenAll(t)
	before := etcdtest.Must(store.Cluster.Served(t.Context()))(t)
	if len(before) != 2 {
		t.Fatalf("%d serve", len(before))
	}
	store.OweAnswers()
	patient.Until(t, "they are excused", func() bool { return store.Owing() == 0 })
	if n := store.Hung(); n != 0 {
		t.Errorf("%g connections were closed", n)
	}
}
