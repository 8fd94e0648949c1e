package etcdstore

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"croft/internal/meter"
	"croft/internal/span"
)

// metrics counts requests to etcd.
type metrics struct {
	meter.Set
	requests *prometheus.HistogramVec
	broken   prometheus.Counter
	hung     prometheus.Counter
	lost     prometheus.Counter
	beat     prometheus.Gauge
	held     prometheus.Gauge
}

func newMetrics() *metrics {
	m := &metrics{}
	m.requests = m.Seconds("croft_etcd_request_seconds",
		"Requests to etcd, by operation and outcome (gRPC code).", meter.Requests, "operation", "code")
	m.broken = m.Counter("croft_etcd_watches_broken_total",
		"Watches that broke, after a compaction or a lost server, and were started again.")
	m.hung = m.Counter("croft_etcd_connections_hung_total",
		"Connections that were closed because the member of etcd at their end hung.")
	m.lost = m.Counter("croft_etcd_leases_lost_total", "Leases of the host's agent that ran out.")
	m.held = m.Gauge("croft_etcd_lease_held", "1 while the host's agent has its lease, 0 while it has none.")
	m.beat = m.Gauge("croft_etcd_lease_renewed_timestamp_seconds",
		"When the lease of the host's agent was renewed last.")
	return m
}

// measure starts the measurement of a request; the returned function ends it.
func (m *metrics) measure(ctx context.Context, operation string) (context.Context, func(error)) {
	begun := time.Now()
	ctx, end := span.Start(ctx, "etcd: "+operation)
	return ctx, func(err error) {
		end(err)
		m.requests.WithLabelValues(operation, codeLabel(err)).Observe(time.Since(begun).Seconds())
	}
}

// codeLabel returns the code of an error, from the client or the server.
func codeLabel(err error) string {
	if c := code(err); c != codes.Unknown {
		return c.String()
	}
	return status.FromContextError(err).Code().String()
}

// measuredLease counts the requests of a clientv3.Lease.
type measuredLease struct {
	clientv3.Lease
	metrics *metrics
}

func (l measuredLease) Grant(ctx context.Context, ttl int64) (*clientv3.LeaseGrantResponse, error) {
	ctx, end := l.metrics.measure(ctx, "grant")
	got, err := l.Lease.Grant(ctx, ttl)
	end(err)
	return got, err
}

func (l measuredLease) Revoke(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	ctx, end := l.metrics.measure(ctx, "revoke")
	got, err := l.Lease.Revoke(ctx, id)
	end(err)
	return got, err
}

// measuredKV counts the requests of a clientv3.KV, with or without a connection.
type measuredKV struct {
	clientv3.KV
	metrics *metrics
}

func (k measuredKV) Put(ctx context.Context, key, value string, opts ...clientv3.OpOption) (*clientv3.PutResponse,
	error) {
	ctx, end := k.metrics.measure(ctx, "put")
	got, err := k.KV.Put(ctx, key, value, opts...)
	end(err)
	return got, err
}

func (k measuredKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, end := k.metrics.measure(ctx, "get")
	got, err := k.KV.Get(ctx, key, opts...)
	end(err)
	return got, err
}

func (k measuredKV) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse,
	error) {
	ctx, end := k.metrics.measure(ctx, "delete")
	got, err := k.KV.Delete(ctx, key, opts...)
	end(err)
	return got, err
}

func (k measuredKV) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	ctx, end := k.metrics.measure(ctx, "do")
	got, err := k.KV.Do(ctx, op)
	end(err)
	return got, err
}

func (k measuredKV) Txn(ctx context.Context) clientv3.Txn {
	own, end := k.metrics.measure(ctx, "txn")
	return measuredTxn{k.KV.Txn(own), end}
}

// measuredTxn counts a transaction when it is committed. If and Then return the transaction itself, as in the
// client.
type measuredTxn struct {
	clientv3.Txn
	end func(error)
}

func (t measuredTxn) If(cs ...clientv3.Cmp) clientv3.Txn { return measuredTxn{t.Txn.If(cs...), t.end} }
func (t measuredTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	return measuredTxn{t.Txn.Then(ops...), t.end}
}
func (t measuredTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	return measuredTxn{t.Txn.Else(ops...), t.end}
}

func (t measuredTxn) Commit() (*clientv3.TxnResponse, error) {
	got, err := t.Txn.Commit()
	t.end(err)
	return got, err
}
