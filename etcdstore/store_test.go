package etcdstore_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
	"croft/hosts/audit"
)

// fixture is a store with one live host and an instance in state scheduling.
type fixture struct {
	*etcdstore.Store
	server *etcdserver.Server
	host   croft.HostID
	inst   croft.Instance
}

func (f *fixture) order(generation int64, want croft.Want) croft.Order {
	return croft.Order{
		Partition: f.Partition(), Host: f.host, Instance: f.inst.ID, Generation: generation, Want: want,
		Project: f.inst.Project, Name: f.inst.Name, Spec: f.inst.Spec,
	}
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	server := etcdtest.Server(t)
	f := &fixture{Store: etcdtest.Open(t, server), server: server, host: croft.NewHostID()}
	if err := f.Registry.PutHost(t.Context(), croft.Host{ID: f.host, Name: "h1", Token: "secret"}); err != nil {
		t.Fatal(err)
	}
	f.live(t, f.host)
	f.inst = etcdtest.Must(f.Instances.Create(t.Context(), etcdtest.NewInstance("web")))(t)
	return f
}

// live keeps a host alive until the test ends and returns once it is alive.
func (f *fixture) live(t *testing.T, host croft.HostID) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = f.Registry.StayAlive(ctx, host)
	}()
	stop = func() { cancel(); <-ended }
	t.Cleanup(stop)
	f.waitHosts(t, func(hosts map[croft.HostID]croft.Host) bool { return hosts[host].Alive })
	return stop
}

func (f *fixture) waitHosts(t *testing.T, until func(map[croft.HostID]croft.Host) bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_ = f.Instances.WatchInstances(ctx, func() {
		hosts, err := f.Registry.Hosts(ctx)
		if err == nil && until(hosts) {
			cancel()
		}
	})
	if t.Context().Err() != nil {
		t.Fatal("the hosts never came to what the test waits for")
	}
}

func TestHomeIsMintedOnceAndOnlyOnRequest(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	_, err := etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: []string{server.Endpoint()}})
	etcdtest.WantKind(t, err, croft.NotFound)
	partitions := make(chan croft.PartitionID, 8)
	for range cap(partitions) {
		go func() {
			store, err := etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: []string{server.Endpoint()},
				DialTimeout: 20 * time.Second, Mint: true})
			if err != nil {
				t.Error(err)
				partitions <- ""
				return
			}
			partitions <- store.Partition()
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		}()
	}
	first := <-partitions
	for range cap(partitions) - 1 {
		if got := <-partitions; got != first || got == "" {
			t.Errorf("got partition %q, want %q", got, first)
		}
	}
}

func TestAnUnreachableServerIsUnavailable(t *testing.T) {
	t.Parallel()
	_, err := etcdstore.Open(t.Context(), etcdstore.Config{Endpoints: []string{"http://127.0.0.1:1"},
		DialTimeout: 100 * time.Millisecond})
	etcdtest.WantKind(t, err, croft.Unavailable)
}

func TestAPortInUseIsAConflict(t *testing.T) {
	t.Parallel()
	server := etcdtest.Server(t)
	_, err := etcdserver.Start(t.Context(), etcdserver.Config{Dir: t.TempDir(),
		Listen: server.Endpoint()[len("http://"):]})
	etcdtest.WantKind(t, err, croft.Conflict)
}

func TestCreateRefusesATakenNameAndATakenID(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	_, err := f.Instances.Create(t.Context(), etcdtest.NewInstance("web"))
	etcdtest.WantKind(t, err, croft.Conflict)
	again := etcdtest.NewInstance("other")
	again.ID = f.inst.ID
	_, err = f.Instances.Create(t.Context(), again)
	etcdtest.WantKind(t, err, croft.Conflict)
	if all := etcdtest.Must(f.Instances.List(t.Context(), ""))(t); len(all) != 1 {
		t.Errorf("got %d instances, want 1: a refused Create wrote something", len(all))
	}
}

func TestAssignComparesRecordAndHost(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	silent := f.order(1, croft.WantRunning)
	silent.Host = croft.NewHostID()
	_, err := f.Instances.Assign(t.Context(), f.inst, silent)
	etcdtest.WantKind(t, err, croft.Unavailable)

	stale := f.inst
	stale.Revision--
	_, err = f.Instances.Assign(t.Context(), stale, f.order(1, croft.WantRunning))
	etcdtest.WantKind(t, err, croft.Conflict)

	got := etcdtest.Must(f.Instances.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning)))(t)
	if got.State != croft.StateScheduled || got.Host != f.host || got.Session != "" {
		t.Errorf("got %+v, want it scheduled on %s", got, f.host)
	}
	st := etcdtest.Must(f.Instances.Find(t.Context(), croft.DefaultProject, "web"))(t)
	if diff := cmp.Diff(got, st.Instance); diff != "" {
		t.Errorf("what Assign returned is not what is stored:\n%s", diff)
	}
	if st.Order == nil || st.Order.Generation != 1 || st.Host == nil || !st.Host.Alive || st.Host.Token != "secret" {
		t.Errorf("got status %+v, want its order and its live host", st)
	}
}

func TestAnInstanceLivesAndIsForgotten(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	inst := etcdtest.Must(f.Instances.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning)))(t)
	seen := croft.Observation{Host: f.host, Instance: inst.ID, Generation: 1, State: croft.StateRunning,
		Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.7")}}
	if err := f.Orders.Observe(t.Context(), seen); err != nil {
		t.Fatal(err)
	}
	st := etcdtest.Must(f.Instances.Find(t.Context(), croft.DefaultProject, string(inst.ID)))(t)
	if diff := cmp.Diff(&seen, st.Observation, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("observation:\n%s", diff)
	}
	inst = etcdtest.Must(f.Instances.Reorder(t.Context(), inst, f.order(2, croft.WantGone)))(t)
	if inst.State != croft.StateDestroying {
		t.Errorf("got state %s, want destroying", inst.State)
	}
	first := etcdtest.Must(f.Orders.Order(t.Context(), f.host, inst.ID))(t)
	if first.Want != croft.WantGone || first.Generation != 2 {
		t.Errorf("got order %+v, want the tombstone of generation 2", first)
	}
	stale := first
	stale.Revision--
	etcdtest.WantKind(t, f.Orders.Forget(t.Context(), stale), croft.Conflict)
	if err := f.Orders.Forget(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	_, err := f.Instances.Find(t.Context(), croft.DefaultProject, "web")
	etcdtest.WantKind(t, err, croft.NotFound)
	etcdtest.WantKind(t, f.Orders.Observe(t.Context(), seen), croft.Conflict)
	if _, err := f.Instances.Create(t.Context(), etcdtest.NewInstance("web")); err != nil {
		t.Errorf("the name is not free again: %v", err)
	}
}

// Observations that arrive during a write share the next one, in which each is stored if its own order exists.
func TestObservationsShareWrites(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const n = 150
	var ids []croft.InstanceID
	for i := range n {
		f.inst = etcdtest.Must(f.Instances.Create(t.Context(), etcdtest.NewInstance(fmt.Sprint("many-", i))))(t)
		ids = append(ids, f.inst.ID)
		if i%2 == 0 {
			etcdtest.Must(f.Instances.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning)))(t)
		}
	}
	first, release := make(chan struct{}), make(chan struct{})
	f.BeforeTxn(func() { close(first); <-release })
	seen := func(i int, generation int64) croft.Observation {
		return croft.Observation{Host: f.host, Instance: ids[i], Generation: generation}
	}
	var work sync.WaitGroup
	observe := func(o croft.Observation, ordered bool) {
		work.Go(func() {
			if err := f.Orders.Observe(t.Context(), o); ordered && err != nil ||
				!ordered && !errors.Is(err, croft.Conflict) {
				t.Errorf("observation of %s: %v", o.Instance, err)
			}
		})
	}
	observe(seen(0, 1), true)
	<-first
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.Orders.Observe(gone, seen(0, 2)); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller gave up: %v", err)
	}
	for i := range n {
		observe(seen(i, 3), i%2 == 0)
	}
	for f.Orders.Waiting() < n {
		runtime.Gosched()
	}
	close(release)
	work.Wait()
	revisions := map[int64]bool{}
	stored := etcdtest.Must(etcdtest.Client(t, f.server, etcdstore.Credentials{}).Get(t.Context(), "/",
		clientv3.WithPrefix()))(t)
	for _, kv := range stored.Kvs {
		if strings.Contains(string(kv.Key), "/observed/") {
			revisions[kv.ModRevision] = true
		}
	}
	if len(revisions) > 4 {
		t.Errorf("%d transactions for %d observations", len(revisions), n)
	}
	for i, id := range ids {
		got, err := f.Orders.Observed(t.Context(), f.host, id)
		if i%2 == 0 && (err != nil || got.Generation != 3) || i%2 == 1 && !errors.Is(err, croft.NotFound) {
			t.Errorf("observation %d: %+v, %v", i, got, err)
		}
	}
}

func TestAForcedEndLeavesOnlyTheTombstone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	inst := etcdtest.Must(f.Instances.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning)))(t)
	if err := f.Instances.Bury(t.Context(), inst, f.order(2, croft.WantGone)); err != nil {
		t.Fatal(err)
	}
	if all := etcdtest.Must(f.Instances.List(t.Context(), ""))(t); len(all) != 0 {
		t.Errorf("got %d instances, want none", len(all))
	}
	tombstone := etcdtest.Must(f.Orders.Order(t.Context(), f.host, inst.ID))(t)
	// The same UUID may be in use elsewhere before the host returns.
	again := etcdtest.NewInstance("web")
	again.ID = inst.ID
	etcdtest.Must(f.Instances.Create(t.Context(), again))(t)
	if err := f.Orders.Forget(t.Context(), tombstone); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Instances.Find(t.Context(), croft.DefaultProject, "web"); err != nil {
		t.Errorf("the tombstone took the new instance's record along: %v", err)
	}
}

func TestARecordIsAbandonedOnceItsSessionIsDead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	other := etcdtest.Open(t, f.server)
	begun := etcdtest.Must(other.Instances.Create(t.Context(), etcdtest.NewInstance("db")))(t)
	if found := audit.Compare(etcdtest.Must(f.Records.Evidence(t.Context()))(t)); len(found) != 0 {
		t.Fatalf("got %v, want nothing while the sessions live", found)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	found := audit.Compare(etcdtest.Must(f.Records.Evidence(t.Context()))(t))
	if len(found) != 1 || found[0].Kind != audit.AbandonedRequest || found[0].Instance != begun.ID {
		t.Fatalf("got %v, want %s abandoned", found, begun.ID)
	}
	if err := f.Instances.Discard(t.Context(), begun); err != nil {
		t.Fatal(err)
	}
	_, err := f.Instances.Assign(t.Context(), begun, f.order(1, croft.WantRunning))
	etcdtest.WantKind(t, err, croft.Conflict)
}

func TestAHostThatEndsIsNotAlive(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	second := croft.NewHostID()
	if err := f.Registry.PutHost(t.Context(), croft.Host{ID: second, Name: "h2"}); err != nil {
		t.Fatal(err)
	}
	stop := f.live(t, second)
	stop()
	f.waitHosts(t, func(hosts map[croft.HostID]croft.Host) bool {
		return len(hosts) == 2 && hosts[f.host].Alive && !hosts[second].Alive
	})
}

func TestOrdersAreListedAndFollowed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	inst := etcdtest.Must(f.Instances.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning)))(t)
	ctx, cancel := context.WithCancel(t.Context())
	woken, ended := make(chan croft.InstanceID), make(chan error)
	go func() { ended <- f.Orders.WatchOrders(ctx, f.host, func(id croft.InstanceID) { woken <- id }) }()
	for _, change := range []func(){
		func() {}, // the order that exists
		func() { inst = etcdtest.Must(f.Instances.Reorder(t.Context(), inst, f.order(2, croft.WantGone)))(t) },
		func() {
			if err := f.Orders.Forget(t.Context(), etcdtest.Must(f.Orders.Order(t.Context(), f.host,
				inst.ID))(t)); err != nil {
				t.Error(err)
			}
		},
	} {
		change()
		if got := <-woken; got != inst.ID {
			t.Fatalf("woken for %s, want %s", got, inst.ID)
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("WatchOrders ended with %v, want the context's end", err)
	}
}

func TestAnInstanceIsFollowedToItsEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var states []croft.State
	err := f.Instances.WatchInstance(t.Context(), f.inst.ID, func(st *croft.Status) bool {
		switch {
		case st == nil:
			states = append(states, "gone")
		case st.Observation != nil:
			states = append(states, st.Observation.State)
			etcdtest.Must(f.Instances.Reorder(t.Context(), st.Instance, f.order(2, croft.WantGone)))(t)
			if err := f.Orders.Forget(t.Context(), etcdtest.Must(f.Orders.Order(t.Context(), f.host,
				st.Instance.ID))(t)); err != nil {
				t.Error(err)
			}
		case st.Order != nil:
			states = append(states, st.Instance.State)
			_ = f.Orders.Observe(t.Context(), croft.Observation{Host: f.host, Instance: st.Instance.ID,
				State: croft.StateBooting})
		default:
			states = append(states, st.Instance.State)
			etcdtest.Must(f.Instances.Assign(t.Context(), st.Instance, f.order(1, croft.WantRunning)))(t)
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []croft.State{croft.StateScheduling, croft.StateScheduled, croft.StateBooting, "gone"}
	if diff := cmp.Diff(want, states); diff != "" {
		t.Errorf("states:\n%s", diff)
	}
}

// scheduled returns a fixture whose instance has an order on its host.
func scheduled(t *testing.T) *fixture {
	t.Helper()
	f := newFixture(t)
	f.inst = etcdtest.Must(f.Instances.Assign(t.Context(), f.inst, f.order(1, croft.WantRunning)))(t)
	return f
}
