package etcdstore_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
	"croft/internal/testing/patient"
	"croft/placement/ledger"
)

// TestTransactionOfPlacementThatIsSentTwiceIsDoneOnce: the comparison fails the second time, since the first
// transaction wrote what it compares.
func TestTransactionOfPlacementThatIsSentTwiceIsDoneOnce(t *testing.T) {
	t.Parallel()
	store := etcdtest.Start(t)
	p := store.Placement(0)
	key := ledger.Key{Kind: ledger.KindTrait, ID: "CUSTOM_X"}
	txn := ledger.Txn{If: []ledger.Compare{{Key: key}}, Then: []ledger.Write{{Key: key, Value: []byte("{}")}}}
	store.SendTwice()
	out := etcdtest.Must(p.Commit(t.Context(), txn))(t)
	if !out.Done {
		t.Error("a transaction that was sent twice counts as refused, although it was done")
	}
	if out := etcdtest.Must(p.Commit(t.Context(), txn))(t); out.Done {
		t.Error("another one that compares the same is done, although the comparison cannot hold")
	}
}

// TestOrderThatGoesWhileTheWatchIsBrokenIsWokenFor breaks the watch itself, as a compaction does. After a broken
// connection etcd would resend the missed events.
func TestOrderThatGoesWhileTheWatchIsBrokenIsWokenFor(t *testing.T) {
	t.Parallel()
	f := scheduled(t)
	agent := etcdtest.Open(t, f.server)
	var once sync.Once
	broken := make(chan clientv3.WatchResponse)
	began := make(chan struct{})
	agent.WatchThrough(func(ctx context.Context, own clientv3.Watcher, key string,
		opts ...clientv3.OpOption) (watch clientv3.WatchChan) {
		first := false
		once.Do(func() { first = true })
		if first {
			close(began)
			return broken
		}
		return own.Watch(ctx, key, opts...)
	})
	woken := make(chan croft.InstanceID, 100)
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() { _ = agent.Orders.WatchOrders(ctx, f.host, func(id croft.InstanceID) { woken <- id }) })
	defer func() { cancel(); work.Wait() }()
	<-began
	<-woken // the order exists
	f.inst = etcdtest.Must(f.Instances.Reorder(t.Context(), f.inst, f.order(2, croft.WantGone)))(t)
	if err := f.Orders.Forget(t.Context(), etcdtest.Must(f.Orders.Order(t.Context(), f.host,
		f.inst.ID))(t)); err != nil {
		t.Fatal(err)
	}
	close(broken)
	select {
	case id := <-woken:
		if id != f.inst.ID {
			t.Errorf("woken for %s, want %s", id, f.inst.ID)
		}
	case <-patient.Context(t).Done():
		t.Fatal("nobody is woken for an order that went while the watch was broken")
	}
}

// TestPagesOfPlacementAreOfOneMoment writes two entries of different pages in one transaction, between the
// reads of these pages.
func TestPagesOfPlacementAreOfOneMoment(t *testing.T) {
	t.Parallel()
	store := etcdtest.Start(t)
	p := store.Placement(0)
	key := func(n int) ledger.Key {
		return ledger.Key{Kind: ledger.KindTrait, ID: fmt.Sprintf("CUSTOM_%05d", n)}
	}
	write := func(value string, keys ...int) {
		var txn ledger.Txn
		for _, n := range keys {
			txn.Then = append(txn.Then, ledger.Write{Key: key(n), Value: []byte(value)})
		}
		if out := etcdtest.Must(p.Commit(t.Context(), txn))(t); !out.Done {
			t.Fatal("not written")
		}
	}
	const last = etcdstore.LoadPage + 10
	for from := 0; from <= last; from += p.Limit() {
		var keys []int
		for n := from; n <= min(last, from+p.Limit()-1); n++ {
			keys = append(keys, n)
		}
		write("before", keys...)
	}
	store.BeforeSecondGet(func() { write("after", 0, last, last+1) })
	all := etcdtest.Must(p.Load(t.Context()))(t)
	if len(all.Entries) != last+1 {
		t.Errorf("%d entries, want the %d of the first page's moment", len(all.Entries), last+1)
	}
	for _, e := range all.Entries {
		if string(e.Value) != "before" || e.Modified > all.Revision {
			t.Errorf("%s is %q of revision %d, in a state of revision %d", e.Key.ID, e.Value, e.Modified, all.Revision)
		}
	}
}
