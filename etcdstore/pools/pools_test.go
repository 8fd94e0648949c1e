package pools_test

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
	"croft/pool"
	"croft/pool/pooltest"
)

func TestStoreKeepsTheContractOfPools(t *testing.T) {
	t.Parallel()
	pooltest.TestStore(t, func(t *testing.T) (func() pool.Store, func()) {
		server := etcdtest.Server(t)
		first := etcdtest.Open(t, server)
		lose := func() {
			if err := etcdtest.Delete(t.Context(), server.Endpoint(), first.Partition(), "pools/leader"); err != nil {
				t.Error(err)
			}
		}
		return func() pool.Store { return etcdtest.Open(t, server).Pools }, lose
	})
}

// A killed server that returns to its directory need not wait for its own lease to expire.
func TestAServerTakesOverFromItsPlace(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	first, second := etcdtest.Open(t, server), etcdtest.Open(t, server)
	began, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- first.Pools.Lead(t.Context(), pool.Server{Name: "one", Directory: "here"},
			func(ctx context.Context, _ pool.Term) error {
				close(began)
				<-ctx.Done()
				return nil
			})
	}()
	<-began
	// The first server keeps its lease alive, so waiting for its expiry would never end.
	if err := second.Pools.Lead(t.Context(), pool.Server{Name: "one", Directory: "here"},
		func(context.Context, pool.Term) error { return nil }); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A batch that exceeds one transaction is written in an order from which the next server can continue if this one dies
// in between: a record before the records that refer to it, and the end of a ticket before its resource is reassigned.
func TestABatchOfSeveralTransactionsIsWrittenInItsOrder(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	store := etcdtest.Open(t, server)
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint()}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	prefix := "/croft/" + string(store.Partition()) + "/pools/"
	watching, end := context.WithCancel(t.Context())
	defer end()
	// Start it before the writes, because the history of a server that tests share may be compacted at any time.
	answers := etcd.Watch(watching, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-answers
	large := strings.Repeat("x", 700<<10) // no two in one transaction
	if err := store.Pools.Lead(t.Context(), pool.Server{Name: "one"}, func(ctx context.Context, term pool.Term) error {
		if err := term.Commit(ctx, pool.Batch{
			Pools:     []pool.Record{{Settings: pool.Settings{Name: "gone"}}},
			Resources: []pool.Resource{{ID: 90, Pool: "gone"}}, Tickets: []pool.Ticket{{ID: 90}},
		}); err != nil {
			return err
		}
		b := pool.Batch{
			Head:      &pool.Head{Ticket: 3, Resource: 2},
			Pools:     []pool.Record{{Settings: pool.Settings{Name: "p", Commands: pool.Commands{New: large}}}},
			Resources: []pool.Resource{{ID: 1, Pool: "p", Ticket: 2, Reason: large}},
			Tickets: []pool.Ticket{
				{ID: 2, State: pool.TicketOpen, Resource: 1, Sandbox: large},
				{ID: 1, State: pool.TicketClosed, Sandbox: large},
				{ID: 3, State: pool.TicketFailed, Sandbox: large},
			},
			GoneTickets: []pool.TicketID{90}, GoneResources: []pool.ResourceID{90}, GonePools: []pool.Name{"gone"},
		}
		for id := range etcdserver.TxnOps { // these do not exist: they fill transactions
			b.GoneTickets = append(b.GoneTickets, pool.TicketID(id+1000))
			b.GoneResources = append(b.GoneResources, pool.ResourceID(id+1000))
		}
		return term.Commit(ctx, b)
	}); err != nil {
		t.Fatal(err)
	}
	var order []string // the keys of each transaction
	for answer := range answers {
		if err := answer.Err(); err != nil {
			t.Fatal(err)
		}
		last := int64(0)
		for _, event := range answer.Events {
			key := strings.TrimPrefix(string(event.Kv.Key), prefix)
			if event.Type == clientv3.EventTypeDelete {
				key = "no " + key
			}
			if key == "no leader" { // the lead has ended
				end()
				continue
			}
			if event.Kv.ModRevision == last {
				order[len(order)-1] += ", " + key
			} else {
				order = append(order, key)
			}
			last = event.Kv.ModRevision
		}
	}
	want := []string{
		// the first transactions
		"leader", "head, pools/gone, tickets/0000000000000090, resources/0000000000000090",
		"head, pools/p", "head, tickets/0000000000000001", "head, tickets/0000000000000003",
		"head, resources/0000000000000001", "head, tickets/0000000000000002, no tickets/0000000000000090",
		"head, no resources/0000000000000090", "head, no pools/gone",
	}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Error(diff)
	}
}
