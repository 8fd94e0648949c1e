package placement_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	clientv3 "go.etcd.io/etcd/client/v3"

	"croft/etcdstore"
	"croft/etcdstore/etcdserver"
	"croft/etcdstore/etcdtest"
	"croft/placement"
)

// BenchmarkClaimBesideEtcd alternates, for one client, between a claim and a bare transaction of the same size, on one
// etcd that syncs to the disk. It prints how many claims fit in the time of a transaction. Both use a loopback
// connection, HTTP and gRPC.
func BenchmarkClaimBesideEtcd(b *testing.B) {
	etcd, err := etcdserver.Start(b.Context(), etcdserver.Config{Dir: b.TempDir(), Listen: "127.0.0.1:0"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(etcd.Close)
	store, err := etcdstore.Open(b.Context(), etcdstore.Config{Embedded: etcd, Mint: true,
		DialTimeout: 20 * time.Second})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	server, err := placement.New(placement.Config{Store: store.Placement(etcdserver.TxnOps)})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-ended })
	for server.Ready() != nil {
		runtime.Gosched()
	}
	host := uuid.NewString()
	register(b, server.Handler(), host)
	web := httptest.NewServer(server.Handler())
	b.Cleanup(web.Close)
	a := newAPI(b, web.URL)
	bare := etcdtest.Client(b, etcd, etcdstore.Credentials{})
	value := strings.Repeat("x", 300)
	var claims, transactions time.Duration
	for n := 0; b.Loop(); n++ {
		begun := time.Now()
		a.must("PUT", "/allocations/"+uuid.NewString(),
			claimOf(fmt.Sprintf(`{%q: {"resources": {"VCPU": 1, "MEMORY_MB": 256, "DISK_GB": 1}}}`, host)))
		claims += time.Since(begun)
		begun = time.Now()
		key := fmt.Sprintf("/bare/%d", n)
		if _, err := bare.Txn(b.Context()).If(clientv3.Compare(clientv3.CreateRevision(key), "=",
			0)).Then(clientv3.OpPut(key, value)).Commit(); err != nil {
			b.Fatal(err)
		}
		transactions += time.Since(begun)
	}
	b.ReportMetric(transactions.Seconds()/claims.Seconds(), "claims/transaction")
	b.ReportMetric(float64(claims.Microseconds())/float64(b.N), "µs/claim")
	b.ReportMetric(float64(transactions.Microseconds())/float64(b.N), "µs/transaction")
}
