package etcdstore

import (
	"context"
	"reflect"
	"sync/atomic"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft"
	"croft/etcdstore/internal/kv"
)

// WithoutKeepalive disables gRPC's keepalive, so that only closeHung finds hung members.
func (c Config) WithoutKeepalive() Config {
	c.keepalive = 24 * time.Hour
	return c
}

// Under inserts a KV between the store and its client.
func (c Config) Under(kv func(clientv3.KV) clientv3.KV) Config {
	c.under = kv
	return c
}

// WithSurplus adds to next the part of stored that exceeds the fields a, list and in, which the test's type has.
func WithSurplus(stored, next string) string {
	type element struct {
		A int `json:"a,omitempty"`
	}
	type value struct {
		A    int               `json:"a,omitempty"`
		In   *element          `json:"in,omitempty"`
		Tags map[string]string `json:"tags,omitempty"`
		List []element         `json:"list,omitempty"`
	}
	return string(surplusOf([]byte(stored), reflect.TypeFor[value]()).addTo([]byte(next)))
}

// OweAnswers marks the answers of all connections as overdue for longer than hungSilence.
func (s *conn) OweAnswers() {
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	for c := range s.conns.open {
		c.mu.Lock()
		c.since = time.Now().Add(-2 * hungSilence)
		c.mu.Unlock()
	}
}

// Owing returns how many connections have overdue answers.
func (s *conn) Owing() int { return len(s.conns.silent()) }

// Hung returns how many connections were closed.
func (s *conn) Hung() float64 {
	var m dto.Metric
	_ = s.metrics.hung.Write(&m)
	return m.GetCounter().GetValue()
}

// BeforeTxn runs do before the next transaction is sent.
func (s *conn) BeforeTxn(do func()) { s.etcd.KV = &interposed{KV: s.etcd.KV, before: do} }

// BeforeNthTxn runs do before the nth transaction from now on is sent.
func (s *conn) BeforeNthTxn(n int64, do func()) {
	k := &interposed{KV: s.etcd.KV, before: do}
	k.skip.Store(n - 1)
	s.etcd.KV = k
}

// LoseAnswer loses the answer to the next transaction, which is still done.
func (s *conn) LoseAnswer() { s.etcd.KV = &interposed{KV: s.etcd.KV, before: func() {}, lose: true} }

// SendTwice sends the next transaction twice, as the transport does after a lost answer, and returns the second
// answer.
func (s *conn) SendTwice() { s.etcd.KV = &interposed{KV: s.etcd.KV, before: func() {}, twice: true} }

// BeforeSecondGet runs do before the second read from now on is sent.
func (s *conn) BeforeSecondGet(do func()) { s.etcd.KV = &interposedGet{KV: s.etcd.KV, before: do} }

type interposedGet struct {
	clientv3.KV
	before func()
	reads  atomic.Int64
}

func (k *interposedGet) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if k.reads.Add(1) == 2 {
		k.before()
	}
	return k.KV.Get(ctx, key, opts...)
}

// LoadPage is how many keys of Placement are read per request.
const LoadPage = kv.PageSize

// WatchThrough starts watches through do, which gets the client's own Watcher.
func (s *conn) WatchThrough(do func(ctx context.Context, own clientv3.Watcher, key string,
	opts ...clientv3.OpOption) clientv3.WatchChan) {
	s.etcd.Watcher = &watchThrough{s.etcd.Watcher, do}
}

type watchThrough struct {
	clientv3.Watcher
	do func(ctx context.Context, own clientv3.Watcher, key string, opts ...clientv3.OpOption) clientv3.WatchChan
}

func (w *watchThrough) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	return w.do(ctx, w.Watcher, key, opts...)
}

type interposed struct {
	clientv3.KV
	before func()
	lose   bool
	twice  bool
	over   atomic.Bool
	skip   atomic.Int64 // transactions that are sent unchanged first
}

func (k *interposed) Txn(ctx context.Context) clientv3.Txn {
	return &interposedTxn{k.KV.Txn(ctx), k}
}

type interposedTxn struct {
	clientv3.Txn
	kv *interposed
}

func (t *interposedTxn) If(c ...clientv3.Cmp) clientv3.Txn  { t.Txn = t.Txn.If(c...); return t }
func (t *interposedTxn) Then(o ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Then(o...); return t }
func (t *interposedTxn) Else(o ...clientv3.Op) clientv3.Txn { t.Txn = t.Txn.Else(o...); return t }

func (t *interposedTxn) Commit() (*clientv3.TxnResponse, error) {
	if t.kv.skip.Add(-1) >= 0 || t.kv.over.Swap(true) {
		return t.Txn.Commit()
	}
	t.kv.before()
	if t.kv.twice {
		if done, err := t.Txn.Commit(); err != nil {
			return done, err
		}
	}
	done, err := t.Txn.Commit()
	if err == nil && t.kv.lose {
		return nil, rpctypes.ErrTimeout
	}
	return done, err
}

// RunTelling is like Run, and calls changed after each change.
func (v *HostsView) RunTelling(ctx context.Context, changed func()) error {
	return v.mirror.Run(ctx, changed)
}

// Has reports whether the view answers for a host without a request to etcd.
func (v *HostsView) Has(id croft.HostID) bool {
	_, others := v.mirror.open([]croft.HostID{id})
	return len(others) == 0
}

// Waiting returns how many observations wait for the write in flight.
func (s *Orders) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}

// MintAgain mints the home like a program that found none.
func (s *conn) MintAgain(ctx context.Context) error { return s.mint(ctx) }

// RaiseFrom raises the schema like a program that read the home at a revision.
func (s *conn) RaiseFrom(ctx context.Context, revision int64) error {
	return s.raise(ctx, home{Partition: s.partition, Schema: schemaOf(0)}, revision)
}

// HoldTxns makes the next n transactions fail immediately, as if given up. release sends the first of them, and returns
// whether it was done.
func (s *conn) HoldTxns(n int64) (release func() bool) {
	held := &heldTxn{KV: s.etcd.KV, most: n}
	s.etcd.KV = held
	return func() bool {
		done, err := held.txn.Commit()
		return err == nil && done.Succeeded
	}
}

type heldTxn struct {
	clientv3.KV
	most  int64
	taken atomic.Int64
	txn   clientv3.Txn // the first held transaction
}

func (k *heldTxn) Txn(ctx context.Context) clientv3.Txn {
	txn := k.KV.Txn(context.WithoutCancel(ctx))
	switch n := k.taken.Add(1); {
	case n > k.most:
		return k.KV.Txn(ctx)
	case n == 1:
		k.txn = txn
	}
	return &givenUp{txn}
}

type givenUp struct{ clientv3.Txn }

func (t *givenUp) If(c ...clientv3.Cmp) clientv3.Txn  { t.Txn.If(c...); return t }
func (t *givenUp) Then(o ...clientv3.Op) clientv3.Txn { t.Txn.Then(o...); return t }
func (t *givenUp) Else(o ...clientv3.Op) clientv3.Txn { t.Txn.Else(o...); return t }

func (t *givenUp) Commit() (*clientv3.TxnResponse, error) { return nil, rpctypes.ErrTimeout }

// StopWatches makes watches deliver nothing, without ending them.
func (s *conn) StopWatches() { s.etcd.Watcher = silentWatcher{s.etcd.Watcher} }

type silentWatcher struct{ clientv3.Watcher }

func (silentWatcher) Watch(context.Context, string, ...clientv3.OpOption) clientv3.WatchChan {
	return nil
}
