package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"croft"
	"croft/etcdstore"
	"croft/etcdstore/etcdtest"
	"croft/placement"
	"croft/placementclient"
	"croft/schedule"
)

// BenchmarkRequest requests instances by a CRUSH policy and by spread in turn, in one cloud: a real etcd, a real
// Placement over HTTP, and hosts without agents. It reports the mean of each, including the time to read the map, and
// the ratio of the two.
func BenchmarkRequest(b *testing.B) {
	for _, hosts := range []int{1000, 5000} {
		b.Run(fmt.Sprintf("hosts=%d", hosts), func(b *testing.B) { benchmarkRequest(b, hosts) })
	}
}

func benchmarkRequest(b *testing.B, hosts int) {
	s := filled(b, hosts)
	policies := []*schedule.Policy{named(b, "crush:any"), named(b, "spread")}
	query, err := schedule.ParseQuery("VCPU:1,MEMORY_MB:256,DISK_GB:1")
	if err != nil {
		b.Fatal(err)
	}
	took := [2][]time.Duration{}
	request := func(n int) {
		for i, p := range policies {
			begun := time.Now()
			_, err := s.Request(b.Context(), schedule.Request{Name: fmt.Sprintf("vm-%d-%d", i, n), Query: query,
				Image: "file:///image", Policy: p})
			if err != nil {
				b.Fatal(err)
			}
			took[i] = append(took[i], time.Since(begun))
		}
	}
	n := 0
	for ; n < 10; n++ { // connections, and the first map
		request(n)
	}
	took = [2][]time.Duration{}
	for b.Loop() {
		request(n)
		n++
	}
	b.ReportMetric(0, "ns/op") // two requests
	for i, name := range []string{"crush", "spread"} {
		b.ReportMetric(mean(took[i]), name+"-ms")
		slices.Sort(took[i])
		b.ReportMetric(float64(took[i][len(took[i])/2])/float64(time.Millisecond), name+"-median-ms")
	}
	b.ReportMetric(mean(took[0])/mean(took[1]), "crush/spread")
}

// mean returns the mean in milliseconds.
func mean(all []time.Duration) float64 {
	sum := time.Duration(0)
	for _, d := range all {
		sum += d
	}
	return float64(sum) / float64(len(all)) / float64(time.Millisecond)
}

func named(b *testing.B, name string) *schedule.Policy {
	p, err := schedule.PolicyNamed(name)
	if err != nil {
		b.Fatal(err)
	}
	return p
}

// filled returns the scheduler of a cloud with hosts in racks of 20.
func filled(b *testing.B, hosts int) *schedule.Scheduler {
	b.Helper()
	etcd := etcdtest.Server(b)
	store := etcdtest.Open(b, etcd)
	server, err := placement.New(placement.Config{Store: store.Placement(0), Log: slog.New(slog.DiscardHandler),
		Token: "admin"})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Run(ctx) // if it fails, the requests fail
	}()
	b.Cleanup(func() { cancel(); <-ended })
	listener := httptest.NewServer(server.Handler())
	b.Cleanup(listener.Close)
	claims, err := placementclient.New(placementclient.Config{Endpoint: listener.URL,
		Auth: placementclient.StaticToken("admin")})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(claims.Close)
	var work errgroup.Group
	work.SetLimit(16)
	for n := range hosts {
		work.Go(func() error { return addHost(b.Context(), etcd.Endpoint(), store, claims, n) })
	}
	if err := work.Wait(); err != nil {
		b.Fatal(err)
	}
	if _, err := store.Policies.Set(b.Context(), croft.CrushPolicy{Name: "any", Text: "select 1 rack; take 1"},
		nil); err != nil {
		b.Fatal(err)
	}
	s, err := schedule.New(schedule.Config{Partition: store.Partition(), Records: store.Instances,
		Holds: store.Instances, View: store.Instances, Registry: store.Registry, Groups: store.Groups,
		Aggregates: store.Aggregates, Crush: store.Policies, Claims: claims})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// addHost writes the records that an agent writes when it starts.
func addHost(ctx context.Context, etcd string, store *etcdstore.Store, claims *placementclient.Client, n int) error {
	id := croft.NewHostID()
	name := fmt.Sprintf("host%d", n)
	inv := func(total int64) croft.Inventory {
		return croft.Inventory{Total: total, MinUnit: 1, MaxUnit: total, StepSize: 1, AllocationRatio: 1}
	}
	if err := claims.EnsureProvider(ctx, croft.Provider{ID: id, Name: name,
		Inventories: map[croft.ResourceClass]croft.Inventory{croft.VCPU: inv(64), croft.MemoryMB: inv(256 << 10),
			croft.DiskGB: inv(4 << 10)}}); err != nil {
		return err
	}
	if err := store.Registry.PutHost(ctx, croft.Host{ID: id, Name: name, VirtType: "sim",
		Location: fmt.Sprintf("site%d/row%d/rack%d", n%2, n/20%5, n/20)}); err != nil {
		return err
	}
	now := time.Now().UTC().Format(time.RFC3339Nano)
	return etcdtest.Put(ctx, etcd, store.Partition(), "alive/"+string(id), now)
}
