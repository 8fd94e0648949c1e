package etcdtest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
)

// TestMemoryIsLikeAServer runs one contract against an etcd in memory and against a server in this process.
func TestMemoryIsLikeAServer(t *testing.T) {
	contract := map[string]func(t *testing.T, etcd *clientv3.Client){
		"a read returns keys of its range in order":                       ranges,
		"a read at a revision returns the values of that time":            revisions,
		"a read of compacted or future revisions is refused":              compaction,
		"a transaction is carried out only if all its comparisons hold":   transactions,
		"a transaction that writes a key twice or is too long is refused": refusals,
		"a watch delivers changes with the values before them":            watches,
		"a watch starts at an old revision":                               oldWatches,
		"a watch of a compacted revision ends and says so":                compactedWatches,
		"a watch reports progress on request":                             progress,
		"many watches that end at once do not stop others":                manyWatches,
		"a lease that is revoked takes its keys along":                    revocation,
		"a lease that is kept alive lasts longer than its time":           keptAlive,
		"an operation with an unknown lease is refused":                   unknownLeases,
	}
	for name, kept := range contract {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("by a server", func(t *testing.T) {
				etcd := etcdtest.Server(t).Client()
				defer etcd.Close()
				kept(t, etcd)
			})
			t.Run("in memory", func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					etcd := etcdtest.NewMemory(t).Client()
					defer etcd.Close()
					kept(t, etcd)
				})
			})
		})
	}
}

func must[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T { return etcdtest.Must(v, err)(t) }
}

// keys returns keys with their values and versions.
func keys(got *clientv3.GetResponse) string {
	var all []string
	for _, kv := range got.Kvs {
		all = append(all, fmt.Sprintf("%s=%s:%d", kv.Key, kv.Value, kv.Version))
	}
	return strings.Join(all, " ")
}

func put(t *testing.T, etcd *clientv3.Client, key, value string, opts ...clientv3.OpOption) int64 {
	t.Helper()
	return must(etcd.Put(t.Context(), key, value, opts...))(t).Header.Revision
}

func want(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func wantErr(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(rpctypes.Error(got), want) {
		t.Errorf("got error %v, want %v", got, want)
	}
}

func ranges(t *testing.T, etcd *clientv3.Client) {
	for _, key := range []string{"b/2", "a", "b/1", "b/3", "c"} {
		put(t, etcd, key, "v"+key)
	}
	put(t, etcd, "b/1", "new")
	get := func(key string, opts ...clientv3.OpOption) *clientv3.GetResponse {
		return must(etcd.Get(t.Context(), key, opts...))(t)
	}
	want(t, keys(get("a")), "a=va:1")
	want(t, keys(get("x")), "")
	want(t, keys(get("b/", clientv3.WithPrefix())), "b/1=new:2 b/2=vb/2:1 b/3=vb/3:1")
	want(t, keys(get("b/3", clientv3.WithFromKey())), "b/3=vb/3:1 c=vc:1")
	some := get("b/", clientv3.WithPrefix(), clientv3.WithLimit(2))
	want(t, fmt.Sprint(keys(some), some.More, some.Count), "b/1=new:2 b/2=vb/2:1true 3")
	want(t, fmt.Sprint(get("b/", clientv3.WithPrefix(), clientv3.WithCountOnly()).Count), "3")
	newest := get("b/", clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(1),
		clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend))
	want(t, keys(newest), "b/1=:2")
	want(t, keys(get("b/", clientv3.WithPrefix(), clientv3.WithMinModRev(newest.Kvs[0].ModRevision))), "b/1=new:2")
}

func revisions(t *testing.T, etcd *clientv3.Client) {
	first := put(t, etcd, "a", "1")
	if second := put(t, etcd, "a", "2"); second != first+1 {
		t.Errorf("revisions %d and %d", first, second)
	}
	removed := must(etcd.Delete(t.Context(), "a", clientv3.WithPrevKV()))(t)
	want(t, fmt.Sprint(removed.Deleted, string(removed.PrevKvs[0].Value)), "12")
	want(t, keys(must(etcd.Get(t.Context(), "a", clientv3.WithRev(first)))(t)), "a=1:1")
	want(t, keys(must(etcd.Get(t.Context(), "a", clientv3.WithRev(first+1)))(t)), "a=2:2")
	want(t, keys(must(etcd.Get(t.Context(), "a"))(t)), "")
	again := put(t, etcd, "a", "3")
	got := must(etcd.Get(t.Context(), "a"))(t).Kvs[0]
	if got.CreateRevision != again || got.Version != 1 {
		t.Errorf("a key that was removed and written again at %d is %v", again, got)
	}
}

func compaction(t *testing.T, etcd *clientv3.Client) {
	first := put(t, etcd, "a", "1")
	second := put(t, etcd, "a", "2")
	must(etcd.Compact(t.Context(), second))(t)
	_, err := etcd.Get(t.Context(), "a", clientv3.WithRev(first))
	wantErr(t, err, rpctypes.ErrCompacted)
	want(t, keys(must(etcd.Get(t.Context(), "a", clientv3.WithRev(second)))(t)), "a=2:2")
	_, err = etcd.Get(t.Context(), "a", clientv3.WithRev(second+1))
	wantErr(t, err, rpctypes.ErrFutureRev)
	_, err = etcd.Compact(t.Context(), second)
	wantErr(t, err, rpctypes.ErrCompacted)
	_, err = etcd.Compact(t.Context(), second+5)
	wantErr(t, err, rpctypes.ErrFutureRev)
}

func transactions(t *testing.T, etcd *clientv3.Client) {
	revision := put(t, etcd, "a", "1")
	txn := func(compare clientv3.Cmp) string {
		got := must(etcd.Txn(t.Context()).If(compare, clientv3.Compare(clientv3.Version("none"), "=", 0)).
			Then(clientv3.OpPut("b", "then"), clientv3.OpGet("b")).Else(clientv3.OpGet("a")).Commit())(t)
		last := got.Responses[len(got.Responses)-1].GetResponseRange()
		return fmt.Sprint(got.Succeeded, string(last.Kvs[0].Value))
	}
	for _, c := range []struct {
		compare clientv3.Cmp
		want    string
	}{
		{clientv3.Compare(clientv3.ModRevision("a"), "=", revision), "truethen"},
		{clientv3.Compare(clientv3.CreateRevision("a"), "=", revision), "truethen"},
		{clientv3.Compare(clientv3.CreateRevision("a"), "=", 0), "false1"},
		{clientv3.Compare(clientv3.Value("a"), "=", "1"), "truethen"},
		{clientv3.Compare(clientv3.Value("a"), "!=", "1"), "false1"},
		{clientv3.Compare(clientv3.LeaseValue("a"), "=", clientv3.NoLease), "truethen"},
		{clientv3.Compare(clientv3.CreateRevision("x"), "=", 0).WithRange("z"), "truethen"},
		{clientv3.Compare(clientv3.CreateRevision("a"), "=", 0).WithPrefix(), "false1"},
		{clientv3.Compare(clientv3.CreateRevision("a"), "<", revision+1).WithPrefix(), "truethen"},
	} {
		want(t, txn(c.compare), c.want)
	}
	got := must(etcd.Txn(t.Context()).Then(clientv3.OpPut("c", "1"), clientv3.OpPut("d", "1"),
		clientv3.OpDelete("b", clientv3.WithPrefix()),
		clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpPut("e", "1")}, nil)).Commit())(t)
	all := must(etcd.Get(t.Context(), "", clientv3.WithPrefix()))(t)
	want(t, keys(all), "a=1:1 c=1:1 d=1:1 e=1:1")
	for _, kv := range all.Kvs[1:] {
		if kv.ModRevision != got.Header.Revision {
			t.Errorf("%s was written at %d, the transaction at %d", kv.Key, kv.ModRevision, got.Header.Revision)
		}
	}
}

func refusals(t *testing.T, etcd *clientv3.Client) {
	for _, ops := range [][]clientv3.Op{
		{clientv3.OpPut("a", "1"), clientv3.OpPut("a", "2")},
		{clientv3.OpPut("a", "1"), clientv3.OpDelete("a")},
		{clientv3.OpDelete("a", clientv3.WithPrefix()), clientv3.OpPut("ab", "1")},
	} {
		_, err := etcd.Txn(t.Context()).Then(ops...).Commit()
		wantErr(t, err, rpctypes.ErrDuplicateKey)
		_, err = etcd.Txn(t.Context()).Else(ops...).Commit()
		wantErr(t, err, rpctypes.ErrDuplicateKey)
	}
	_, err := etcd.Txn(t.Context()).Then(slices.Repeat([]clientv3.Op{clientv3.OpGet("a")}, etcdserver.TxnOps+1)...).
		Commit()
	wantErr(t, err, rpctypes.ErrTooManyOps)
}

// text returns the changes of an answer of a watch.
func text(answer clientv3.WatchResponse) string {
	var all []string
	for _, e := range answer.Events {
		change := fmt.Sprintf("%s %s=%s", e.Type, e.Kv.Key, e.Kv.Value)
		if e.PrevKv != nil {
			change += " was " + string(e.PrevKv.Value)
		}
		all = append(all, change)
	}
	return strings.Join(all, ", ")
}

func watches(t *testing.T, etcd *clientv3.Client) {
	ctx, end := context.WithCancel(t.Context())
	defer end()
	watch := etcd.Watch(ctx, "a/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithCreatedNotify())
	puts := etcd.Watch(ctx, "a/1", clientv3.WithFilterDelete(), clientv3.WithCreatedNotify())
	if created := <-watch; !created.Created {
		t.Errorf("the first answer is %v", created)
	}
	<-puts
	put(t, etcd, "a/1", "1")
	put(t, etcd, "b", "1")
	put(t, etcd, "a/1", "2")
	must(etcd.Delete(t.Context(), "a/", clientv3.WithPrefix()))(t)
	must(etcd.Txn(t.Context()).Then(clientv3.OpPut("a/1", "3"), clientv3.OpPut("a/2", "3")).Commit())(t)
	for _, changes := range []string{"PUT a/1=1", "PUT a/1=2 was 1", "DELETE a/1= was 2", "PUT a/1=3, PUT a/2=3"} {
		want(t, text(<-watch), changes)
	}
	for _, changes := range []string{"PUT a/1=1", "PUT a/1=2", "PUT a/1=3"} {
		want(t, text(<-puts), changes)
	}
	end()
	for range watch {
		t.Error("an answer after the end")
	}
}

func oldWatches(t *testing.T, etcd *clientv3.Client) {
	first := put(t, etcd, "a", "1")
	put(t, etcd, "a", "2")
	watch := etcd.Watch(t.Context(), "a", clientv3.WithRev(first), clientv3.WithPrevKV())
	var all string
	for range 2 {
		if all += text(<-watch) + ", "; strings.Contains(all, "=2") {
			break
		}
	}
	want(t, all, "PUT a=1, PUT a=2 was 1, ")
	put(t, etcd, "a", "3")
	want(t, text(<-watch), "PUT a=3 was 2")
}

func compactedWatches(t *testing.T, etcd *clientv3.Client) {
	first := put(t, etcd, "a", "1")
	put(t, etcd, "a", "2")
	third := put(t, etcd, "a", "3")
	must(etcd.Compact(t.Context(), third))(t)
	watch := etcd.Watch(t.Context(), "a", clientv3.WithRev(first))
	answer := <-watch
	wantErr(t, answer.Err(), rpctypes.ErrCompacted)
	if answer.CompactRevision != third {
		t.Errorf("compacted at %d, the answer says %d", third, answer.CompactRevision)
	}
	if _, open := <-watch; open {
		t.Error("the watch goes on")
	}
}

func progress(t *testing.T, etcd *clientv3.Client) {
	watch := etcd.Watch(t.Context(), "a", clientv3.WithCreatedNotify())
	<-watch
	revision := put(t, etcd, "b", "1")
	if err := etcd.RequestProgress(t.Context()); err != nil {
		t.Fatal(err)
	}
	if answer := <-watch; !answer.IsProgressNotify() || answer.Header.Revision != revision {
		t.Errorf("got %v at %d, want the progress to %d", answer, answer.Header.Revision, revision)
	}
}

func manyWatches(t *testing.T, etcd *clientv3.Client) {
	other := etcd.Watch(t.Context(), "other", clientv3.WithCreatedNotify())
	<-other
	ctx, end := context.WithCancel(t.Context())
	var all []clientv3.WatchChan
	for i := range 200 {
		all = append(all, etcd.Watch(ctx, fmt.Sprint("a", i), clientv3.WithCreatedNotify()))
	}
	for _, watch := range all {
		<-watch
	}
	end()
	for _, watch := range all {
		for range watch {
		}
	}
	put(t, etcd, "other", "1")
	want(t, text(<-other), "PUT other=1")
}

func revocation(t *testing.T, etcd *clientv3.Client) {
	lease := must(etcd.Grant(t.Context(), 100))(t)
	put(t, etcd, "a/1", "1", clientv3.WithLease(lease.ID))
	put(t, etcd, "a/2", "1", clientv3.WithLease(lease.ID))
	put(t, etcd, "a/3", "1")
	put(t, etcd, "a/2", "2") // without the lease
	left := must(etcd.TimeToLive(t.Context(), lease.ID, clientv3.WithAttachedKeys()))(t)
	want(t, fmt.Sprintf("%d %q", left.GrantedTTL, left.Keys), `100 ["a/1"]`)
	watch := etcd.Watch(t.Context(), "a/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-watch
	must(etcd.Revoke(t.Context(), lease.ID))(t)
	want(t, text(<-watch), "DELETE a/1=")
	want(t, keys(must(etcd.Get(t.Context(), "a/", clientv3.WithPrefix()))(t)), "a/2=2:2 a/3=1:1")
	gone := must(etcd.TimeToLive(t.Context(), lease.ID))(t)
	want(t, fmt.Sprint(gone.TTL), "-1")
}

func keptAlive(t *testing.T, etcd *clientv3.Client) {
	kept, short := must(etcd.Grant(t.Context(), 2))(t), must(etcd.Grant(t.Context(), 2))(t)
	ctx, end := context.WithCancel(t.Context())
	alive := must(etcd.KeepAlive(ctx, kept.ID))(t)
	put(t, etcd, "kept", "1", clientv3.WithLease(kept.ID))
	watch := etcd.Watch(t.Context(), "", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-watch
	put(t, etcd, "short", "1", clientv3.WithLease(short.ID))
	<-watch
	want(t, text(<-watch), "DELETE short=") // by itself, since nothing renews its lease
	if answer := <-alive; answer.ID != kept.ID || answer.TTL != 2 {
		t.Errorf("kept alive with %v", answer)
	}
	want(t, keys(must(etcd.Get(t.Context(), "kept"))(t)), "kept=1:1")
	end()
	for range alive {
	}
	want(t, text(<-watch), "DELETE kept=")
	_, err := etcd.KeepAliveOnce(t.Context(), kept.ID)
	wantErr(t, err, rpctypes.ErrLeaseNotFound)
}

func unknownLeases(t *testing.T, etcd *clientv3.Client) {
	_, err := etcd.Put(t.Context(), "a", "1", clientv3.WithLease(77))
	wantErr(t, err, rpctypes.ErrLeaseNotFound)
	_, err = etcd.Txn(t.Context()).
		Then(clientv3.OpPut("b", "1"), clientv3.OpPut("a", "1", clientv3.WithLease(77))).Commit()
	wantErr(t, err, rpctypes.ErrLeaseNotFound)
	_, err = etcd.Revoke(t.Context(), 77)
	wantErr(t, err, rpctypes.ErrLeaseNotFound)
	want(t, keys(must(etcd.Get(t.Context(), "", clientv3.WithPrefix()))(t)), "")
}

// TestAgentsLiveAndDieInFakeTime: stores in memory work inside a bubble, where an agent that renews its lease for an
// hour takes no real time.
func TestAgentsLiveAndDieInFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		memory := etcdtest.NewMemory(t)
		agent, other := memory.Open(t), memory.Open(t)
		host := croft.NewHostID()
		if err := agent.Registry.PutHost(t.Context(), croft.Host{ID: host}); err != nil {
			t.Fatal(err)
		}
		alive := func() bool { return must(other.Registry.Hosts(t.Context(), host))(t)[host].Alive }
		ctx, die := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- agent.Registry.StayAlive(ctx, host) }()
		time.Sleep(time.Hour)
		if !alive() {
			t.Error("dead after an hour of renewals")
		}
		die()
		<-done
		time.Sleep(time.Minute)
		if alive() {
			t.Error("alive a minute after its end")
		}
	})
}
